"""The learners of a process: one for each model that has records, as leader of a fair share.

Followers are models here, with their addresses as names. They do not take the places of models:
they are counted apart, and give way where a process leads more than its share.

A hint names a model with a new record. Hints may be lost, so the process also compares the log and
the state of every model, a slice at a time. Each learner process registers in the store with a
lease, and the store counts the processes. A process that leads more models than its share releases
some, and others take them. There is no coordinator, and correctness does not depend on the shares:
a model that no other process takes is taken again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from math import inf
from time import monotonic
from uuid import uuid4

from app.domain.facts import Deleted
from app.errors import SolarError, Unavailable
from app.learning.learner import Capacity, Learner, sleep
from app.learning.options import LearnerOptions, ReportFact, ignore_fact
from app.storage.cancellation import end
from app.storage.keys import is_follower
from app.storage.leases import with_length
from app.storage.store import Store

log = logging.getLogger("solar.learner")

#: The name of `learn_all` among the tasks that fail in an outage; no model has it.
DISCOVERY = "model discovery"
#: Models that one check compares with their logs: 2 ms of CPU time.
LOGS_CHECKED = 80


async def learn_all(
    store: Store,
    stop: asyncio.Event,
    options: LearnerOptions | None = None,
    report: ReportFact = ignore_fact,
) -> None:
    """Learn every model, also new ones; a share of them if other learners run."""
    options = options or LearnerOptions()
    pool = LearnerPool(store, options, report, stop)
    hearing = asyncio.create_task(pool.hear_hints())
    while not stop.is_set():
        try:
            await pool.assign()
            store.outages.succeeded(DISCOVERY)
        except Unavailable as error:
            store.outages.failed(DISCOVERY, error)
        except SolarError as error:
            log.warning("%s", error)
        await sleep(options.discover, stop)
    await end([hearing])
    await pool.close()


class LearnerPool:
    """The learners of a process; some only wait for the lease of their model."""

    def __init__(
        self, store: Store, options: LearnerOptions, report: ReportFact, stop: asyncio.Event
    ) -> None:
        self._store, self._options, self._report, self._stop = store, options, report, stop
        self._share = LearnerShare(store, options.lease, options.clock)
        self._capacity = Capacity(options)
        self._for_followers = Capacity(options, self._capacity.turns)
        self._learners: dict[str, Learner] = {}  # also of models that rest: they know the position
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._names: set[str] = set()
        self._unchecked: list[str] = []
        self._check_all = True

    async def hear_hints(self) -> None:
        """Call the learner of each model with a new record."""
        async for model in self._store.hints.appended():
            if model:
                self._call(model)
            else:
                self._check_all = True

    async def assign(self) -> None:
        """Start the learners of models with records; give back leases beyond the share."""
        everything, self._check_all = self._check_all, False
        try:
            leads_all = self._capacity.leads_all and self._for_followers.leads_all
            if everything or not self._unchecked or leads_all:
                await self._list_models()
            while self._unchecked:
                await self._check_next()
                if not everything:
                    break
        except BaseException:
            self._check_all |= everything
            raise
        await self._give_back()

    async def _list_models(self) -> None:
        """Read the names of all models; restore names that a Cluster failover lost."""
        names = [*await self._store.models.names(), *await self._store.followers.addresses()]
        for name in sorted((self._names | self._led(0.0)) - set(names)):
            kind = self._store.followers if is_follower(name) else self._store.models
            await kind.relist(name)
        self._names = set(names)
        followers = sum(map(is_follower, names))
        self._capacity.models, self._for_followers.models = len(names) - followers, followers
        self._unchecked = names[::-1]
        for name in sorted(self._learners.keys() - self._names - self._tasks.keys()):
            self._forget(name)

    async def _check_next(self) -> None:
        """Call the learners of the next models: of those with a backlog, or of all if few."""
        some = self._unchecked[-LOGS_CHECKED:]
        asked = [name for name in some if not self._capacity_of(name).leads_all]
        waiting = await self._store.models.backlogs(asked) if asked else {}
        del self._unchecked[-len(some) :]
        for name in some:
            if self._capacity_of(name).leads_all or waiting.get(name):
                self._call(name)

    def _capacity_of(self, name: str) -> Capacity:
        return self._for_followers if is_follower(name) else self._capacity

    def _call(self, name: str) -> None:
        """Let a learner look at a model; start it if it rests."""
        learner = self._learners.get(name)
        if learner is None:
            learner = self._learners[name] = Learner(
                self._store, name, self._options, self._report, self._capacity_of(name)
            )
        learner.call()
        if name not in self._tasks and not self._stop.is_set():
            self._tasks[name] = asyncio.create_task(self._learn(learner), name=name)

    async def _learn(self, learner: Learner) -> None:
        try:
            await learner.run(self._stop)
        except Exception:
            log.exception("model %s: the learner failed; starting it again", learner.model)
        finally:
            del self._tasks[learner.model]
            if learner.deleted:
                self._forget(learner.model)

    def _forget(self, name: str) -> None:
        del self._learners[name]
        self._report(Deleted(name))

    def _led(self, seconds: float) -> set[str]:
        """Return the models that this process has led for some time."""
        until = self._options.clock() - seconds
        return {name for name in self._tasks if self._learners[name].led_since <= until}

    async def _give_back(self) -> None:
        """Release models beyond the share; of many models, only those with many records.

        Followers have the places of the share that leaders leave.
        """
        models = kept = 0
        for capacity in (self._capacity, self._for_followers):
            few = capacity.leads_all
            names = self._names if few else self._tasks
            models += sum(self._capacity_of(name) is capacity for name in names)
            most = await self._share.most(models, self._led(0.0)) - kept
            led = sorted(self._led(0.0 if few else self._options.rest))
            led = [name for name in led if self._capacity_of(name) is capacity]
            places = int(max(0, min(most, len(led))))
            for name in led[places:]:
                log.info("model %s: giving its lease to another learner, for equal shares", name)
                self._learners[name].give_back()
            kept += places

    async def close(self) -> None:
        """Wait until all learners have committed and released."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._share.leave()


class LearnerShare:
    """The share of models that one process may lead, updated five times per lease."""

    def __init__(self, store: Store, lease: float, clock: Callable[[], float] = monotonic) -> None:
        self._store, self._lease, self._name = store, lease, with_length(str(uuid4()), lease)
        self._clock = clock
        self._next, self._learners = 0.0, 1
        self._works = True

    async def most(self, models: int, led: Collection[str]) -> float:
        """Return the maximum number of models to lead; infinite while the count is unknown.

        It is infinite for the only learner, too: no other takes a model that it gives back,
        such as one that was created again after the last list of names. `led` are the models that
        this process leads.
        """
        if self._clock() >= self._next:
            self._next = self._clock() + self._lease / 5
            self._works = await self._count(led)
        alone = self._learners == 1
        return inf if alone or not self._works else -(-models // self._learners)

    async def _count(self, led: Collection[str]) -> bool:
        try:
            found = await self._store.leases.present(self._name, self._lease, led)
            self._learners = max(1, found)
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
