"""The console in a browser, against a real service with simulated traffic."""
