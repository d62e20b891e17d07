"""Chromium and simulated visitors, for tests and pictures of the console."""
