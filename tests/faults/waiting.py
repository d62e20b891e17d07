"""Waiting for conditions, never for a fixed time."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from tests.faults import CHAOS

#: More rounds take longer.
TIMEOUT_SECONDS = 60.0 * max(1.0, CHAOS / 2)


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, seconds: float = TIMEOUT_SECONDS
) -> float:
    """Wait until a condition holds, or fail; return the seconds."""
    started = monotonic()
    while not await condition():
        if monotonic() > started + seconds:
            raise AssertionError(f"not true after {seconds:g} s: {what}")
        await asyncio.sleep(0.005)
    return monotonic() - started
