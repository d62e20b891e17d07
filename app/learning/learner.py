"""The learner of a model: read records, apply them, commit. A process runs many learners.

Correctness rests on the commit's compare-and-set of (seq, chain); the lease only avoids wasted
work. When a learner fails, the next one continues from the committed state. Records are applied in
a thread whose kernels release the GIL, so the event loop stays free.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress

import numpy as np

from app.domain import codec
from app.domain.facts import LeaseLost, LogRolledBack
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.errors import Fenced, NoSuchModel, RolledBack, SolarError, Unavailable
from app.learning.session import LeaderSession, LearnerOptions, ReportFact, ignore_fact
from app.storage.cancellation import end
from app.storage.rollback import rolled_back
from app.storage.states import LogPosition
from app.storage.store import Store

log = logging.getLogger("solar.learner")


class Learner:
    """Learns one model for as long as it holds the lease."""

    def __init__(
        self,
        store: Store,
        model: str,
        options: LearnerOptions | None = None,
        report: ReportFact = ignore_fact,
    ) -> None:
        self._store, self.model, self._options = store, model, options or LearnerOptions()
        self._report = report
        self._left: LogPosition | None = None  # the last commit of the previous session
        self.leads, self._gives_back = False, False

    async def run(self, stop: asyncio.Event) -> None:
        """Learn until `stop` is set, then commit and release; end when the model is deleted."""
        while not stop.is_set():
            try:
                await self._check_rollback()
                fence = await self._store.leases.take(self.model, 0, self._options.lease)
                if fence:
                    await self._lead(fence, stop)
                self._store.outages.succeeded(self.model)
                await sleep(self._rest(taken=not fence), stop)
            except NoSuchModel:
                self._store.outages.succeeded(self.model)
                return
            except RolledBack as error:
                self._report(LogRolledBack(self.model))
                log.warning("%s", error)
            except Fenced as error:
                self._report(LeaseLost(self.model))
                log.info("%s", error)
            except SolarError as error:
                self._report(LeaseLost(self.model))
                if isinstance(error, Unavailable):
                    self._store.outages.failed(self.model, f"model {self.model}: {error}")
                else:
                    log.warning("model %s: %s", self.model, error)
                await sleep(self._options.idle, stop)

    def give_back(self) -> None:
        """Commit, release the lease and leave the model to other learners for a while."""
        self._gives_back = True

    def _rest(self, taken: bool) -> float:
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

    async def _lead(self, fence: int, stop: asyncio.Event) -> None:
        """Learn while this learner holds the lease; a background task renews the lease."""
        renewing = asyncio.create_task(self._renew_lease(fence))
        session, self.leads = None, True
        try:
            session = await LeaderSession.begin(
                self._store, self.model, fence, self._options, self._report
            )
            while not (stop.is_set() or self._gives_back):
                if renewing.done():
                    renewing.result()  # raises its error
                await session.round()
                self._store.outages.succeeded(self.model)
            await session.commit()
            await session.commit_done()
        finally:
            self._left, self.leads = session.position if session else None, False
            await end([renewing, *(session.commits_under_way() if session else ())])
            await _try_release(self._store.leases.release(self.model, fence))

    async def _renew_lease(self, fence: int) -> None:
        while True:
            await asyncio.sleep(self._options.lease / 3)
            if await self._store.leases.take(self.model, fence, self._options.lease) != fence:
                raise Fenced(f"model {self.model}: another learner has the lease")


def warm_up() -> None:
    """Compile or load the kernels, so that the first record does not wait for them."""
    rows = np.eye(2, dtype=np.float32)
    judged = Feedback("warm", "labels", rows, labels=np.array([0.0, 1.0]))
    randomised = Feedback(
        "warm", "clicks", rows, np.arange(2), clicks=np.array([1]), odds=np.array([1.0, 1.0, 0.0])
    )
    for config in (
        ModelConfig(("a", "b"), "solar-i"),
        ModelConfig(("a", "b"), "solar-ii"),
        ModelConfig(("a", "b"), "solar-ii", "diagonal"),
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
