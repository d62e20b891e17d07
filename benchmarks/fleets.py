"""The store on Sentinel and on Cluster against one server, in turns in one run.

All servers run the bundled binary on ports of this machine, with the same settings. The fleets
have many more processes on the same cores, so on few cores the ratios are pessimistic.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack

import numpy as np

from app.learning.learner import Learner
from app.storage.store import Store
from benchmarks.freshness import LIMIT, events
from benchmarks.report import Goal, rate, table
from benchmarks.store import POST, best, fresh, records
from tests import fleets

ROUNDS, SEEN = 30, 40
N = 46


def run() -> list[Goal]:
    """Print the table; there are no goals."""
    with ExitStack() as stack:
        one = stack.enter_context(fleets.server()).url
        behind = stack.enter_context(fleets.sentinel_fleet()).url
        spread = stack.enter_context(fleets.cluster_fleet(replicas=1)).url
        deployments = {
            "one server": (one, "fsync"),
            "Sentinel": (behind, "fsync"),
            "Sentinel, replicated": (behind, "replicated"),
            "Cluster": (spread, "fsync"),
            "Cluster, replicated": (spread, "replicated"),
        }
        asyncio.run(compare(deployments))
    return []


async def compare(deployments: dict[str, tuple[str, str]]) -> None:
    """Measure append and freshness of each deployment, and the ratios to one server."""
    async with AsyncExitStack() as stack:
        stores = {name: Store.open(*deployment) for name, deployment in deployments.items()}
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
    head = ["", "append", "x one server", "freshness, p50", "x one server"]
    print(table("One server, Sentinel and Cluster: 100 events of 1 kB a post", head, rows), "\n")


async def append(stores: dict[str, Store]) -> dict[str, float]:
    """Seconds for a post of 100 events of 1 kB: the fastest of many."""
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
    """Median seconds from an append to the new weights in this process, through the learner."""
    return {name: await _freshness(model_of(name), store) for name, store in stores.items()}


async def _freshness(model: str, store: Store) -> float:
    epoch, stop, took = await fresh(store, model, N), asyncio.Event(), list[float]()
    learning = asyncio.create_task(Learner(store, model).run(stop))
    hints = store.hints.changed()
    for at, record in enumerate(records(SEEN, N)):
        post = events(f"f{at}", [record])
        began = time.perf_counter()
        await store.log.append(model, epoch, post, limit=LIMIT, time=0, wait=True)
        while (await store.states.load_weights(model)).seq <= at:
            await anext(hints)
        took.append(time.perf_counter() - began)
    stop.set()
    await learning
    await store.models.delete(model)
    return float(np.median(took))


def model_of(name: str) -> str:
    """A model name for each deployment: deployments on one fleet need separate logs."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)
