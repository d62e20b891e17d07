"""Grouped writes of impressions to the store; they never fail an answer.

Concurrent requests to one model share one round trip. A request waits at most `timeout` seconds.
Then it is answered with `logged: false`, and feedback on it is refused.
"""

import asyncio
import logging

from app.errors import SolarError
from app.storage.batching import MicroBatcher
from app.storage.store import Store

log = logging.getLogger("solar.serving")


class ImpressionWriter:
    """Writes impressions in groups: one group is written while the next one collects."""

    def __init__(self, store: Store, seconds: float, timeout: float = 0.05) -> None:
        self._store, self._seconds, self._timeout = store, seconds, timeout
        self._batches = MicroBatcher(self._write)

    def store_impression(
        self, model: str, epoch: int, request: str, shown: bytes
    ) -> asyncio.Future[bool]:
        """Store an impression; the future tells whether it was written within the timeout."""
        written = self._batches((model, epoch), (request, shown))
        asyncio.get_running_loop().call_later(self._timeout, _give_up, written)
        return written

    async def _write(
        self, model: tuple[str, int], shown: list[tuple[str, bytes]]
    ) -> list[bool | Exception]:
        try:
            await self._store.log.store_impressions(*model, dict(shown), self._seconds)
        except Exception as error:  # the requests are answered whatever the error
            if not isinstance(error, SolarError):
                log.exception("model %s: writing impressions failed", model[0])
            return [False] * len(shown)
        return [True] * len(shown)

    async def close(self) -> None:
        """Wait for pending writes."""
        await self._batches.close()


def _give_up(written: asyncio.Future[bool]) -> None:
    if not written.done():
        written.set_result(False)
