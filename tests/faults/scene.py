"""What most tests begin with: a model, posters at work, somebody who watches the commits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from app.domain.model_config import ModelConfig
from app.storage.keys import Keys
from app.storage.store import Store
from tests.faults.checker import Watch
from tests.faults.invented import MODEL, SETTINGS, new_model
from tests.faults.posters import Ledger
from tests.faults.server import Server


def play(scene: Coroutine[Any, Any, None], seconds: float = 600.0) -> None:
    """Run a test's scene; one that hangs fails."""
    asyncio.run(asyncio.wait_for(scene, seconds))


class Scene:
    """A model on a server, and those around it."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.seed = server, seed
        self.rng = np.random.default_rng(seed)
        self.store = Store.open(server.url)
        self.ledger = Ledger()
        self.watch = Watch(server.url)
        self.epoch = 0

    async def committed(self) -> int:
        """The seq of the committed state."""
        return (await self.store.states.position(MODEL))[1]

    async def fence(self) -> int:
        """How many learners have taken the lease so far."""
        return int(await self.store._client.get(Keys(MODEL).fence) or 0)

    async def lease(self) -> bytes | None:
        """The lease, if somebody holds it."""
        found: bytes | None = await self.store._client.get(Keys(MODEL).lease)
        return found

    async def nobody_leads(self) -> bool:
        """Whether the lease is free."""
        return await self.lease() is None

    def beyond(self, seq: int) -> Callable[[], Awaitable[bool]]:
        """Whether more than so much is committed."""

        async def condition() -> bool:
            return await self.committed() > seq

        return condition

    def taken(self, fence: int) -> Callable[[], Awaitable[bool]]:
        """Whether more than so many learners have taken the lease."""

        async def condition() -> bool:
            return await self.fence() > fence

        return condition

    async def moment(self, least: float, most: float) -> None:
        """A random moment later."""
        await asyncio.sleep(float(self.rng.uniform(least, most)))


@asynccontextmanager
async def a_model(
    server: Server, seed: int, settings: ModelConfig = SETTINGS
) -> AsyncIterator[Scene]:
    """A model that has learnt nothing."""
    scene = Scene(server, seed)
    scene.epoch = await new_model(scene.store, settings=settings)
    try:
        async with scene.watch:
            yield scene
    finally:
        await scene.store.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """A store that is closed in the end, whatever the test finds."""
    store = Store.open(url)
    try:
        yield store
    finally:
        await store.close()
