"""Learners and replays: from a model's log to its committed state."""
