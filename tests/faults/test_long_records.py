"""Records of many pairs: learners that are killed within one, and models that wait for others."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from app.domain import codec
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback
from app.learning.replay import verify
from app.storage.log import NewRecord
from app.storage.store import Store
from tests.faults import rounds
from tests.faults.learners import LearnerProcesses
from tests.faults.server import Server
from tests.faults.waiting import until
from tests.servers import with_store

pytestmark = pytest.mark.slow


def labels(event: str, documents: int, n: int, seed: int = 0) -> bytes:
    """A record with documents²/4 pairs: every second document is relevant."""
    rows = np.random.default_rng(seed).random((documents, n), np.float32)
    relevant = (np.arange(documents) % 2).astype(np.float64)
    return codec.dump_record(Feedback(event, "labels", rows, labels=relevant))


async def create(store: Store, model: str, n: int) -> None:
    config = ModelConfig(tuple(f"f{at}" for at in range(n)))
    await store.models.create(model, initial_state(config, seed=model.encode()))


async def append(store: Store, model: str, *records: bytes) -> None:
    epoch, *_ = await store.states.position(model)
    tail = await store.log.tail(model)
    events = [NewRecord(f"e{tail + at}", b"", one) for at, one in enumerate(records)]
    await store.log.append(model, epoch, events, limit=10_000, time=0)


async def progress(store: Store, model: str) -> tuple[int, int]:
    """The committed records, and the committed pairs of the next one."""
    state = (await store.states.load(model)).state
    return state.seq, 0 if state.part is None else state.part.pairs


def beyond(store: Store, model: str, before: tuple[int, int]) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return await progress(store, model) > before

    return condition


def test_a_record_is_learnt_though_its_learners_are_killed_every_second(
    server: Server, pool: LearnerProcesses
) -> None:
    """The record takes several seconds: without parts it would start again and again."""

    async def act(store: Store) -> None:
        await create(store, "books", 560)
        await append(store, "books", labels("long", 632, 560), labels("short", 4, 560))
        before, kills = await progress(store, "books"), 0
        while before[0] < 2:
            learner = pool.start(server.url)
            await until(beyond(store, "books", before), "the learner commits something")
            await asyncio.sleep(1.0)  # the interval of the kills
            pool.kill(learner)
            now, kills = await progress(store, "books"), kills + 1
            assert now > before
            before = now
        assert kills >= 2
        assert await verify(store, "books") == []

    with_store(server.url, act)


def test_models_of_equal_load_learn_at_equal_rates(server: Server, pool: LearnerProcesses) -> None:
    names = [f"m{at}" for at in range(4)]

    async def records(store: Store) -> list[int]:
        """The committed records of all models at one moment."""
        found = await store.states.positions(names)
        return [one[1] for one in map(found.get, names) if one]

    async def act(store: Store) -> None:
        for at, name in enumerate(names):
            await create(store, name, 100)
            await append(store, name, *(labels(f"e{one}", 80, 100, at) for one in range(1_500)))
        pool.start(server.url)
        for name in names:
            await until(beyond(store, name, (0, 0)), "every model has begun")
        first = await records(store)
        some = min(1_000, 200 * rounds(2))  # of 1,500: all models must have work until then
        await until(beyond(store, "m0", (first[0] + some, 0)), "some hundred records")
        learnt = [now - one for now, one in zip(await records(store), first, strict=True)]
        assert min(learnt) >= 0.8 * max(learnt), learnt

    with_store(server.url, act)


def test_a_quiet_model_learns_at_once_while_seven_others_learn_long_records(
    server: Server, pool: LearnerProcesses
) -> None:
    async def act(store: Store) -> None:
        await create(store, "quiet", 10)
        for at in range(7):
            await create(store, f"flood{at}", 1_000)
            await append(store, f"flood{at}", labels("long", 632, 1_000, at))
        pool.start(server.url)
        for at in range(7):
            await until(beyond(store, f"flood{at}", (0, 0)), "every flood has begun")
        waits = []
        for at in range(min(400, rounds(40))):  # the floods must last
            posted = time.monotonic()
            await append(store, "quiet", labels(f"e{at}", 10, 10, at))
            await until(beyond(store, "quiet", (at, 0)), "the quiet model learns")
            waits.append(time.monotonic() - posted)
        assert all([(await progress(store, f"flood{at}"))[0] == 0 for at in range(7)])
        print(f"\nseconds until learnt: median {np.median(waits):.3f}, max {max(waits):.3f}")  # noqa: T201
        assert np.quantile(waits, 0.99) <= 1.0

    with_store(server.url, act)
