"""The store behind Sentinels and on a Cluster against one server, in turns in one run.

All are the bundled binary on ports of this machine, with the same settings. Many more processes
than with one server share its cores: the ratios count, and on few cores they are too dark.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack

import numpy as np

from app.learning.learner import Learner
from app.storage.store import Store
from benchmarks.report import Goal, rate, table
from benchmarks.store import LIMIT, POST, best, events, fresh, records
from tests import fleets

ROUNDS, SEEN = 30, 40
N = 46


def run() -> list[Goal]:
    """Print the table; there are no goals."""
    with ExitStack() as stack:
        one = stack.enter_context(fleets.server()).url
        behind = stack.enter_context(fleets.sentinel_fleet()).url
        spread = stack.enter_context(fleets.cluster_fleet(replicas=1)).url
        places = {
            "one server": (one, "fsync"),
            "Sentinel": (behind, "fsync"),
            "Sentinel, replicated": (behind, "replicated"),
            "Cluster": (spread, "fsync"),
            "Cluster, replicated": (spread, "replicated"),
        }
        asyncio.run(compare(places))
    return []


async def compare(places: dict[str, tuple[str, str]]) -> None:
    """Append and freshness of each, as they are and against one server."""
    async with AsyncExitStack() as stack:
        stores = {name: Store.open(*place) for name, place in places.items()}
        for store in stores.values():
            stack.push_async_callback(store.close)
        posted = await append(stores)
        seen = await freshness(stores)
    first = next(iter(stores))
    rows = [
        [
            name, rate(POST, posted[name]), f"{posted[first] / posted[name]:.2f}",
            f"{seen[name] * 1e3:.1f} ms", f"{seen[name] / seen[first]:.2f}",
        ]
        for name in stores
    ]  # fmt: skip
    head = ["", "append", "x one", "freshness, p50", "x one"]
    print(table("One server, Sentinel and Cluster: 100 events of 1 kB a post", head, rows), "\n")


async def append(stores: dict[str, Store]) -> dict[str, float]:
    """Seconds of a post of 100 events of 1 kB: the fastest of many."""
    record = np.random.default_rng(0).bytes(1000)

    async def appender(name: str, store: Store) -> Callable[[], Awaitable[None]]:
        model = model_of(name)
        epoch = await fresh(store, model, 1)
        posts = iter([events(f"p{at}", [record] * POST) for at in range(ROUNDS)])

        async def post() -> None:
            await store.log.append(model, epoch, next(posts), limit=LIMIT, time=0)

        return post

    return await best({name: await appender(name, store) for name, store in stores.items()}, ROUNDS)


async def freshness(stores: dict[str, Store]) -> dict[str, float]:
    """Seconds from an append to its weights, hint and all, with a learner beside: the median."""
    return {name: await _freshness(model_of(name), store) for name, store in stores.items()}


async def _freshness(model: str, store: Store) -> float:
    epoch, stop, took = await fresh(store, model, N), asyncio.Event(), list[float]()
    learning = asyncio.create_task(Learner(store, model).run(stop))
    watching = store.states.watch(model)
    for at, record in enumerate(records(SEEN, N)):
        post = events(f"f{at}", [record])
        began = time.perf_counter()
        await store.log.append(model, epoch, post, limit=LIMIT, time=0, wait=True)
        while (await store.states.load_weights(model)).seq <= at:
            await anext(watching)
        took.append(time.perf_counter() - began)
    stop.set()
    await learning
    await store.models.delete(model)
    return float(np.median(took))


def model_of(name: str) -> str:
    """A model for each: those that share a fleet must not share a log."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)
