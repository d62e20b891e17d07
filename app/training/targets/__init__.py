"""Targets of `solar train`: a file, a store, a running service."""
