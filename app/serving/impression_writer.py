"""Grouped writes of impressions to the store; they never fail an answer.

Concurrent requests to one model share one round trip. A request waits at most `timeout` seconds
for its turn. Then it is answered with `logged: false`, and feedback on it is refused. The same
holds for a large impression for which the memory budget has no room.

A write that is sent has a deadline in the server: `timeout` seconds later. The request waits for
the answer, at most until LATE_ANSWER_SECONDS after the deadline. Then it is answered with `logged:
false`. The server may have kept the deadline and answer later, because fsync is slow. Its
impressions that have no feedback are then removed, before the next write of the model. So
`logged: false` is true, unless the connection or this process ends before: then they may stay.

At most once a second a model, a request is noted as a recent one with the write of its impression.
"""

import asyncio
import logging
from dataclasses import dataclass

from app.errors import OtherTenant, Overloaded, SolarError
from app.storage.batching import SMALL, Held, MemoryBudget, MicroBatcher
from app.storage.late_impressions import LateImpression
from app.storage.log import NewImpression, WrittenImpressions
from app.storage.store import Store

log = logging.getLogger("solar.serving")

#: Seconds after the deadline of a write until its answer is given up: it may be as much late.
LATE_ANSWER_SECONDS = 0.05
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
    sent: float = 0.0  # 0 while it waits for its turn
    given_up: bool = False  # its request was answered with `logged: false`

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
        self._batches = MicroBatcher(self._write, self._forget)
        self._late: dict[tuple[str, int], tuple[list[LateImpression], int]] = {}
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
        loop.call_later(self._timeout, self._stop_waiting, written, pending)
        return written

    def _hold(self, pending: PendingImpression) -> bool:
        pending.held = Held(self._memory)
        try:
            pending.held.keep(len(pending.shown))
        except Overloaded:
            return False
        return True

    def _stop_waiting(self, written: asyncio.Future[bool], pending: PendingImpression) -> None:
        """Drop an impression that has had no turn; wait for the answer to one that was sent."""
        if written.done():
            return
        if pending.sent:
            answered = pending.sent + self._timeout + LATE_ANSWER_SECONDS
            asyncio.get_running_loop().call_at(answered, _give_up, written, pending)
        else:
            _give_up(written, pending)
            pending.drop()

    async def _write(
        self, model: tuple[str, int], group: list[PendingImpression]
    ) -> list[bool | Exception]:
        sent = asyncio.get_running_loop().time()
        for one in group:
            one.sent = sent
        try:
            shown = [NewImpression(one.request, one.shown, one.tenant) for one in group]
            noted = len(group) - 1 if self._is_due(model) else None
            written = await self._store.log.store_impressions(
                *model, shown, self._seconds, noted, self._timeout
            )
            self._note_late(model, group, shown, written)
        except Exception as error:  # the requests are answered whatever the error
            if not isinstance(error, SolarError):
                log.exception("model %s: writing impressions failed", model[0])
            return [False] * len(group)
        finally:
            for one in group:
                one.drop()
        return [one or OtherTenant() for one in written.stored]

    def _note_late(
        self,
        model: tuple[str, int],
        group: list[PendingImpression],
        shown: list[NewImpression],
        written: WrittenImpressions,
    ) -> None:
        """Note the stored impressions of requests that were answered with `logged: false`."""
        each = zip(group, shown, written.new, strict=True)
        late = [LateImpression.of(content) for one, content, new in each if new and one.given_up]
        if late:
            self._late[model] = (late, written.expire)

    async def _forget(self, model: tuple[str, int]) -> None:
        """Remove the late impressions of the last write."""
        late = self._late.pop(model, None)
        if late is None:
            return
        try:
            await self._store.late_impressions.forget(*model, *late)
        except SolarError as error:
            log.warning("model %s: lists with logged: false stay in the store: %s", model[0], error)
        except Exception:  # the requests of the next write are answered whatever the error
            log.exception("model %s: removing impressions failed", model[0])

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
        pending.given_up = True
        written.set_result(False)
