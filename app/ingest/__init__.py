"""Feedback on its way into a model's log."""
