"""The session of a learner with a follower: as with a model, but behind its leader.

A follower learns up to the committed state of its leader, and keeps its versions where the leader
has some. So its chain is the leader's wherever they meet, and each commit compares the two. One
that has other records goes back to a version that the log continues; without one it is stalled.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

from app.domain.followers import MOST_BEHIND
from app.domain.model import ModelState
from app.domain.reducer import Reducer
from app.errors import BadBlob, NoSuchModel, RolledBack, Stalled
from app.learning import replay
from app.learning.fair_queue import FairQueue
from app.learning.options import LearnerOptions, ReportFact, ignore_fact
from app.learning.session import LeaderSession
from app.storage.followers import LeaderProgress
from app.storage.keys import leader_of
from app.storage.log import LogEntry
from app.storage.states import LogPosition, NewVersion
from app.storage.store import Store

log = logging.getLogger("solar.learner")

#: Records after which a follower commits before its interval ends. The interval alone would keep a
#: follower out of duels from 1,000 records a second on, however fast it learns.
EARLY_COMMIT = MOST_BEHIND // 4


class FollowerSession(LeaderSession):
    """The state of a learner between taking and losing the lease of a follower."""

    _leader: LeaderProgress
    _versions: list[int]
    _waited: tuple[int, float]  # the leader's seq at the begin of the last wait, and its time

    @classmethod
    async def begin(
        cls,
        store: Store,
        model: str,
        fence: int,
        options: LearnerOptions,
        report: ReportFact = ignore_fact,
        turns: FairQueue | None = None,
    ) -> "FollowerSession":
        """Load the committed state; first go back from one that is damaged or of other records."""
        turns = turns or FairQueue()
        base = await store.states.position(model)
        leader = await store.followers.progress(leader_of(model))
        state = await _loaded(store, model, leader)
        if state is None:
            base = await go_back(store, model, fence, base)
            state = (await store.states.load(model)).state
        reducer = await turns.run(model, partial(Reducer, state, follows=True))
        options = replace(options, slice=min(options.slice, options.follower_slice))
        session = cls(store, model, fence, options, base, reducer, report, turns)
        reducer.noted = None  # a follower has no samples
        session._leader, session._versions = leader, await store.states.versions(model)
        session._waited = leader.seq, options.clock()
        return session

    async def round(self, most_wait: float = inf) -> None:
        """Read records that the leader has learnt, apply some of them, commit when it is due."""
        if self._commit is not None and self._commit.done():
            await self.commit_done()
        if not self._queue:
            await self._read()
        if self._queue:
            self._last_read = self._options.clock()
        if self._queue and not self._version_due():  # its leader may have kept one meanwhile
            await self._apply_some()
        if self._due():
            await self.commit(version=self._version_due(), again=not self._pending())
        elif self._until_part() <= 0.0:
            await self.commit_part()
        elif self._reducer.seq >= self._leader.seq:
            seconds = min(self._read_timeout(), most_wait)
            self._waited = self._leader.seq, self._options.clock()
            await asyncio.sleep(seconds)

    async def _read(self) -> None:
        """Look at the leader, and read the next records that it has learnt."""
        self._leader = await self._store.followers.progress(leader_of(self._model))
        left = self._leader.seq - self._reducer.seq
        if left > 0:
            count = min(self._read_count(), left)
            self._queue = await self._store.log.read(self._model, self._reducer.seq, count)
        elif not self._pending():
            await self.commit_done()
            await self._check_position()

    async def _sending(
        self, state: ModelState, fields: list[bytes], version: NewVersion | None, again: bool
    ) -> Callable[[], Awaitable[None]]:
        drop = []
        if version:
            drop = [seq for seq in self._versions if seq not in self._leader.versions]
            drop = [seq for seq in drop if seq < state.seq]
            self._versions = [*(set(self._versions) - {*drop}), state.seq]
        return partial(
            self._store.followers.commit, self._model, self._base, self._fence, state,
            fields=fields, reason=version.reason if version else "", drop=drop, again=again,
            learnt=self._learnt,
        )  # fmt: skip

    async def commit_done(self) -> None:
        """Wait for the commit that is under way; go back if it shows other records."""
        try:
            await super().commit_done()
        except RolledBack:
            await go_back(self._store, self._model, self._fence, self.position)
            raise

    async def _keep_version(self) -> None:
        """Do nothing: the leader's version before a replacement is one of its versions."""

    def _report_replaced(self, entry: LogEntry) -> None:
        """Do nothing: the leader reports its replacements."""

    def _until_version(self) -> float:
        later = [seq for seq in self._leader.versions if seq > self._reducer.seq]
        return later[0] - self._reducer.seq if later else inf

    def _room(self) -> int:
        return self._options.batch

    def _version_due(self) -> NewVersion | None:
        seq = self._reducer.seq
        due = seq in self._leader.versions and seq not in self._versions
        return NewVersion("interval") if due else None

    def _due(self) -> bool:
        if self._version_due():
            return True
        ends = self._committed + self._interval()
        return self._pending() > 0 and self._options.clock() >= ends

    def _interval(self) -> float:
        least = super()._interval()
        return least if self._pending() >= EARLY_COMMIT else max(self._options.follow, least)

    def _read_timeout(self) -> float:
        """Return the seconds until the next look at the leader, or the next commit."""
        wait = min(self._options.follow, self._until_early())
        if not self._pending():
            return wait
        due = self._committed + self._interval() - self._options.clock()
        return min(wait, max(0.001, due))

    def _until_early(self) -> float:
        """Return the seconds until an early commit, if records arrive as since the last wait."""
        (before, at), now = self._waited, self._options.clock()
        arrived, missing = self._leader.seq - before, EARLY_COMMIT - self._pending()
        return max(self._options.commit, (now - at) * missing / arrived) if arrived > 0 else inf


async def _loaded(store: Store, model: str, leader: LeaderProgress) -> ModelState | None:
    """Return the committed state; None if it is damaged, or of other records than the leader's."""
    try:
        state = (await store.states.load(model)).state
    except BadBlob as error:
        log.warning("model %s: the committed state is damaged: %s", model, error)
        return None
    is_ahead = state.seq > leader.seq
    if is_ahead or (state.seq == leader.seq and state.chain != leader.position[2]):
        log.warning("model %s: its leader has other records up to %d", model, state.seq)
        return None
    return state


async def go_back(store: Store, model: str, fence: int, base: LogPosition) -> LogPosition:
    """Commit the newest version from which the log leads to the leader's state; return where it is.

    Without such a version the follower is stalled: Stalled.
    """
    leader = await store.followers.progress(leader_of(model))
    versions = await store.states.versions(model)
    for at, seq in reversed([*enumerate(versions)]):
        with suppress(BadBlob, NoSuchModel):
            state = (await store.states.version(model, seq)).state
            if await replay.leads_to(store, model, state, leader.position):
                drop = versions[at + 1 :]
                await store.followers.commit(model, base, fence, state, drop=drop, again=True)
                log.warning("model %s: it goes on from its version %d", model, seq)
                return base[0], state.seq, state.chain
    await store.followers.stall(model)
    raise Stalled(f"model {model}: no version of it leads to its leader; it is stalled")
