"""Grouped writes of impressions to the store; they never fail an answer.

Concurrent requests to one model share one round trip. A request waits at most `timeout` seconds.
Then it is answered with `logged: false`, and feedback on it is refused. The same holds for a large
impression for which the memory budget has no room.

At most once a second a model, a request is noted as a recent one with the write of its impression.
"""

import asyncio
import logging
from dataclasses import dataclass

from app.errors import OtherTenant, Overloaded, SolarError
from app.storage.batching import SMALL, Held, MemoryBudget, MicroBatcher
from app.storage.log import NewImpression
from app.storage.store import Store

log = logging.getLogger("solar.serving")

#: Seconds between two noted requests of a model.
NOTE_SECONDS = 1.0
#: Models whose last noted request is known; beyond it, one may be noted earlier.
_MOST_MODELS = 8192


@dataclass(slots=True)
class PendingImpression:
    """An impression that waits; its memory stays held until it is written or dropped."""

    request: str
    shown: bytes
    tenant: str
    held: Held | None
    writing: bool = False

    def drop(self) -> None:
        """Free its memory."""
        self.shown = b""
        if self.held:
            self.held.keep(0)


class ImpressionWriter:
    """Writes impressions in groups: one group is written while the next one collects."""

    def __init__(
        self,
        store: Store,
        seconds: float,
        timeout: float = 0.05,
        memory: MemoryBudget | None = None,
    ) -> None:
        self._store, self._seconds, self._timeout = store, seconds, timeout
        self._memory = memory or MemoryBudget(1 << 40)
        self._batches = MicroBatcher(self._write)
        self._noted: dict[tuple[str, int], float] = {}  # time of the last noted request

    def store_impression(
        self, model: str, epoch: int, request: str, shown: bytes, tenant: str = ""
    ) -> asyncio.Future[bool]:
        """Store an impression; the future tells whether it was written within the timeout.

        OtherTenant if the request belongs to another tenant.
        """
        loop, pending = asyncio.get_running_loop(), PendingImpression(request, shown, tenant, None)
        if len(shown) > SMALL and not self._hold(pending):
            refused: asyncio.Future[bool] = loop.create_future()
            refused.set_result(False)
            return refused
        written = self._batches((model, epoch), pending)
        loop.call_later(self._timeout, _give_up, written, pending)
        return written

    def _hold(self, pending: PendingImpression) -> bool:
        pending.held = Held(self._memory)
        try:
            pending.held.keep(len(pending.shown))
        except Overloaded:
            return False
        return True

    async def _write(
        self, model: tuple[str, int], group: list[PendingImpression]
    ) -> list[bool | Exception]:
        for one in group:
            one.writing = True
        try:
            shown = [NewImpression(one.request, one.shown, one.tenant) for one in group]
            noted = len(group) - 1 if self._is_due(model) else None
            stored = await self._store.log.store_impressions(*model, shown, self._seconds, noted)
        except Exception as error:  # the requests are answered whatever the error
            if not isinstance(error, SolarError):
                log.exception("model %s: writing impressions failed", model[0])
            return [False] * len(group)
        finally:
            for one in group:
                one.drop()
        return [one or OtherTenant() for one in stored]

    def _is_due(self, model: tuple[str, int]) -> bool:
        """Whether a request of the model is to be noted now."""
        now = asyncio.get_running_loop().time()
        if now - self._noted.get(model, float("-inf")) < NOTE_SECONDS:
            return False
        if len(self._noted) >= _MOST_MODELS:
            self._noted.clear()
        self._noted[model] = now
        return True

    async def close(self) -> None:
        """Wait for pending writes."""
        await self._batches.close()


def _give_up(written: asyncio.Future[bool], pending: PendingImpression) -> None:
    if not written.done():
        written.set_result(False)
        if not pending.writing:
            pending.drop()
