"""What a leader does for its duels beside learning: the steps of a tournament, and old versions.

A step is a record with an internal event id, so it is in the log once, whichever learner appends
it. A version is kept for a duel before the record of the duel is appended. So it is dropped only
if it was not kept again between two looks, and no duel has it after all records that were in the
log at the second one. A version whose duel was never begun is dropped, too.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from time import time

from app.domain import codec, duels
from app.domain.duels import DuelState
from app.domain.model import Model, ModelState
from app.domain.model_config import ModelConfig
from app.errors import Fenced, SolarError
from app.learning.fair_queue import FairQueue
from app.learning.folding import FollowerFold
from app.learning.options import LearnerOptions
from app.learning.promotion import FoldRecords, promote
from app.storage.keys import follower_address, internal_event, is_follower
from app.storage.log import NewRecord
from app.storage.store import Store

log = logging.getLogger("solar.learner")


@asynccontextmanager
async def fold_in_turns(turns: FairQueue, address: str, model: Model) -> AsyncIterator[FoldRecords]:
    """Fold the records of a promotion in the threads of a learner."""
    fold = await turns.run(address, partial(FollowerFold, model))

    async def further(records: Sequence[bytes], leader: ModelConfig, reason: str) -> bytes:
        return await turns.run(address, partial(fold.replacement, records, leader, reason))

    yield further


class DuelUpkeep:
    """The upkeep of the duels of a model during one session of its learner."""

    def __init__(
        self, store: Store, model: str, epoch: int, turns: FairQueue, options: LearnerOptions
    ) -> None:
        self._store, self._model, self._epoch = store, model, epoch
        self._turns, self._options = turns, options
        self._begun, self._next_step, self._next_drop = options.clock(), -inf, -inf
        self._duel: DuelState | None = None  # committed, with the seq of its state
        self._seq, self._chain = 0, b""
        self._unused = dict[int, bytes]()  # versions at the last look, and when they were kept
        self._settled = dict[int, bytes]()  # those of them that were the same at the look before
        self._tail = 0  # the log's end at the last look
        self._working: asyncio.Task[None] | None = None

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the task that is under way, if any."""
        return [one for one in (self._working,) if one is not None and not one.done()]

    def is_due(self) -> bool:
        """Whether a step of a tournament is still to be appended."""
        return duels.next_step(self._duel, ()) is not None

    def committed(self, state: ModelState) -> None:
        """Take over the duel of a committed state, and do what is due."""
        self._duel, self._seq, self._chain = state.duel, state.seq, state.chain
        self.look()

    def look(self) -> None:
        """Do what is due, in a task of its own."""
        now, duel = self._options.clock(), self._duel
        if self.tasks() or is_follower(self._model):
            return
        if duel and duel.is_on and duel.settings.tournament and now >= self._next_step:
            self._next_step = now + self._options.duel_step
            step = partial(self._step, duel, self._chain)
            self._working = asyncio.create_task(self._tried(step))
        elif self._drop_is_due(now):
            self._next_drop = now + self._options.duel_versions
            drop = partial(self._drop_versions, duel, self._seq)
            self._working = asyncio.create_task(self._tried(drop))

    def _drop_is_due(self, now: float) -> bool:
        """Whether to look at the versions; without a duel a short session reads nothing."""
        first = -inf if self._duel else self._begun + self._options.duel_versions
        return now >= max(first, self._next_drop)

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it; log an error, and try again at a later look."""
        try:
            await work()
        except SolarError as error:
            log.warning("model %s: the duel is not kept up: %s", self._model, error)

    async def _step(self, duel: DuelState, chain: bytes) -> None:
        """Append the next step of a tournament, if there is one.

        It holds for the state with this chain: a failover may lose lists that were counted.
        """
        tournament, there = duel.tournament(), await self._store.followers.of(self._model)
        if tournament is None:
            return
        absent = {one for one in tournament.followers if there.get(one, True)}
        step = duels.next_step(duel, absent)
        event = internal_event("tournament", f"{tournament.id}-{tournament.step}")
        if isinstance(step, duels.Promotion):
            address = follower_address(self._model, step.follower)
            begin = partial(fold_in_turns, self._turns, address)
            await promote(self._store, self._model, step.follower, begin, event, duel)
        elif step is not None:
            record = NewRecord(event, b"", codec.dump_record(step))
            now = int(time() * 1000)
            with suppress(Fenced):  # committed meanwhile, or lost: it is judged again
                await self._store.log.append(
                    self._model, self._epoch, [record], limit=1 << 40, time=now, chain=chain
                )

    async def _drop_versions(self, duel: DuelState | None, seq: int) -> None:
        """Drop versions that no duel has, and that no record in the log can give a duel."""
        if seq < self._tail:
            return
        unused = await self._store.versions.kept_for_duels(self._model)
        if duel and duel.is_on and duel.settings.version is not None:
            unused.pop(duel.settings.version, None)
        for one, kept in sorted(unused.items()):
            if self._settled.get(one) == kept:
                await self._store.versions.drop_dueling(self._model, self._epoch, one, kept)
        self._settled = dict(unused.items() & self._unused.items())
        self._unused, self._tail = unused, await self._store.log.tail(self._model)
