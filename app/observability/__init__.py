"""Metrics, logs and traces."""

from app.observability.multiprocess import choose_directory

choose_directory()  # before the first import of prometheus_client, which reads the variable
