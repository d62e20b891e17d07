"""The learner of a model: read records, apply them, commit. A process runs many learners.

Correctness rests on the commit's compare-and-set of (seq, chain); the lease only avoids wasted
work. When a learner fails, the next one continues from the committed state. Records are applied in
a thread whose kernels release the GIL, so the event loop stays free.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from math import inf

import numpy as np

from app.domain import codec
from app.domain.facts import LeaseLost, LogRolledBack, NewerFormatFound
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.errors import Fenced, NewerFormat, NoSuchModel, RolledBack, SolarError, Unavailable
from app.learning.fair_queue import FairQueue
from app.learning.follower_session import FollowerSession
from app.learning.options import LearnerOptions, ReportFact, ignore_fact
from app.learning.session import LeaderSession
from app.storage.cancellation import end
from app.storage.keys import is_follower
from app.storage.rollback import rolled_back
from app.storage.states import LogPosition
from app.storage.store import Store

log = logging.getLogger("solar.learner")


class Capacity:
    """How many models the learners of a process lead at once, and when they release one.

    A process with few models leads each of them all the time. Of many models it leads those that
    have records, and releases a model when it has had none for a while. The models that it leads
    take turns.
    """

    def __init__(self, options: LearnerOptions, turns: FairQueue | None = None) -> None:
        self._options, self.models = options, 0
        self.turns = turns or FairQueue()
        self._sessions, self._waiting = asyncio.Semaphore(options.sessions), 0

    async def __aenter__(self) -> None:
        """Wait until this process may lead one more model."""
        self._waiting += 1
        try:
            await self._sessions.acquire()
        finally:
            self._waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        """Make room for another model."""
        self._sessions.release()

    @property
    def leads_all(self) -> bool:
        """Whether the process leads, or waits for, every model all the time."""
        return self.models <= self._options.always

    def rests(self, idle: float) -> bool:
        """Whether to release a model without a record for `idle` seconds."""
        if self.leads_all:
            return False
        return idle > 0.0 if self._waiting else idle >= self._options.rest

    def ends_turn(self, led: float) -> bool:
        """Whether a model that was led for `led` seconds makes room for models that wait."""
        return bool(self._waiting) and led >= self._options.turn

    def most_wait(self) -> float:
        """Return the most seconds to wait for a record."""
        return 0.001 if self._waiting else inf


class Learner:
    """Learns one model while it holds the lease, until the model rests."""

    def __init__(
        self,
        store: Store,
        model: str,
        options: LearnerOptions | None = None,
        report: ReportFact = ignore_fact,
        capacity: Capacity | None = None,
    ) -> None:
        self._store, self.model, self._options = store, model, options or LearnerOptions()
        self._report, self._capacity = report, capacity or Capacity(self._options)
        self._left: LogPosition | None = None  # the last commit of the previous session
        self.led_since, self._gives_back = inf, False
        self._called, self._call_time = True, self._options.clock()
        self._failures = 0
        self.deleted = False

    def call(self) -> None:
        """Look at the model: it has a new record, or its state is damaged."""
        self._called, self._call_time = True, self._options.clock()

    async def run(self, stop: asyncio.Event) -> None:
        """Learn until `stop` is set, then commit and release.

        It ends early when the model rests or is deleted.
        """
        while not stop.is_set():
            self._called = False
            try:
                rests = await self._lead_once(stop)
                self._store.outages.succeeded(self.model)
                self._failures = 0
                if rests and not self._called:
                    return
            except NoSuchModel:
                self._store.outages.succeeded(self.model)
                self.deleted = True
                return
            except RolledBack as error:
                self._report(LogRolledBack(self.model))
                log.warning("%s", error)
            except Fenced as error:
                self._report(LeaseLost(self.model))
                log.info("%s", error)
            except NewerFormat as error:  # the lease is free for a newer learner
                self._report(NewerFormatFound(self.model))
                await self._pause(error, stop)
            except SolarError as error:
                self._report(LeaseLost(self.model))
                await self._pause(error, stop)

    async def _lead_once(self, stop: asyncio.Event) -> bool:
        """Take the lease and lead, or wait for the next attempt; return whether the model rests."""
        async with self._capacity:
            if stop.is_set() or await self._is_stalled():
                return True
            await self._check_rollback()
            fence = await self._store.leases.take(self.model, 0, self._options.lease)
            rests = bool(fence) and await self._lead(fence, stop)
        if rests or (not fence and await self._is_quiet()):
            return True
        await sleep(self._wait_seconds(taken=not fence), stop)
        return False

    async def _is_stalled(self) -> bool:
        """Whether it is a follower that can learn no more."""
        return is_follower(self.model) and await self._store.followers.is_stalled(self.model)

    async def _is_quiet(self) -> bool:
        """Whether a model that another learner leads has had no record for a while."""
        if not self._capacity.rests(self._options.clock() - self._call_time):
            return False
        return not (await self._store.models.backlogs([self.model])).get(self.model, 0)

    async def _pause(self, error: SolarError, stop: asyncio.Event) -> None:
        """Log an error and wait, each time twice as long if the store is reachable."""
        seconds = self._options.idle
        if isinstance(error, Unavailable):
            self._store.outages.failed(self.model, f"model {self.model}: {error}")
        else:
            log.warning("model %s: %s", self.model, error)
            seconds = min(self._options.repeat, seconds * 2**self._failures)
            self._failures = min(self._failures + 1, 16)
        await sleep(seconds, stop)

    def give_back(self) -> None:
        """Commit, release the lease and leave the model to other learners for a while."""
        self._gives_back = True

    def _wait_seconds(self, taken: bool) -> float:
        """Return the seconds until the next attempt to take the lease."""
        gave, self._gives_back = self._gives_back, False
        if gave:
            return self._options.lease / 2
        return min(self._options.lease / 5, self._options.ask) if taken else 0.0

    async def _check_rollback(self) -> None:
        """Report a version rollback since the last commit of the previous session (I12)."""
        if self._left is None:
            return
        now = await self._store.states.position(self.model)
        if await rolled_back(self._store, self.model, self._left, now):
            self._report(LogRolledBack(self.model))
            log.warning(
                "model %s: version rollback in the store, from version %d to %d",
                self.model, self._left[1], now[1],
            )  # fmt: skip
        self._left = None

    async def _lead(self, fence: int, stop: asyncio.Event) -> bool:
        """Learn while this learner holds the lease; return whether the model rests."""
        renewing = asyncio.create_task(self._renew_lease(fence))
        session, since = None, self._options.clock()
        self.led_since = since
        try:
            kind = FollowerSession if is_follower(self.model) else LeaderSession
            session = await kind.begin(
                self._store, self.model, fence, self._options, self._report, self._capacity.turns
            )
            while not (stop.is_set() or self._gives_back):
                if renewing.done():
                    renewing.result()  # raises its error
                self._called = False
                await session.round(self._capacity.most_wait())
                self._store.outages.succeeded(self.model)
                if self._capacity.rests(session.idle):
                    break
                if self._capacity.ends_turn(self._options.clock() - since):
                    break
            rests = session.idle > 0.0 and not self._gives_back
            await session.commit()
            await session.commit_part()
        except Unavailable as error:  # now: the release takes time, too
            self._store.outages.failed(self.model, f"model {self.model}: {error}")
            raise
        else:
            return rests
        finally:
            self._left, self.led_since = session.position if session else None, inf
            await end([renewing, *(session.tasks_under_way() if session else ())])
            await _try_release(self._store.leases.release(self.model, fence))

    async def _renew_lease(self, fence: int) -> None:
        while True:
            await asyncio.sleep(self._options.lease / 3)
            if await self._store.leases.take(self.model, fence, self._options.lease) != fence:
                raise Fenced(f"model {self.model}: another learner has the lease")


def warm_up() -> None:
    """Compile or load the kernels, so that the first record does not wait for them."""
    rows, many = np.eye(2, dtype=np.float32), np.eye(7, 2, dtype=np.float32)
    judged = Feedback("warm", "labels", many, labels=np.arange(7.0))  # more pairs than documents
    randomised = Feedback(
        "warm", "clicks", rows, np.arange(2), clicks=np.array([1]), odds=np.array([1.0, 1.0, 0.0])
    )
    for config in (
        ModelConfig(("a", "b"), "solar-i", pair_bound=40.0),
        ModelConfig(("a", "b"), "solar-ii", pair_bound=40.0),
        ModelConfig(("a", "b"), "solar-ii", "diagonal", pair_bound=40.0),
    ):
        reducer = Reducer(initial_state(config))
        reducer.apply(codec.dump_record(judged))
        reducer.apply(codec.dump_record(randomised))
        reducer.state()


async def sleep(seconds: float, stop: asyncio.Event) -> None:
    """Sleep; return early when `stop` is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _try_release(releasing: Awaitable[None]) -> None:
    """Ignore a failed release: the lease will expire."""
    try:
        await releasing
    except Unavailable:  # logged as an outage
        pass
    except SolarError as error:
        log.info("%s", error)
