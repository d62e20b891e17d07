"""Appending feedback to a model's log."""
