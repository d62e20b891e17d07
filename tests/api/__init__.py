"""The service over real HTTP: real processes, real sockets, a real store."""
