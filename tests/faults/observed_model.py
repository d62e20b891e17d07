"""The common setup: a model, a ledger and a commit observer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from app.domain.model_config import ModelConfig
from app.storage.cancellation import end
from app.storage.keys import Keys
from app.storage.store import Store
from tests.faults import CHAOS
from tests.faults.checker import Watch
from tests.faults.event_generator import MODEL, SETTINGS, new_model
from tests.faults.feedback_clients import Ledger
from tests.faults.server import Server
from tests.fleets import Node


def run_scenario(
    scenario: Coroutine[Any, Any, None], seconds: float = 600.0 * max(1.0, CHAOS / 2)
) -> None:
    """Run a coroutine of a test with a timeout; whatever it leaves behind has ended then."""

    async def run() -> None:
        try:
            await asyncio.wait_for(scenario, seconds)
        finally:
            await end(asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(run())


class ObservedModel:
    """A model on a server with its store, ledger and observer."""

    def __init__(self, server: Server | Node, seed: int) -> None:
        self.server, self.seed = server, seed
        self.rng = np.random.default_rng(seed)
        self.store = Store.open(server.url)
        self.ledger = Ledger()
        self.watch = Watch(server.url)
        self.epoch = 0

    async def committed(self) -> int:
        """Return the seq of the committed state."""
        return (await self.store.states.position(MODEL))[1]

    async def fence(self) -> int:
        """Return the number of lease takeovers so far."""
        return int(await self.store._client.get(Keys(MODEL).fence) or 0)

    async def lease(self) -> bytes | None:
        """Return the lease, if it is held."""
        found: bytes | None = await self.store._client.get(Keys(MODEL).lease)
        return found

    async def lease_is_free(self) -> bool:
        """Whether the lease is free."""
        return await self.lease() is None

    def committed_beyond(self, seq: int) -> Callable[[], Awaitable[bool]]:
        """Return a condition: a record after `seq` is committed."""

        async def condition() -> bool:
            return await self.committed() > seq

        return condition

    def lease_taken_after(self, fence: int) -> Callable[[], Awaitable[bool]]:
        """Return a condition: the fencing token is above `fence`."""

        async def condition() -> bool:
            return await self.fence() > fence

        return condition

    async def random_pause(self, least: float, most: float) -> None:
        """Sleep for a random time."""
        await asyncio.sleep(float(self.rng.uniform(least, most)))


@asynccontextmanager
async def observed_model(
    server: Server | Node, seed: int, settings: ModelConfig = SETTINGS
) -> AsyncIterator[ObservedModel]:
    """Create an untrained model and observe its commits."""
    scenario = ObservedModel(server, seed)
    scenario.epoch = await new_model(scenario.store, settings=settings)
    try:
        async with scenario.watch:
            yield scenario
    finally:
        await scenario.store.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """Open a store and close it after the test."""
    store = Store.open(url)
    try:
        yield store
    finally:
        await store.close()
