"""Models that share a learner: a quiet one beside long records, and four of equal load."""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from app.domain import codec
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback
from app.storage.embedded.server import EmbeddedServer
from app.storage.log import NewRecord
from app.storage.store import Store
from benchmarks.report import Goal, at_least, at_most, table

LIMIT = 1 << 40


def run() -> list[Goal]:
    """Print the tables, return the goals."""
    goals = []
    for measure in (quiet_beside_floods, equal_loads):
        with tempfile.TemporaryDirectory() as folder, EmbeddedServer.start(Path(folder)) as server:
            goals.append(asyncio.run(measure(server.url)))
    return goals


async def quiet_beside_floods(url: str) -> Goal:
    """Seven models learn 99,856 pairs of 2,000 features each; another one gets small records."""
    store, samples = Store.open(url), 200
    floods = [f"flood{at}" for at in range(7)]
    await create(store, "quiet", 10)
    for at, name in enumerate(floods):
        await create(store, name, 2_000)
        await append(store, name, [labels(632, 2_000, at)])
    with learner(url):
        await reach(store, floods, pairs=1)
        waits = []
        for at in range(samples):
            began = time.perf_counter()
            await append(store, "quiet", [labels(10, 10, at)])
            while (await store.states.position("quiet"))[1] <= at:
                await asyncio.sleep(0.001)
            waits.append((time.perf_counter() - began) * 1e3)
        assert all([(await store.states.position(name))[1] == 0 for name in floods])  # noqa: S101
    await store.close()
    p50, p99 = np.percentile(waits, [50, 99])
    rows = [[f"{p50:.0f} ms", f"{p99:.0f} ms", f"{max(waits):.0f} ms"]]
    print(table("Append to commit, beside seven long records", ["p50", "p99", "max"], rows), "\n")
    return at_most("quiet model beside seven long records, p99", 1000, "ms", p99)


async def equal_loads(url: str) -> Goal:
    """Four models with the same records: how many each learns within 5 s."""
    store, names = Store.open(url), [f"m{at}" for at in range(4)]
    for at, name in enumerate(names):
        await create(store, name, 100)
        record = labels(80, 100, at)
        for _ in range(20):
            await append(store, name, [record] * 200)
    with learner(url):
        await reach(store, names, records=1)
        before = [(await store.states.position(name))[1] for name in names]
        await asyncio.sleep(5.0)
        after = [(await store.states.position(name))[1] for name in names]
    await store.close()
    learnt = [now - then for now, then in zip(after, before, strict=True)]
    print(table("Records in 5 s, equal loads", names, [[str(one) for one in learnt]]), "\n")
    return at_least("equal loads, least of most learnt", 0.8, "x", min(learnt) / max(learnt))


async def create(store: Store, name: str, n: int) -> None:
    """Create a model of SOLAR-II."""
    config = ModelConfig(tuple(f"f{at}" for at in range(n)))
    await store.models.create(name, initial_state(config, seed=name.encode()))


def labels(documents: int, n: int, seed: int) -> bytes:
    """Create a record; every second document is relevant: documents²/4 pairs."""
    rows = np.random.default_rng(seed).random((documents, n), np.float32)
    relevant = (np.arange(documents) % 2).astype(np.float64)
    return codec.dump_record(Feedback("", "labels", rows, labels=relevant))


async def append(store: Store, name: str, records: list[bytes]) -> None:
    """Append records to a model's log."""
    (epoch, *_), tail = await store.states.position(name), await store.log.tail(name)
    events = [NewRecord(f"e{tail + at}", b"", one) for at, one in enumerate(records)]
    await store.log.append(name, epoch, events, limit=LIMIT, time=0)


async def reach(store: Store, names: list[str], records: int = 0, pairs: int = 0) -> None:
    """Wait until every model has learnt some records, or pairs of its next record."""
    for name in names:
        while True:
            state = (await store.states.load(name)).state
            if state.seq >= records and (state.part.pairs if state.part else 0) >= pairs:
                break
            await asyncio.sleep(0.01)


@contextmanager
def learner(url: str) -> Iterator[None]:
    """Run `solar learn`."""
    process = subprocess.Popen([sys.executable, "-m", "app", "learn", "--redis-url", url])
    try:
        yield
    finally:
        process.kill()
        process.wait()
