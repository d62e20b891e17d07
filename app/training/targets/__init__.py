"""Where `solar train` puts a model: a file, a store, a running service."""
