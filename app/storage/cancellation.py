"""Ending tasks for good."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from app.errors import SolarError

log = logging.getLogger("solar")


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended; what ended one before is logged, if it is a bug.

    Once is not always enough: `asyncio.wait_for`, which redis-py sends with, forgets a cancellation
    that comes in the same moment as its result (Python below 3.12), and a task in a loop goes on.
    """
    tasks = list(tasks)
    while left := [task for task in tasks if not task.done()]:  # in their order, for replays
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.1)
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SolarError):
            log.error("task %s failed", task.get_name(), exc_info=error)
