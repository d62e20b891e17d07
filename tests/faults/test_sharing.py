"""Several learner processes: each leads a share of the models and takes over from others."""

import asyncio
from collections.abc import Sequence
from time import monotonic

import numpy as np
import pytest

from app.domain.facts import ModelStatus
from app.learning.options import LearnerOptions
from app.learning.pool import learn_all
from app.storage.keys import MODELS
from app.storage.store import Store
from tests.faults.event_generator import new_model
from tests.faults.learners import LEASE, LearnerProcesses
from tests.faults.observed_model import opened, run_scenario
from tests.faults.server import Server
from tests.faults.waiting import until

NAMES = [f"m{at}" for at in range(10)]
#: For tests without take-overs: a busy machine must not let it expire.
LONG_LEASE = 30.0


async def models(store: Store) -> None:
    for name in NAMES:
        await new_model(store, name)


async def terms(store: Store) -> list[int]:
    """Return the number of lease takeovers of each model; 0 while it has no learner."""
    found = await store.models.statuses(NAMES)
    return [one.terms if one.leader else 0 for one in (found[name] for name in NAMES)]


async def settled(store: Store, wanted: Sequence[int]) -> None:
    """Wait until all models have a learner; `wanted` counts models by number of takeovers."""

    async def so() -> bool:
        found = np.bincount(await terms(store), minlength=len(wanted))
        return bool(found.tolist() == list(wanted))

    await until(so, f"learners of the models: {wanted}", 30.0)


class LeaderlessTimes:
    """Measures how long any model has no learner."""

    def __init__(self, store: Store) -> None:
        self._store, self._since, self.longest = store, dict.fromkeys(NAMES, monotonic()), 0.0

    async def run(self) -> None:
        while True:
            found: dict[str, ModelStatus] = await self._store.models.statuses(NAMES)
            for name in NAMES:
                if found[name].leader:
                    self._since[name] = monotonic()
                self.longest = max(self.longest, monotonic() - self._since[name])
            await asyncio.sleep(0.01)


@pytest.mark.slow
def test_a_later_learner_gets_its_share_and_returns_it_when_it_ends(
    server: Server, pool: LearnerProcesses
) -> None:
    """No model is without a learner for longer than a lease and a second."""

    async def scenario() -> None:
        async with opened(server.url) as store:
            await models(store)
            pool.start(server.url)
            await settled(store, [0, 10])
            watched = LeaderlessTimes(store)
            watching = asyncio.create_task(watched.run())
            second = pool.start(server.url)
            await settled(store, [0, 5, 5])
            assert watched.longest < 1.0
            pool.kill(second)
            took = -monotonic()
            await settled(store, [0, 5, 0, 5])
            took += monotonic()
            watching.cancel()
            print(f"\nwithout a learner: {watched.longest:.2f} s shared, {took:.2f} s killed")  # noqa: T201
            assert took < LEASE + 1.0

    run_scenario(scenario())


@pytest.mark.slow
def test_a_graceful_stop_releases_all_models_at_once(
    server: Server, pool: LearnerProcesses
) -> None:
    async def scenario() -> None:
        async with opened(server.url) as store:
            await models(store)
            first = pool.start(server.url)
            await settled(store, [0, 10])
            pool.start(server.url)
            await settled(store, [0, 5, 5])
            first.terminate()
            await settled(store, [0, 0, 10])
            assert await store._client.zcard("solar:learners") == 1

    run_scenario(scenario())


def test_a_learner_restores_the_lost_name_of_its_model(server: Server) -> None:
    """On a Cluster the names may be on another node, which may fail over alone."""

    async def scenario() -> None:
        async with opened(server.url) as store:
            await models(store)
            stop = asyncio.Event()
            learning = asyncio.create_task(learn_all(store, stop, LearnerOptions(lease=LONG_LEASE)))
            await settled(store, [0, 10])
            await store._client.srem(MODELS, *NAMES[:5])

            async def all_named() -> bool:
                return await store.models.names() == NAMES

            await until(all_named, "all are named")
            stop.set()
            await learning

    run_scenario(scenario())


def test_learners_that_cannot_be_counted_still_learn(server: Server) -> None:
    async def scenario() -> None:
        async with opened(server.url) as store:
            await models(store)
            await store._client.set("solar:learners", "no set")
            stop = asyncio.Event()
            learning = asyncio.create_task(learn_all(store, stop, LearnerOptions(lease=LONG_LEASE)))
            await settled(store, [0, 10])
            stop.set()
            await learning

    run_scenario(scenario())
