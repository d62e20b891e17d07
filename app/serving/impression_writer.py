"""Impressions on their way to the store: grouped, awaited, never in the way of an answer.

All requests of one moment to one model share one round trip. A request waits `patience` seconds at
most; then it is answered without having been remembered, and feedback on it will find nothing.
"""

import asyncio
import logging

from app.errors import SolarError
from app.storage.batching import MicroBatcher
from app.storage.store import Store

log = logging.getLogger("solar.serving")


class ImpressionWriter:
    """Writes impressions; one group is on its way while the next one gathers."""

    def __init__(self, store: Store, seconds: float, patience: float = 0.05) -> None:
        self._store, self._seconds, self._patience = store, seconds, patience
        self._batches = MicroBatcher(self._write)

    def remember(self, model: str, epoch: int, request: str, shown: bytes) -> asyncio.Future[bool]:
        """Whether it was written, once that is known; awaiting it is up to the caller."""
        written = self._batches((model, epoch), (request, shown))
        asyncio.get_running_loop().call_later(self._patience, _give_up, written)
        return written

    async def _write(
        self, model: tuple[str, int], shown: list[tuple[str, bytes]]
    ) -> list[bool | Exception]:
        try:
            await self._store.log.remember(*model, dict(shown), self._seconds)
        except Exception as error:  # whatever it is, the requests are answered
            if not isinstance(error, SolarError):
                log.exception("model %s: impressions were not written", model[0])
            return [False] * len(shown)
        return [True] * len(shown)

    async def close(self) -> None:
        """Let what is on its way arrive."""
        await self._batches.close()


def _give_up(written: asyncio.Future[bool]) -> None:
    if not written.done():
        written.set_result(False)
