"""The embedded valkey-server, started and stopped with the process."""
