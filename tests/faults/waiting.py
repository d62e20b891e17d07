"""Waiting for something to become true; never for some time to pass."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

PATIENCE = 60.0


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, seconds: float = PATIENCE
) -> float:
    """Ask until it is so, or fail; how long it took."""
    started = monotonic()
    while not await condition():
        if monotonic() > started + seconds:
            raise AssertionError(f"waited {seconds:g} s in vain: {what}")
        await asyncio.sleep(0.005)
    return monotonic() - started
