"""The learners of a process: one for each model, and no more at work than its share.

Who learns says so in the store, with a lease; the store counts. A process that has more than its
share gives some back, and others take them. No process decides for all, and nothing depends on it:
a model that no other takes is taken again.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from time import monotonic
from uuid import uuid4

from app.errors import SolarError
from app.learning.learner import Learner, sleep
from app.learning.session import LearnerOptions, Tell, ignore_fact
from app.storage.store import Store

log = logging.getLogger("solar.learner")


async def learn_all(
    store: Store,
    stop: asyncio.Event,
    options: LearnerOptions | None = None,
    tell: Tell = ignore_fact,
) -> None:
    """Learn every model there is, and every one that comes; beside others a share of them."""
    options = options or LearnerOptions()
    pool = LearnerPool(store, options, tell)
    while not stop.is_set():
        try:
            await pool.look_around(stop)
        except SolarError as error:
            log.warning("%s", error)
        await sleep(options.discover, stop)
    await pool.leave()


class LearnerPool:
    """The learners of a process, one for each model; some of them only wait for its lease."""

    def __init__(self, store: Store, options: LearnerOptions, tell: Tell) -> None:
        self._store, self._options, self._tell = store, options, tell
        self._share = LearnerShare(store, options.lease, options.clock)
        self._learners: dict[str, Learner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def look_around(self, stop: asyncio.Event) -> None:
        """A learner for each model that is there, and no more at work than our share."""
        names = await self._store.models.names()
        for name in names:
            task = self._tasks.get(name)
            if task and task.done() and (failure := task.exception()):
                log.error("model %s: its learner failed", name, exc_info=failure)
            if not task or task.done():
                self._learners[name] = Learner(self._store, name, self._options, self._tell)
                running = self._learners[name].run(stop)
                self._tasks[name] = asyncio.create_task(running, name=name)
        leads = [name for name, learner in self._learners.items() if learner.leads]
        for name in set(leads) - set(names):
            await self._store.models.relist(name)
        most = await self._share.most(len(names))
        for name in leads[int(min(most, len(leads))) :]:
            log.info("model %s: left to other learners, each has its share", name)
            self._learners[name].give_back()

    async def leave(self) -> None:
        """Wait until all have committed and released."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._share.leave()


class LearnerShare:
    """The share of one process, looked at again several times a lease."""

    def __init__(self, store: Store, lease: float, clock: Callable[[], float] = monotonic) -> None:
        self._store, self._lease, self._name = store, lease, str(uuid4())
        self._clock = clock
        self._next, self._learners = 0.0, 1
        self._works = True

    async def most(self, models: int) -> float:
        """So many models it may have; all of them while nobody can tell."""
        if self._clock() >= self._next:
            self._next = self._clock() + self._lease / 5
            self._works = await self._count()
        return -(-models // self._learners) if self._works else inf

    async def _count(self) -> bool:
        try:
            self._learners = max(1, await self._store.leases.present(self._name, self._lease))
        except SolarError as error:
            if self._works:
                log.warning("models are not shared out: %s", error)
            return False
        return True

    async def leave(self) -> None:
        """Its share is for the others now."""
        try:
            await self._store.leases.absent(self._name)
        except SolarError as error:
            log.info("%s", error)
