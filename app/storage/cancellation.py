"""Cancellation of tasks until they have ended."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from app.errors import SolarError

log = logging.getLogger("solar")


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended; log unexpected errors of tasks that failed before.

    One cancellation may not be enough. Before Python 3.12, `asyncio.wait_for`, which redis-py uses,
    drops a cancellation that arrives together with its result, and a task in a loop continues.
    """
    tasks = list(tasks)
    while left := [task for task in tasks if not task.done()]:  # in order: simulations replay it
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.1)
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SolarError):
            log.error("task %s failed", task.get_name(), exc_info=error)
