"""The session of a learner as the leader of a model: read, apply, commit, until the lease ends.

A session starts from the committed state. It rebuilds a damaged state from a version and the log.
It ends with NewerFormat at data that a newer release wrote, and leaves that data unchanged.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from math import inf

from app.domain import codec
from app.domain.facts import Committed, Replaced
from app.domain.model import ModelState
from app.domain.records import Replace
from app.domain.reducer import Reducer, decoded
from app.errors import BadBlob, Fenced, Full, StoreError
from app.learning import replay
from app.learning.applying import DECODE_BATCH, apply_for, encoded, encoded_part
from app.learning.duel_upkeep import DuelUpkeep
from app.learning.fair_queue import FairQueue
from app.learning.history_rows import RowSchedule
from app.learning.options import LearnerOptions, ReportFact, ignore_fact
from app.learning.samples import SampleWriter
from app.learning.trace_watch import TraceWatch
from app.storage.keys import follower_address
from app.storage.log import LogEntry
from app.storage.states import LogPosition, NewVersion
from app.storage.store import Store

log = logging.getLogger("solar.learner")

#: Approximate bytes of one read; with 3 MB each record took 1.5 times as long.
READ_BYTES = 700_000
#: No hourly version is kept above this share of the store's memory; the next attempt is later.
HOURLY_SHARE, HOURLY_RETRY = 0.7, 60.0
#: Work of a pair from which on a state is encoded in a thread: with a full covariance of 447
#: features that takes a millisecond.
LARGE_PAIR_WORK = 200_000


class LeaderSession:
    """The state of a learner between taking and losing the lease."""

    def __init__(
        self,
        store: Store,
        model: str,
        fence: int,
        options: LearnerOptions,
        base: LogPosition,
        reducer: Reducer,
        report: ReportFact = ignore_fact,
        turns: FairQueue | None = None,
    ) -> None:
        self._report, self._turns = report, turns or FairQueue()
        self._store, self._model, self._fence, self._options = store, model, fence, options
        self._base, self._reducer = base, reducer
        self._trace = TraceWatch(model, reducer)
        self._history = RowSchedule(store, model, options, report)
        self._samples = SampleWriter(store, model, base[0], fence, reducer, options.clock)
        self._upkeep = DuelUpkeep(store, model, base[0], self._turns, options)
        self.position = base  # of the last acknowledged commit
        self._name = os.urandom(8).hex()
        self._learnt: list[LogEntry] = []  # the last record of each read since the last commit
        self._same_read = False  # whether the next record is of the same read as the last one
        self._queue: list[LogEntry] = []  # the rest of the last read
        self._bytes = 0  # of records since the last version
        self._record_bytes = READ_BYTES  # recent average; makes the first read a small one
        self._time = 0  # append time of the last record
        self._work = 0  # of all records up to it
        self._commit: asyncio.Task[None] | None = None  # under way
        self._took = 0.0
        self._committed = float("-inf")  # the first batch is committed at once
        self._part = 0  # committed pairs of the next record
        self._part_took = 0.0
        self._part_age = inf  # seconds since then; the first part is committed at once
        self._last_read = options.clock()  # of a record
        self._hour = options.wall_clock()  # time of the last hourly version
        self._hour_seq = base[1]

    @classmethod
    async def begin(
        cls,
        store: Store,
        model: str,
        fence: int,
        options: LearnerOptions,
        report: ReportFact = ignore_fact,
        turns: FairQueue | None = None,
    ) -> "LeaderSession":
        """Load the committed state; rebuild a damaged one and repair it in the store."""
        turns = turns or FairQueue()
        room = min(options.log_bytes, await store.servers.room_for_a_log(age=1.0))
        options = replace(options, log_bytes=room)
        base = await store.states.position(model)
        try:
            state = (await store.states.load(model)).state
        except BadBlob as error:
            log.warning("model %s: rebuilding the damaged committed state: %s", model, error)
        else:
            reducer = await turns.run(model, partial(Reducer, state))
            term = cls(store, model, fence, options, base, reducer, report, turns)
            versions = await store.states.versions(model) or [base[1]]
            length, size = await store.log.size(model)
            term._bytes = (base[1] - versions[-1]) * size // max(1, length)  # of earlier sessions
            await term._continue_hours(versions[0])
            if state.part is None:  # a commit of the state would drop it
                await term._keep_hourly()
            term._history.renew()
            term._upkeep.committed(state)
            return term
        reducer = await rebuilt(store, model, turns, options)
        term = cls(store, model, fence, options, base, reducer, report, turns)
        await term.commit(again=True)
        return term

    @property
    def idle(self) -> float:
        """Seconds without a record; 0 while there is something to apply, commit or append."""
        busy = self._queue or self._pending() or self._upkeep.is_due()
        return 0.0 if busy else self._options.clock() - self._last_read

    async def round(self, most_wait: float = inf) -> None:
        """Read new records, apply some of them, commit when a commit is due."""
        if self._commit is not None and self._commit.done():
            await self.commit_done()
        if not self._queue:
            self._queue = await self._store.log.read(
                self._model, self._reducer.seq, self._read_count(),
                min(self._read_timeout(), most_wait),
            )  # fmt: skip
        if self._queue:
            self._last_read = self._options.clock()
        else:
            await self.commit_done()
            await self._check_position()
            self._upkeep.look()
            await self._keep_hourly()  # also of a model that rests now
        waited_for = await self._apply_some() if self._queue else False
        if self._pending() and (waited_for or self._due()):
            await self.commit(version=self._version_due() or await self._hourly_version())
        elif self._until_part() <= 0.0:
            await self.commit_part()

    async def _check_position(self) -> None:
        """Check that the store still has the last commit (I12): a failover may lose it."""
        if await self._store.states.position(self._model) != self._base:
            raise Fenced(f"model {self._model}: the committed state has changed")

    def _read_count(self) -> int:
        return max(DECODE_BATCH, min(self._options.batch, READ_BYTES // self._record_bytes))

    async def _apply_some(self) -> bool:
        """Apply records for a turn; return whether a client waits for one of them."""
        if codec.is_newer(self._queue[0].record):
            await self._stop_at_newer(self._queue[0])
        if self._queue[0].replaces:
            await self._keep_version()
        turn = partial(
            apply_for, self._reducer, self._chunk(), self._turn_seconds(), self._options,
            self._trace.watch,
        )  # fmt: skip
        started = self._options.clock()
        applied = await self._turns.run(self._model, turn)
        self._part_age += self._options.clock() - started
        if not applied:  # a part of a record
            return False
        self._part, self._part_age = 0, 0.0
        done, self._queue = self._queue[:applied], self._queue[applied:]
        self._time, self._work = done[-1].time, done[-1].work
        self._note_learnt(done[-1])
        self._samples.note(done)
        for fact in self._trace.found():
            self._report(fact)
        self._report_replaced(done[0])
        size = sum(len(entry.record) for entry in done)
        self._bytes, self._record_bytes = self._bytes + size, max(1, size // applied)
        return any(entry.waited_for for entry in done)

    def _report_replaced(self, entry: LogEntry) -> None:
        if entry.replaces and isinstance(record := decoded(entry.record), Replace):
            self._report(Replaced(self._model, record.reason))

    def _note_learnt(self, entry: LogEntry) -> None:
        """Keep the last learnt record of this read."""
        if self._same_read and self._learnt:
            self._learnt.pop()
        self._learnt.append(entry)
        self._same_read = bool(self._queue)

    async def _stop_at_newer(self, entry: LogEntry) -> None:
        """Commit the records before one that a newer release wrote, then raise NewerFormat."""
        await self.commit()
        await self.commit_done()
        replay.refuse_newer_entry(entry)

    async def _keep_version(self) -> None:
        """Keep the model as a version before a record replaces it."""
        if self._reducer.seq not in await self._store.states.versions(self._model):
            record = decoded(self._queue[0].record)
            kind = record.kind if isinstance(record, Replace) else "replacement"
            await self.commit(version=NewVersion(f"before {kind}"), again=True)

    def _chunk(self) -> list[LogEntry]:
        """Return the next records that one commit may cover."""
        chunk = self._queue[: max(1, int(min(self._until_version(), self._room())))]
        ends = [
            at
            for at, entry in enumerate(chunk)
            if at and (entry.replaces or codec.is_newer(entry.record))
        ]
        return chunk[: ends[0]] if ends else chunk

    def _until_version(self) -> float:
        """Return the number of records until the next version."""
        return self._options.version - self._reducer.seq % self._options.version

    def _room(self) -> int:
        """Return how many more records the next commit may cover."""
        return self._options.batch - self._pending()

    async def commit(self, *, version: NewVersion | None = None, again: bool = False) -> None:
        """Commit the applied records; `version` keeps a version, `again` rewrites the state.

        A plain commit is under way when this returns, and the learner continues. The next commit
        waits for it, because each builds on the previous one.
        """
        await self.commit_done()
        if not self._pending() and not again:
            return
        state, fields = await self._encoded()
        sending = await self._sending(state, fields, version, again)
        records, self._learnt = self._pending(), []
        self._base = (self._base[0], state.seq, state.chain)
        self._commit = asyncio.create_task(self._send(sending, records, state))
        self._committed = self._options.clock()
        if version and version.hourly:
            self._hour, self._hour_seq = self._options.wall_clock(), state.seq
        elif version:
            self._bytes = 0
        if version or again:
            await self.commit_done()

    async def _sending(
        self, state: ModelState, fields: list[bytes], version: NewVersion | None, again: bool
    ) -> Callable[[], Awaitable[None]]:
        """Return the call that commits a state."""
        drop, trim, followers = await self._retention(version) if version else ([], 0, [])
        sending = partial(
            self._store.states.commit, self._model, self._base, self._fence, state, fields=fields,
            version=version, drop=drop, trim=trim, again=again, learnt=self._learnt,
            work=self._work, rows=self._history.rows(state), followers=followers,
        )  # fmt: skip
        return self._samples.after(state.seq, sending)

    async def _encoded(self) -> tuple[ModelState, list[bytes]]:
        """Return the state and its stored fields; a thread encodes a large one."""
        work = partial(encoded, self._reducer, self._time, self._name)
        return await self._turns.run(self._model, work) if self._is_large() else work()

    async def commit_part(self) -> None:
        """Commit the learnt part of a record, if it has grown and all records before it are in."""
        await self.commit_done()
        learnt = self._reducer.learnt_pairs
        if learnt <= self._part or self._pending():
            return
        blob = await self._turns.run(self._model, partial(encoded_part, self._reducer))
        send = partial(
            self._store.states.commit_part, self._model, self._base, self._fence, blob
        )  # fmt: skip
        with suppress(Full):  # the record is learnt all the same
            self._part_took = await self._timed(send)
        self._part, self._part_age = learnt, 0.0

    async def _send(
        self, sending: Callable[[], Awaitable[object]], records: int, state: ModelState
    ) -> None:
        self._took = await self._timed(sending)
        self.position = (self.position[0], state.seq, state.chain)
        self._committed = self._options.clock()
        self._upkeep.committed(state)
        self._report(Committed(self._model, records, self._took))

    async def _timed(self, sending: Callable[[], Awaitable[object]]) -> float:
        """Write a state; return the seconds. The large ones of a process go one at a time."""
        started = self._options.clock()
        async with (
            self._turns.large_writes.hold(self._model) if self._is_large() else nullcontext()
        ):
            await sending()
        return self._options.clock() - started

    def _is_large(self) -> bool:
        return self._reducer.pair_work >= LARGE_PAIR_WORK

    async def commit_done(self) -> None:
        """Wait for the commit that is under way; raise its error."""
        if self._commit is not None:
            sent, self._commit = self._commit, None
            await sent

    def tasks_under_way(self) -> list[asyncio.Task[None]]:
        """Return the tasks of a commit, of samples after it and of the history's budget."""
        commit = [] if self._commit is None else [self._commit]
        beside = [*self._history.tasks(), *self._upkeep.tasks()]
        return [*commit, *self._samples.writes_under_way(), *beside]

    async def _retention(self, version: NewVersion) -> tuple[list[int], int, list[str]]:
        """Return what to drop when one more version is kept.

        These are versions, and the log up to a seq, if its followers are those that are returned.
        """
        if version.hourly:
            hourly = await self._store.versions.hourly(self._model)
            return hourly[: max(0, len(hourly) + 1 - self._options.versions)], 0, []
        room = min(self._options.log_bytes, await self._store.servers.room_for_a_log())
        self._options = replace(self._options, log_bytes=room)
        versions = await self._store.states.versions(self._model)
        length, size = await self._store.log.size(self._model)
        first_kept = max(0, len(versions) + 1 - self._options.versions)
        tail = self._reducer.seq + len(self._queue)
        fits = tail - room * max(1, length) // max(1, size)  # the log after it is within its limit
        while first_kept < len(versions) and versions[first_kept] < fits:
            first_kept += 1
        drop, kept = versions[:first_kept], [*versions[first_kept:], self._reducer.seq]
        # The leader's own backlog stalls no follower. The log grows until the next version.
        by_records = self._reducer.seq + self._options.version - self._options.log_records
        learnt = max(by_records, fits - len(self._queue))
        return drop, kept[0] if drop else 0, await self._shortened_followers(learnt)

    async def _shortened_followers(self, fits: int) -> list[str]:
        """Let followers drop versions for which the log would be too large; return all of them."""
        found = await self._store.followers.of(self._model)
        for name in [one for one, stalled in found.items() if not stalled]:
            address = follower_address(self._model, name)
            if (await self._store.states.versions(address) or [fits])[0] < fits:
                await self._store.followers.shorten(address, fits, self._base)
        return [*found]

    def _pending(self) -> int:
        return self._reducer.seq - self._base[1]

    def _interval(self) -> float:
        return max(self._options.commit, self._options.commit_share * self._took)

    def _until_part(self) -> float:
        """Return the seconds until a part is to be committed; infinite if no record is cut."""
        if not self._reducer.learnt_pairs or self._pending():
            return inf
        wait = max(self._options.part, self._options.part_share * self._part_took)
        return wait - self._part_age

    def _turn_seconds(self) -> float:
        """Return the seconds of the next turn: at most until the next commit is due."""
        left = self._until_part()
        if left == inf:
            left = self._committed + self._interval() - self._options.clock()
        return min(self._options.slice, max(0.0, left))

    def _read_timeout(self) -> float:
        """Return the seconds to wait for records: until the next commit is due."""
        if self._pending():
            due = self._committed + self._interval() - self._options.clock()
            return min(self._options.idle, max(0.001, due))
        return self._options.idle

    def _version_due(self) -> NewVersion | None:
        """Return the version that is to be kept with the next commit."""
        if self._reducer.seq % self._options.version == 0:
            return NewVersion("interval")
        if self._bytes * self._options.versions >= self._options.log_bytes:
            return NewVersion("log size")
        return None

    async def _hourly_version(self) -> NewVersion | None:
        """Return a version to keep after an hour with new records, if the store has room for it."""
        now, hour = self._options.wall_clock(), self._options.hour
        if (
            self._reducer.seq <= self._hour_seq or abs(now - self._hour) < hour
        ):  # clocks may go back
            return None
        if await self._store.servers.memory_share() <= HOURLY_SHARE:
            return NewVersion("hour", hourly=True)
        self._hour = now - hour + HOURLY_RETRY
        return None

    async def _keep_hourly(self) -> None:
        """Keep the committed state as an hourly version, if one is due."""
        if hourly := await self._hourly_version():
            await self.commit(version=hourly, again=True)

    async def _continue_hours(self, oldest: int) -> None:
        """Continue the hours of earlier sessions."""
        last = await self._store.versions.last_hourly(self._model, oldest)
        self._hour_seq = last.seq
        self._hour = -inf if last.time is None else last.time / 1000  # a version from before: due

    def _due(self) -> bool:
        return (
            self._pending() >= self._options.batch
            or self._version_due() is not None
            or self._options.clock() >= self._committed + self._interval()
        )


async def rebuilt(store: Store, model: str, turns: FairQueue, options: LearnerOptions) -> Reducer:
    """Rebuild the committed state from the newest undamaged version and the log.

    NewerFormat if a newer release wrote one of them: that release can rebuild it.
    """
    seq, chain = await store.states.claimed(model)
    placed = await store.versions.placed(model)
    for version, key in sorted(((one.seq, one.key) for one in placed), reverse=True):
        try:
            state = (await store.states.load_at(model, key)).state
        except BadBlob as error:
            log.warning("model %s: version %d is damaged: %s", model, version, error)
            continue
        reducer = await turns.run(model, partial(Reducer, state))
        async for batch in replay.batches(store, model, state.seq, seq):
            left = batch
            while left:
                work = partial(apply_for, reducer, left, options.slice, options)
                left = left[await turns.run(model, work) :]
        if reducer.chain == chain:
            return reducer
        log.warning("model %s: version %d and the log give another state", model, version)
    raise StoreError("the committed state is damaged, and no kept version rebuilds it")
