"""Processes: supervisor, worker, what they are made of, and compiled kernels."""
