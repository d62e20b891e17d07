"""Wait for a condition, never for a fixed time."""

import time
from collections.abc import Callable

TIMEOUT = 20.0  # seconds that a test waits for a condition


def until(true: Callable[[], object], seconds: float = TIMEOUT) -> None:
    """Wait until a condition holds, or fail."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.005)
