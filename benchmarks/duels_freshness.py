"""The freshness of a leader with followers: append to new weights in another process.

Models with different numbers of followers take turns, and the best of several rounds counts,
because other work disturbs single rounds.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.domain.followers import follower_config, follower_state
from app.storage.embedded.server import EmbeddedServer
from app.storage.keys import follower_address
from app.storage.store import Store
from benchmarks.freshness import delays, learner, settle, until_learnt
from benchmarks.report import Goal, at_most, table
from benchmarks.store import fresh, records

FOLLOWERS = (0, 1, 3, 6)
GAMMAS = (1e2, 1e3, 1e5, 1e6, 3e3, 3e4)
MOST_TIMES = 1.1


class Pace(NamedTuple):
    """Numbers of features and of followers, and how records are appended in each round."""

    n: int
    followers: Sequence[int]
    per_second: float
    records: int
    rounds: int


SMALL, LARGE = Pace(46, FOLLOWERS, 200.0, 300, 10), Pace(700, (0, 1, 3), 20.0, 100, 4)


def run() -> list[Goal]:
    """Print two tables; the first one has goals."""
    goals = _freshness(SMALL)
    _freshness(LARGE)
    return goals


def _freshness(pace: Pace) -> list[Goal]:
    """The time from an append to the leader's new weights in another process."""
    with tempfile.TemporaryDirectory(prefix="solar-bench-") as folder:
        found = asyncio.run(_delays(pace, Path(folder)))
    without = found[0]
    rows = [
        [str(followers), f"{p50:.1f} ms", f"{p99:.1f} ms", f"{p50 / without[0]:.2f}",
         f"{p99 / without[1]:.2f}"]
        for followers, (p50, p99) in found.items()
    ]  # fmt: skip
    title = (
        f"Append to new weights of the leader in another process, n = {pace.n}, full covariance, "
        f"{pace.per_second:g} records/s, best of {pace.rounds} rounds"
    )
    head = ["followers", "p50", "p99", "p50 / none", "p99 / none"]
    print(table(title, head, rows), end="\n\n")
    return [
        at_most(
            f"freshness p99 with {followers} followers, n = {pace.n}", MOST_TIMES,
            "x without", p99 / without[1],
        )
        for followers, (_, p99) in found.items() if followers
    ]  # fmt: skip


async def _delays(pace: Pace, directory: Path) -> Mapping[int, tuple[float, float]]:
    """Return p50 and p99 in milliseconds by the number of followers."""
    log = records(pace.records, pace.n)
    best = dict.fromkeys(pace.followers, (inf, inf))
    with EmbeddedServer.start(directory) as server, learner(server.url):
        store = Store.open(server.url)
        epochs = {followers: await _led(store, pace.n, followers) for followers in pace.followers}
        for followers, epoch in epochs.items():
            await settle(store, _leader(followers), epoch, log[0])
        for at in range(pace.rounds):
            for followers, epoch in epochs.items() if at % 2 else reversed(epochs.items()):
                took = await delays(store, _leader(followers), epoch, log, pace.per_second)
                p50, p99 = np.percentile(took, [50, 99]).tolist()
                best[followers] = min(best[followers][0], p50), min(best[followers][1], p99)
                await _caught_up(store, followers)
        await store.close()
    return best


def _leader(followers: int) -> str:
    return f"leads-{followers}"


def follower_of(leader: str, at: int) -> str:
    """Return the name of one of a model's followers."""
    return f"{leader}-{at}"


async def _led(store: Store, n: int, followers: int) -> int:
    """Create a model with followers; return its epoch."""
    model = _leader(followers)
    epoch = await fresh(store, model, n, "solar-ii")
    state = (await store.states.load(model)).state
    configs = [follower_config(state.model.config, gamma=gamma) for gamma in GAMMAS[:followers]]
    states = {follower_of(model, at): follower_state(state, one) for at, one in enumerate(configs)}
    if states:
        await store.followers.create(model, epoch, states)
    return epoch


async def _caught_up(store: Store, followers: int) -> None:
    """Wait until all followers have learnt what their leader has: they load no other case."""
    leader = _leader(followers)
    tail = await store.log.tail(leader)
    for at in range(followers):
        await until_learnt(store, follower_address(leader, follower_of(leader, at)), tail)
