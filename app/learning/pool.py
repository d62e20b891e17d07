"""The learners of a process: one for each model, as leader of at most a fair share.

Each learner process registers in the store with a lease, and the store counts the processes. A
process that leads more models than its share releases some, and others take them. There is no
coordinator, and correctness does not depend on the shares: a model that no other process takes is
taken again.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from time import monotonic
from uuid import uuid4

from app.errors import SolarError, Unavailable
from app.learning.learner import Learner, sleep
from app.learning.session import LearnerOptions, ReportFact, ignore_fact
from app.storage.store import Store

log = logging.getLogger("solar.learner")

#: The name of `learn_all` among the tasks that fail in an outage; no model has it.
DISCOVERY = "model discovery"


async def learn_all(
    store: Store,
    stop: asyncio.Event,
    options: LearnerOptions | None = None,
    report: ReportFact = ignore_fact,
) -> None:
    """Learn every model, also new ones; a share of them if other learners run."""
    options = options or LearnerOptions()
    pool = LearnerPool(store, options, report)
    while not stop.is_set():
        try:
            await pool.assign(stop)
            store.outages.succeeded(DISCOVERY)
        except Unavailable as error:
            store.outages.failed(DISCOVERY, error)
        except SolarError as error:
            log.warning("%s", error)
        await sleep(options.discover, stop)
    await pool.close()


class LearnerPool:
    """The learners of a process, one for each model; some only wait for its lease."""

    def __init__(self, store: Store, options: LearnerOptions, report: ReportFact) -> None:
        self._store, self._options, self._report = store, options, report
        self._share = LearnerShare(store, options.lease, options.clock)
        self._learners: dict[str, Learner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def assign(self, stop: asyncio.Event) -> None:
        """Start a learner for each model and give back leases beyond the share."""
        names = await self._store.models.names()
        for name in names:
            task = self._tasks.get(name)
            if task and task.done() and (failure := task.exception()):
                log.error("model %s: the learner failed; starting it again", name, exc_info=failure)
            if not task or task.done():
                self._learners[name] = Learner(self._store, name, self._options, self._report)
                running = self._learners[name].run(stop)
                self._tasks[name] = asyncio.create_task(running, name=name)
        leads = [name for name, learner in self._learners.items() if learner.leads]
        for name in set(leads) - set(names):
            await self._store.models.relist(name)
        most = await self._share.most(len(names))
        for name in leads[int(min(most, len(leads))) :]:
            log.info("model %s: giving its lease to another learner, for equal shares", name)
            self._learners[name].give_back()

    async def close(self) -> None:
        """Wait until all learners have committed and released."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._share.leave()


class LearnerShare:
    """The share of models that one process may lead, updated five times per lease."""

    def __init__(self, store: Store, lease: float, clock: Callable[[], float] = monotonic) -> None:
        self._store, self._lease, self._name = store, lease, str(uuid4())
        self._clock = clock
        self._next, self._learners = 0.0, 1
        self._works = True

    async def most(self, models: int) -> float:
        """Return the maximum number of models to lead; infinite while the count is unknown."""
        if self._clock() >= self._next:
            self._next = self._clock() + self._lease / 5
            self._works = await self._count()
        return -(-models // self._learners) if self._works else inf

    async def _count(self) -> bool:
        try:
            self._learners = max(1, await self._store.leases.present(self._name, self._lease))
        except SolarError as error:
            if self._works:
                log.warning("the models are not shared among learners: %s", error)
            return False
        return True

    async def leave(self) -> None:
        """Remove this process from the count."""
        try:
            await self._store.leases.absent(self._name)
        except SolarError as error:
            log.info("this learner stays in the list until its lease expires: %s", error)
