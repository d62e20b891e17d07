"""The learner: log → records → fold → commit; one at a time for each model, many in a process.

Correctness rests on the commit's compare-and-set of (seq, chain); the lease only spares wasted
work. Whatever happens to a learner, the next one starts from the committed state and folds on.
The fold runs in a thread (its kernels release the GIL), so that the event loop stays free.
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
from app.errors import Fenced, NoSuchModel, RolledBack, SolarError
from app.learning.session import LeaderSession, LearnerOptions, Tell, ignore_fact
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
        tell: Tell = ignore_fact,
    ) -> None:
        self._store, self.model, self._options = store, model, options or LearnerOptions()
        self._tell = tell
        self._left: LogPosition | None = None  # where the store was at the end of our last session
        self.leads, self._gives = False, False

    async def run(self, stop: asyncio.Event) -> None:
        """Learn until told to stop (commits and releases then), or until the model is gone."""
        while not stop.is_set():
            try:
                await self._look_back()
                fence = await self._store.leases.take(self.model, 0, self._options.lease)
                if fence:
                    await self._lead(fence, stop)
                await sleep(self._rest(taken=not fence), stop)
            except NoSuchModel:
                return
            except RolledBack as error:
                self._tell(LogRolledBack(self.model))
                log.warning("%s", error)
            except Fenced as error:
                self._tell(LeaseLost(self.model))
                log.info("%s", error)
            except SolarError as error:
                self._tell(LeaseLost(self.model))
                log.warning("model %s: %s", self.model, error)
                await sleep(self._options.idle, stop)

    def give_back(self) -> None:
        """Commit, release, and leave the model to others for a while."""
        self._gives = True

    def _rest(self, taken: bool) -> float:
        """How long not to ask for the lease: others may, or another has it."""
        gave, self._gives = self._gives, False
        if gave:
            return self._options.lease / 2
        return min(self._options.lease / 5, self._options.ask) if taken else 0.0

    async def _look_back(self) -> None:
        """See that the store is still where our last session left it, or further (I12)."""
        if self._left is None:
            return
        now = await self._store.states.position(self.model)
        if await rolled_back(self._store, self.model, self._left, now):
            self._tell(LogRolledBack(self.model))
            log.warning(
                "model %s: the store went back: it was at version %d, now it is at %d",
                self.model, self._left[1], now[1],
            )  # fmt: skip
        self._left = None

    async def _lead(self, fence: int, stop: asyncio.Event) -> None:
        """Learn while the lease is ours; it is kept in the background, whatever a fold takes."""
        keeping = asyncio.create_task(self._keep_lease(fence))
        session, self.leads = None, True
        try:
            session = await LeaderSession.begin(
                self._store, self.model, fence, self._options, self._tell
            )
            while not (stop.is_set() or self._gives):
                if keeping.done():
                    keeping.result()  # raises what ended it
                await session.round()
            await session.commit()
            await session.arrived()
        finally:
            self._left, self.leads = session.place if session else None, False
            await end([keeping, *(session.on_its_way() if session else ())])
            await _quietly(self._store.leases.release(self.model, fence))

    async def _keep_lease(self, fence: int) -> None:
        while True:
            await asyncio.sleep(self._options.lease / 3)
            if await self._store.leases.take(self.model, fence, self._options.lease) != fence:
                raise Fenced(f"model {self.model}: another learner has taken over")


def warm_up() -> None:
    """Compile the kernels, or load them: what a first record would have to wait for."""
    rows = np.eye(2, dtype=np.float32)
    judged = Feedback("warm", "labels", rows, labels=np.array([0.0, 1.0]))
    drawn = Feedback(
        "warm", "clicks", rows, np.arange(2), clicks=np.array([1]), odds=np.array([1.0, 1.0, 0.0])
    )
    for config in (
        ModelConfig(("a", "b"), "solar-i"),
        ModelConfig(("a", "b"), "solar-ii"),
        ModelConfig(("a", "b"), "solar-ii", "diagonal"),
    ):
        reducer = Reducer(initial_state(config))
        reducer.apply(codec.dump_record(judged))
        reducer.apply(codec.dump_record(drawn))
        reducer.state()


async def sleep(seconds: float, stop: asyncio.Event) -> None:
    """Sleep, but not through a stop."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _quietly(releasing: Awaitable[None]) -> None:
    """A lease that cannot be released will expire."""
    try:
        await releasing
    except SolarError as error:
        log.info("%s", error)
