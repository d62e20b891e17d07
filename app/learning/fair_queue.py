"""Turns of models in a few threads: models that wait get equal shares of the CPU time.

Start-time fair queueing: the model that has used the least CPU time goes next. A model that was
idle starts level with the turn that was granted last, so it neither waits for the others nor
catches up on the time that it did not need.
"""

import asyncio
import os
from collections.abc import Callable
from time import thread_time
from typing import NamedTuple, TypeVar

T = TypeVar("T")
#: Models whose CPU time is kept; of more, those that are level with the last turn are dropped.
MOST_KEPT = 1024


class _Waiting(NamedTuple):
    model: str
    granted: "asyncio.Future[None]"


class FairQueue:
    """Runs the work of models in threads, one turn at a time for each model."""

    def __init__(self, threads: int | None = None) -> None:
        self._free = cores() if threads is None else threads
        self._waiting: list[_Waiting] = []
        self._used: dict[str, float] = {}  # CPU seconds of a model, at least those of `_level`
        self._level = 0.0  # the CPU seconds of the model whose turn was granted last

    async def run(self, model: str, work: Callable[[], T]) -> T:
        """Run the work of a model in a thread, once it is its turn."""
        await self._turn(model)
        took = 0.0
        try:
            result, took = await asyncio.get_running_loop().run_in_executor(None, _timed, work)
        finally:
            self._used[model] = self._used.get(model, self._level) + took
            self._free += 1
            self._grant()
        return result

    async def _turn(self, model: str) -> None:
        """Wait for a turn."""
        self._used[model] = max(self._level, self._used.get(model, 0.0))
        one = _Waiting(model, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._grant()
        try:
            if not one.granted.done():
                await one.granted
        except asyncio.CancelledError:
            if one in self._waiting:
                self._waiting.remove(one)
            else:  # granted meanwhile
                self._free += 1
                self._grant()
            raise

    def _grant(self) -> None:
        """Grant turns to the models that have used the least, while threads are free."""
        while self._free and self._waiting:
            one = min(self._waiting, key=lambda waiting: self._used[waiting.model])
            self._waiting.remove(one)
            self._free -= 1
            self._level = max(self._level, self._used[one.model])
            one.granted.set_result(None)
        if len(self._used) > MOST_KEPT:
            waiting = {one.model for one in self._waiting}
            self._used = {
                name: used
                for name, used in self._used.items()
                if used > self._level or name in waiting
            }


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Run work; return its result and its CPU seconds."""
    started = thread_time()
    return work(), thread_time() - started
