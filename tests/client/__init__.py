"""solar-client against a real service; its own tests are in clients/python/tests."""
