"""Turns of models in a few threads: models that wait get equal shares of the CPU time.

Start-time fair queueing: the model that has used the least CPU time goes next. A model that was
idle starts almost level with the turn that was granted last. So it does not wait for the others,
and does not catch up on the time that it did not need.

Followers give way to models: their turns never take all threads, and count more than they took.
"""

import asyncio
import os
from collections.abc import Callable
from contextvars import copy_context
from time import thread_time
from typing import NamedTuple, TypeVar

from app.learning.priority_lock import PriorityLock
from app.storage.keys import is_follower

T = TypeVar("T")
#: CPU seconds that a model may be behind the turn that was granted last: a model that asks again
#: soon after its turn keeps its place. With 0, models with short turns got half of their share.
CREDIT = 0.1
#: Models whose CPU time is kept. Beyond, only that of waiting models is. The others are about one
#: turn ahead of the last turn, and start almost level with it.
MOST_KEPT = 1024
#: A second of a follower counts as this many seconds of a model.
FOLLOWER_COST = 4.0


class _Waiting(NamedTuple):
    model: str
    granted: "asyncio.Future[None]"


class FairQueue:
    """Runs the work of models in threads, one turn at a time for each model."""

    def __init__(
        self, threads: int | None = None, clock: Callable[[], float] = thread_time
    ) -> None:
        """`clock` measures the CPU time of the thread that calls it."""
        self._free, self._clock = cores() if threads is None else threads, clock
        self._free_for_followers = max(1, self._free - 1)  # one thread is left to models
        self._waiting: list[_Waiting] = []
        self._used: dict[str, float] = {}  # CPU seconds of each model
        self._level = 0.0  # the CPU seconds of the model whose turn was granted last
        #: Held to write a large state: the store serves no other model meanwhile, for 16 MB about
        #: 0.1 s. A model waits for one write of a follower at most.
        self.large_writes = PriorityLock()

    async def run(self, model: str, work: Callable[[], T]) -> T:
        """Run the work of a model in a thread, once it is its turn."""
        loop, took = asyncio.get_running_loop(), 0.0
        await self._turn(model)
        try:
            inherited = copy_context()  # for traces, as in asyncio.to_thread
            result, took = await loop.run_in_executor(None, inherited.run, self._timed, work)
        finally:
            cost = took * (FOLLOWER_COST if is_follower(model) else 1.0)
            self._used[model] = self._used.get(model, self._level) + cost
            self._release(model)
            loop.call_soon(self._grant)  # after the caller, which may ask for its next turn
        return result

    async def _turn(self, model: str) -> None:
        """Wait for a turn."""
        self._used[model] = max(self._level - CREDIT, self._used.get(model, 0.0))
        loop = asyncio.get_running_loop()
        one = _Waiting(model, loop.create_future())
        self._waiting.append(one)
        loop.call_soon(self._grant)
        try:
            await one.granted
        except asyncio.CancelledError:
            if not one.granted.cancelled():  # granted meanwhile
                self._release(model)
            loop.call_soon(self._grant)
            raise

    def _grant(self) -> None:
        """Grant turns to the models that have used the least, while threads are free."""
        self._waiting = [one for one in self._waiting if not one.granted.cancelled()]
        while self._free and (one := self._next()):
            self._waiting.remove(one)
            self._free -= 1
            self._free_for_followers -= is_follower(one.model)
            self._level = max(self._level, self._used[one.model])
            one.granted.set_result(None)
        if len(self._used) > MOST_KEPT:
            self._used = {one.model: self._used[one.model] for one in self._waiting}

    def _release(self, model: str) -> None:
        """Free the thread of a turn."""
        self._free += 1
        self._free_for_followers += is_follower(model)

    def _next(self) -> _Waiting | None:
        """Return the model that may go and has used the least CPU time, the first of equals."""
        able = self._waiting
        if not self._free_for_followers:
            able = [one for one in able if not is_follower(one.model)]
        return min(able, key=lambda one: self._used[one.model], default=None)

    def _timed(self, work: Callable[[], T]) -> tuple[T, float]:
        """Run work; return its result and its CPU time."""
        started = self._clock()
        return work(), self._clock() - started


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
