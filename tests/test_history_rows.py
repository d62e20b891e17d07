"""The learner writes the history: a point in 10 seconds, weights by the hour, if there is room."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from app.domain.facts import Committed, PointDropped
from app.learning.options import Fact, LearnerOptions
from app.learning.replay import verify
from app.storage.history import HISTORY_BYTES, StoredHistory, point_at
from app.storage.store import Store
from tests.servers import bare_server, client, eventually, server, url, with_store
from tests.test_learner import SHORT_INTERVALS, append, blobs, committed, first, learning

__all__ = ["server", "url"]  # fixtures

START = 1_750_000_000.0 // 3600 * 3600


class SteppedWallClock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def paced(clock: Callable[[], float]) -> LearnerOptions:
    return replace(SHORT_INTERVALS, wall_clock=clock)


async def history(store: Store) -> StoredHistory:
    epoch, *_ = await store.states.position("books")
    return await store.history.load("books", epoch)


async def learn(store: Store, count: int = 1) -> None:
    """Append records and wait until they are committed."""
    tail = await store.log.tail("books")
    for at in range(tail, tail + count):
        await append(store, blobs(at, at + 1))
        await committed(store, at + 1)


async def begin(store: Store) -> None:
    """Create a model; learn until its first point is stored."""
    await store.models.create("books", first())
    async with asyncio.timeout(10.0):
        while not (await history(store)).hour:  # the budget is asked beside the first commits
            await learn(store)


def test_the_learner_writes_one_point_in_ten_seconds_and_weights_by_the_hour(url: str) -> None:
    async def act(store: Store) -> None:
        clock = SteppedWallClock()
        async with learning(store, paced(clock)):
            await begin(store)
            for clock.now in (START + 9.9, START + 10.0, START + 19.0, START + 3600.0):
                await learn(store, 2)
        found, tail = await history(store), await store.log.tail("books")
        times = [one[0] / 1000 - START for one in found.hour]
        assert times == [0.0, 10.0, 3600.0]
        assert [one[1] for one in found.hour][1:] == [tail - 5, tail - 1]
        assert [one.time / 1000 - START for one in found.weights] == [0.0, 3600.0]
        assert await verify(store, "books") == []

    with_store(url, act)


def test_a_point_has_the_sums_of_its_commit(url: str) -> None:
    async def act(store: Store) -> None:
        clock = SteppedWallClock()
        async with learning(store, paced(clock)):
            await begin(store)
            clock.now += 10.0
            await learn(store)
        state = (await store.states.load("books")).state
        expected = point_at(int(clock.now * 1000), state.seq, state.sums)
        assert (await history(store)).hour[-1] == expected
        weights = (await history(store)).weights[0].weights
        assert sorted(weights) == [0, 1, 2, 3]

    with_store(url, act)


def test_a_new_session_does_not_repeat_the_point_of_an_interval(url: str) -> None:
    async def act(store: Store) -> None:
        clock = SteppedWallClock()
        async with learning(store, paced(clock)):
            await begin(store)
        async with learning(store, paced(clock)):
            await learn(store, 3)
        found = await history(store)
        assert (len(found.hour), len(found.day), len(found.weights)) == (1, 1, 1)

    with_store(url, act)


def test_points_beyond_the_budget_are_dropped_and_counted() -> None:
    facts: list[Fact] = []

    async def act(store: Store) -> None:
        clock = SteppedWallClock()
        await store.models.create("books", first())
        async with learning(store, paced(clock), facts.append):
            for _ in range(3):
                await learn(store, 2)
                await eventually(is_dropped, bool)
                await learn(store, 2)
                clock.now += 10.0
        assert await history(store) == ([], [], [])
        assert await verify(store, "books") == []

    async def is_dropped() -> bool:
        await asyncio.sleep(0.01)
        return PointDropped("books") in facts

    limit = str(int(HISTORY_BYTES / 0.05) - 100_000)
    with bare_server("--maxmemory", limit, "--maxmemory-policy", "noeviction") as url:
        with_store(url, act)
    dropped = [fact for fact in facts if isinstance(fact, PointDropped)]
    assert len(dropped) == 3


@pytest.mark.parametrize("denied", ["-lindex", "-rpush", "-ltrim", "-info", "-zremrangebyscore"])
def test_a_user_without_the_rights_for_a_history_learns(denied: str) -> None:
    facts: list[Fact] = []
    with bare_server() as url, client(url) as connection:
        connection.execute_command(
            "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", denied
        )

        async def act(store: Store) -> None:
            clock = SteppedWallClock()
            await store.models.create("books", first())
            async with learning(store, paced(clock), facts.append):
                for _ in range(3):
                    await learn(store, 3)
                    clock.now += 10.0
            assert await verify(store, "books") == []
            assert {type(fact) for fact in facts} == {Committed}  # no interruption

        with_store(url.replace("unix://", "unix://guest:secret@"), act)
