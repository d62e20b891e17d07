"""A lock that models take before followers."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.storage.keys import is_follower


class PriorityLock:
    """A lock for the work of models: in order of arrival, but followers after all models."""

    def __init__(self) -> None:
        self._held = False
        self._models = deque[asyncio.Future[None]]()
        self._followers = deque[asyncio.Future[None]]()

    @asynccontextmanager
    async def hold(self, model: str) -> AsyncIterator[None]:
        """Hold the lock for a model or a follower."""
        await self._take(self._followers if is_follower(model) else self._models)
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self, waiting: "deque[asyncio.Future[None]]") -> None:
        """Wait until the lock is free, or passed on to this caller."""
        if not self._held:
            self._held = True
            return
        granted = asyncio.get_running_loop().create_future()
        waiting.append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # granted meanwhile
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Pass the lock on to the next caller that still waits, else free it."""
        for waiting in (self._models, self._followers):
            while waiting:
                granted = waiting.popleft()
                if not granted.cancelled():
                    granted.set_result(None)
                    return
        self._held = False
