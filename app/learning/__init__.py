"""From a model's log to its committed state, and back: learners, replays."""
