"""Processes of the service (supervisor, worker), their wiring, and compiled kernels."""
