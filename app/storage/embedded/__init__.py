"""A valkey-server of our own, started and ended with the process."""
