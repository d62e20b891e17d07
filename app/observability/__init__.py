"""Metrics, logs and traces."""

from app.observability.multiprocess import choose_directory

choose_directory()  # before a module here imports prometheus_client, which looks for it once
