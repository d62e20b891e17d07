"""Experiments on judged data: online, batch against online, warm against cold start."""
