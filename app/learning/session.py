"""A learner's time as the leader of a model: read, apply, commit, until the lease is given up.

It starts from the committed state; a damaged one is rebuilt from a version and the log.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TypeAlias

from app.domain.facts import Committed, LeaseLost, LogRolledBack, Replaced
from app.domain.model import ModelState
from app.domain.records import Replace
from app.domain.reducer import Reducer, decoded, sound
from app.errors import BadBlob, Fenced, StoreError
from app.learning.replay import batches
from app.storage.log import LogEntry
from app.storage.states import LogPosition
from app.storage.store import Store

log = logging.getLogger("solar.learner")

#: Decoding some records, then learning them, keeps the code of each in the CPU's caches: with one
#: by one in turns a record of SOLAR-I takes a fifth more.
DECODED_TOGETHER = 16
#: Records are read about so many bytes at a time; 3 MB took half as long again for each record.
READ_BYTES = 700_000


@dataclass(frozen=True, slots=True)
class LearnerOptions:
    """How often a learner does what; seconds and records."""

    lease: float = 5.0
    batch: int = 256
    commit: float = 0.030
    commit_share: float = 3.0  # at least so many times the last commit's duration between two
    idle: float = 0.5
    version: int = 10_000  # records between two versions,
    versions: int = 10  # of which so many are kept,
    log_bytes: int = 1 << 30  # unless the log is larger than this
    discover: float = 0.25
    ask: float = 0.4  # at least so often for a lease that another holds
    clock: Callable[[], float] = monotonic


Fact: TypeAlias = Committed | Replaced | LogRolledBack | LeaseLost
Tell: TypeAlias = Callable[[Fact], None]


def ignore_fact(_: Fact) -> None:
    """For a learner whose facts are not counted."""


class LeaderSession:
    """What a learner knows between taking the lease and losing it."""

    def __init__(
        self,
        store: Store,
        model: str,
        fence: int,
        options: LearnerOptions,
        base: LogPosition,
        state: ModelState,
        tell: Tell = ignore_fact,
    ) -> None:
        self._tell = tell
        self._store, self._model, self._fence, self._options = store, model, fence, options
        self._base, self._reducer = base, Reducer(state)
        self.place = base  # of what is known to be committed
        self._name = os.urandom(8).hex()
        self._learnt: list[LogEntry] = []  # the last record of each reading, since the last commit
        self._queue: list[LogEntry] = []
        self._bytes = 0  # read since the last version
        self._record_bytes = READ_BYTES  # of late, on average; the first reading is a small one
        self._time = 0  # when the last record was appended
        self._commit: asyncio.Task[None] | None = None  # on its way
        self._took = 0.0
        self._committed = float("-inf")  # the first batch is committed at once

    @classmethod
    async def begin(
        cls, store: Store, model: str, fence: int, options: LearnerOptions, tell: Tell = ignore_fact
    ) -> "LeaderSession":
        """Take the committed state; one that is damaged is rebuilt, and mended in the store."""
        room = min(options.log_bytes, await store.servers.room_for_a_log())
        options = replace(options, log_bytes=room)
        base = await store.states.position(model)
        try:
            state = (await store.states.load(model)).state
            return cls(store, model, fence, options, base, state, tell)
        except BadBlob as error:
            log.warning("model %s: the committed state is damaged: %s", model, error)
        term = cls(store, model, fence, options, base, await rebuilt(store, model), tell)
        await term.commit(again=True)
        return term

    async def round(self) -> None:
        """Read what has come, fold some of it, commit when it is time."""
        if self._commit is not None and self._commit.done():
            await self.arrived()
        if not self._queue:
            self._queue = await self._store.log.read(
                self._model, self._reducer.seq, self._read_count(), self._patience()
            )
        if not self._queue:
            await self.arrived()
            await self._check_place()
        waited_for = await self._apply_some() if self._queue else False
        if self._pending() and (waited_for or self._due()):
            await self.commit(version=self._version_due())

    async def _check_place(self) -> None:
        """Nothing to read: is the store still where we left it (I12)? A failover may go back."""
        place = await self._store.states.position(self._model)
        if place != self._base:
            raise Fenced(f"model {self._model}: the committed state is not ours any more")

    def _read_count(self) -> int:
        return max(DECODED_TOGETHER, min(self._options.batch, READ_BYTES // self._record_bytes))

    async def _apply_some(self) -> bool:
        """Fold records until one that must wait, or until it is time to commit."""
        if self._queue[0].replaces:
            await self._keep_version()
        chunk = self._chunk()
        left = max(0.0, self._committed + self._interval() - self._options.clock())
        folded = await asyncio.to_thread(apply_for, self._reducer, chunk, left, self._options.clock)
        done, self._queue = self._queue[:folded], self._queue[folded:]
        self._time = done[-1].time
        self._learnt.append(done[-1])
        if done[0].replaces and isinstance(record := decoded(done[0].record), Replace):
            self._tell(Replaced(self._model, record.reason))
        size = sum(len(entry.record) for entry in done)
        self._bytes, self._record_bytes = self._bytes + size, max(1, size // folded)
        return any(entry.waited_for for entry in done)

    async def _keep_version(self) -> None:
        """What is about to be replaced can be had again."""
        if self._reducer.seq not in await self._store.states.versions(self._model):
            await self.commit(version=True, again=True)

    def _chunk(self) -> list[LogEntry]:
        """The next records, as far as one commit may reach."""
        until_version = self._options.version - self._reducer.seq % self._options.version
        chunk = self._queue[: max(1, min(until_version, self._options.batch - self._pending()))]
        ends = [at for at, entry in enumerate(chunk) if at and entry.replaces]
        return chunk[: ends[0]] if ends else chunk

    async def commit(self, *, version: bool = False, again: bool = False) -> None:
        """Commit what was folded (with `again` even if that is nothing new), maybe as a version.

        A plain commit is on its way when this returns, and folding goes on meanwhile; the next one
        waits for it, as each builds on the one before.
        """
        await self.arrived()
        if not self._pending() and not again:
            return
        state = self._reducer.state()
        complaints = sound(state)
        if complaints:
            raise StoreError(f"at record {state.seq}: {'; '.join(complaints)}")
        drop, trim = await self._retention() if version else ([], 0)
        sending = partial(
            self._store.states.commit, self._model, self._base, self._fence, state,
            version=version, drop=drop, trim=trim, again=again, time=self._time, term=self._name,
            learnt=self._learnt,
        )  # fmt: skip
        records, self._learnt = self._pending(), []
        self._base = (self._base[0], state.seq, state.chain)
        self._commit = asyncio.create_task(self._send(sending, records, self._base))
        self._committed = self._options.clock()
        if version or again:
            self._bytes = 0 if version else self._bytes
            await self.arrived()

    async def _send(
        self, sending: Callable[[], Awaitable[None]], records: int, place: LogPosition
    ) -> None:
        started = self._options.clock()
        await sending()
        self.place = place
        self._committed = self._options.clock()
        self._took = self._committed - started
        self._tell(Committed(self._model, records, self._took))

    async def arrived(self) -> None:
        """Wait for the commit that is on its way; raises what became of it."""
        if self._commit is not None:
            sent, self._commit = self._commit, None
            await sent

    def on_its_way(self) -> list[asyncio.Task[None]]:
        """The commit that nobody will wait for any more."""
        return [] if self._commit is None else [self._commit]

    async def _retention(self) -> tuple[list[int], int]:
        """Which versions go when one more is kept, and how far the log may be trimmed."""
        room = min(self._options.log_bytes, await self._store.servers.room_for_a_log())
        self._options = replace(self._options, log_bytes=room)
        versions = await self._store.states.versions(self._model)
        length, size = await self._store.log.size(self._model)
        first_kept = max(0, len(versions) + 1 - self._options.versions)
        tail = self._reducer.seq + len(self._queue)
        while first_kept < len(versions) and (
            (tail - versions[first_kept]) * size > self._options.log_bytes * max(1, length)
        ):
            first_kept += 1
        drop, kept = versions[:first_kept], [*versions[first_kept:], self._reducer.seq]
        return drop, kept[0] if drop else 0

    def _pending(self) -> int:
        return self._reducer.seq - self._base[1]

    def _interval(self) -> float:
        return max(self._options.commit, self._options.commit_share * self._took)

    def _patience(self) -> float:
        """How long to wait for records: until the commit that is due."""
        if self._pending():
            due = self._committed + self._interval() - self._options.clock()
            return min(self._options.idle, max(0.001, due))
        return self._options.idle

    def _version_due(self) -> bool:
        many = self._reducer.seq % self._options.version == 0
        return many or self._bytes * self._options.versions >= self._options.log_bytes

    def _due(self) -> bool:
        return (
            self._pending() >= self._options.batch
            or self._version_due()
            or self._options.clock() >= self._committed + self._interval()
        )


def apply_for(
    reducer: Reducer,
    entries: Sequence[LogEntry],
    seconds: float,
    clock: Callable[[], float] = monotonic,
) -> int:
    """Apply records (at least one) for about so long; how many. The log must be dense (I2)."""
    ends, first = clock() + seconds, reducer.seq
    for at in range(0, len(entries), DECODED_TOGETHER):
        some = entries[at : at + DECODED_TOGETHER]
        for entry, record in zip(some, [decoded(entry.record) for entry in some], strict=True):
            if entry.seq != reducer.seq + 1:
                raise StoreError(f"the log has a gap: expected {reducer.seq + 1}, got {entry.seq}")
            reducer.apply_decoded(entry.record, record)
            if clock() >= ends:
                return reducer.seq - first
    return reducer.seq - first


async def rebuilt(store: Store, model: str) -> ModelState:
    """The committed state, from the newest good version and the log."""
    seq, chain = await store.states.claimed(model)
    for version in reversed(await store.states.versions(model)):
        try:
            state = (await store.states.version(model, version)).state
        except BadBlob as error:
            log.warning("model %s: version %d is damaged: %s", model, version, error)
            continue
        reducer = Reducer(state)
        async for batch in batches(store, model, state.seq, seq):
            await asyncio.to_thread(apply_for, reducer, batch, float("inf"))
        if reducer.chain == chain:
            return reducer.state()
        log.warning("model %s: version %d and the log lead elsewhere", model, version)
    raise StoreError("the state is damaged, and no version leads to it")
