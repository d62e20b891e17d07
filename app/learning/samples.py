"""Samples of what is learnt, for those who watch a model (`GET /models/{name}/stream`).

The reducer notes a few records of each turn. After a commit that finds the model watched, a task
writes some of them to the store, with the ids of the documents if the impression is still there.
Nothing waits for that task, and its errors are ignored: learning never depends on it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from app.domain.impressions import Impression
from app.domain.learnt import MOST_NOTED, LearntPair, LearntRecord
from app.domain.names import tenant_of_source
from app.domain.reducer import Reducer
from app.errors import Unreadable
from app.storage.log import LogEntry
from app.storage.samples import NewSample
from app.storage.store import Store

log = logging.getLogger("solar.learner")

#: Samples at once, and a second after that: at most 20 in any second.
SAMPLE_BURST, SAMPLE_RATE = 10, 10.0
#: Bytes of impressions that are read a second for the ids of their documents.
IMPRESSION_BYTES = 4_000_000
#: The most document ids of a sample: the first ones shown.
MOST_IDS = 50


class TokenBucket:
    """A rate limit: up to `burst` at once, then `rate` a second.

    >>> now = iter([0.0, 0.0, 0.5])
    >>> bucket = TokenBucket(2, 10.0, lambda: next(now))
    >>> bucket.available(), bucket.take(2), bucket.available()
    (2, None, 2)
    """

    def __init__(self, burst: float, rate: float, clock: Callable[[], float]) -> None:
        self._burst, self._rate, self._clock = burst, rate, clock
        self._tokens, self._at = burst, clock()

    def available(self) -> int:
        """Return the tokens that may be taken now."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + self._rate * max(0.0, now - self._at))
        self._at = now
        return max(0, int(self._tokens))

    def take(self, count: int) -> None:
        """Take tokens, also more than are available."""
        self._tokens -= count


class NotedRecord(NamedTuple):
    """A learnt record that may become a sample."""

    seq: int
    time: int
    request: str
    learnt: LearntRecord


class SampleWriter:
    """The samples of one session of a learner."""

    def __init__(
        self,
        store: Store,
        model: str,
        epoch: int,
        fence: int,
        reducer: Reducer,
        clock: Callable[[], float],
    ) -> None:
        self._store, self._model, self._epoch, self._fence = store, model, epoch, fence
        self._learnt: dict[int, LearntRecord] = {}  # by seq
        reducer.noted = self._learnt
        self._noted = deque[NotedRecord](maxlen=MOST_NOTED)  # since the last commit
        self._shown = reducer.seq  # the last record that is a sample, or was learnt unwatched
        self._samples = TokenBucket(SAMPLE_BURST, SAMPLE_RATE, clock)
        self._bytes = TokenBucket(IMPRESSION_BYTES, IMPRESSION_BYTES, clock)
        self._writing: asyncio.Task[None] | None = None

    def note(self, applied: Sequence[LogEntry]) -> None:
        """Take over what the reducer has noted of the records of a turn."""
        for seq, learnt in self._learnt.items():
            entry = applied[seq - applied[0].seq]  # the log is dense (I2)
            self._noted.append(NotedRecord(seq, entry.time, entry.request, learnt))
        self._learnt.clear()

    def after(
        self, seq: int, commit: Callable[[], Awaitable[bool]]
    ) -> Callable[[], Awaitable[None]]:
        """Return a commit up to `seq` that is followed by samples, if somebody watches."""
        noted = [*self._noted]
        self._noted.clear()
        return partial(self._commit, commit, noted, seq)

    def writes_under_way(self) -> list[asyncio.Task[None]]:
        """Return the task that writes samples, if any."""
        return [] if self._writing is None else [self._writing]

    async def _commit(
        self, commit: Callable[[], Awaitable[bool]], noted: list[NotedRecord], seq: int
    ) -> None:
        if not await commit():
            self._shown = seq
            return
        if self._writing is not None and not self._writing.done():
            return
        if self._store.history_budget.is_full():  # 1,000 samples have up to 25 MB
            return
        chosen = noted[max(0, len(noted) - self._samples.available()) :]
        if chosen:
            self._samples.take(len(chosen))
            self._writing = asyncio.create_task(self._write(chosen))

    async def _write(self, chosen: Sequence[NotedRecord]) -> None:
        """Write samples; ignore errors, because the records are learnt all the same."""
        try:
            ids, samples = await self._document_ids(chosen), []
            before = [self._shown, *(one.seq for one in chosen)]
            for one, last in zip(chosen, before, strict=False):
                content = described(one, ids.get(one.request), one.seq - last - 1)
                tenant = tenant_of_source(one.learnt.source)
                samples.append(NewSample(one.seq, msgspec.json.encode(content), tenant))
            await self._store.samples.write(self._model, self._epoch, self._fence, samples)
            self._shown = before[-1]
        except Exception:  # whatever it is, it must not end the learner
            log.debug("model %s: samples were not written", self._model, exc_info=True)

    async def _document_ids(self, chosen: Sequence[NotedRecord]) -> dict[str, list[str]]:
        """Return the first ids of the documents shown, by request, if they are still remembered."""
        requests = [*dict.fromkeys(one.request for one in chosen if one.request)]
        found = await self._store.log.load_small_impressions(
            self._model, self._epoch, requests, self._bytes.available()
        )
        ids: dict[str, list[str]] = {}
        for request, stored in zip(requests, found, strict=True):
            if stored is None or isinstance(stored, int):  # expired, or too large
                continue
            self._bytes.take(len(stored.shown))
            try:
                ids[request] = [*Impression.load(stored.shown).ids[:MOST_IDS]]
            except Unreadable:
                continue
        return ids


def described(noted: NotedRecord, ids: list[str] | None, skipped: int) -> dict[str, Any]:
    """Return a sample for JSON; `skipped` records before it are learnt and no samples."""
    learnt = noted.learnt
    pairs, more = learnt.first_pairs()
    return {
        "seq": noted.seq,
        "time": noted.time,
        "kind": learnt.kind,
        "accepted": learnt.accepted,
        "query": learnt.query,
        "request": noted.request,
        "reason": learnt.reason,
        "documents": learnt.documents,
        "ids": ids,
        "clicked": learnt.clicked,
        "pairs": [*map(_pair, pairs)],
        "more_pairs": more,
        "skipped": skipped,
    }


def _pair(pair: LearntPair) -> dict[str, Any]:
    """Describe a pair. Its margin is known if it had a loss."""
    return {
        "preferred": pair.preferred,
        "other": pair.other,
        "weight": pair.weight,
        "margin": 1.0 - pair.loss if pair.loss > 0.0 else None,
        "outcome": pair.outcome,
    }
