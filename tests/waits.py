"""Waiting for something to become true; never for some time to pass."""

import time
from collections.abc import Callable

PATIENCE = 20.0  # seconds: how long a test waits for what must come


def until(true: Callable[[], object]) -> None:
    """Wait until something holds, or fail."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
