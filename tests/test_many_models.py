"""Many models on each kind of store: a bounded number of connections serves and learns all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from redis.cluster import RedisCluster

from app.domain.facts import LogRolledBack
from app.learning.learner import warm_up
from app.learning.options import Fact, LearnerOptions
from app.learning.pool import learn_all
from app.serving.weight_cache import WeightCache
from app.storage.keys import Keys
from app.storage.store import Store
from tests.servers import TIMEOUT, anywhere, anywhere_emptied, client, eventually, with_store
from tests.test_codec import bits
from tests.test_learner import append, blobs, committed, feedback, first, replayed

__all__ = ["anywhere", "anywhere_emptied"]  # fixtures

NAMES = [f"m{at:02d}" for at in range(40)]
#: As with thousands of models: no model is led all the time.
RESTING = LearnerOptions(
    lease=2.0, commit=0.005, idle=0.05, discover=0.02, always=0, rest=0.2, sessions=8
)


#: Run a test on one kind of store.
on_one_server = pytest.mark.parametrize("anywhere", ["embedded"], indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile first: that takes longer than a test waits."""
    warm_up()


@contextlib.asynccontextmanager
async def learning(
    store: Store, options: LearnerOptions = RESTING, facts: list[Fact] | None = None
) -> AsyncIterator[None]:
    stop = asyncio.Event()
    report = (facts if facts is not None else []).append
    task = asyncio.create_task(learn_all(store, stop, options, report))
    try:
        yield
    finally:
        stop.set()
        await task


def connections(url: str) -> int:
    """Return the number of connections of clients to all servers, without this one."""
    with client(url) as connection:
        if isinstance(connection, RedisCluster):
            listed: Any = connection.client_list(target_nodes=RedisCluster.PRIMARIES)
            return sum(len(one) - 1 for one in listed.values())
        return len([one for one in connection.client_list() if one["flags"] != "S"]) - 1


async def leases(store: Store) -> list[str]:
    found = await store.models.statuses(NAMES)
    return [name for name, status in found.items() if status.leader]


def test_all_models_are_learnt_and_served_over_few_connections(url: str) -> None:
    async def act(store: Store) -> None:
        for name in NAMES:
            await store.models.create(name, first(name.encode()))
        before = connections(url)
        cache = WeightCache(store, poll=0.02)
        await cache.start()
        assert cache.started
        assert sorted(cache.serving) == NAMES
        async with learning(store):
            for _ in range(2):
                for at, name in enumerate(NAMES):
                    await append(store, [feedback(at)], name)
            for name in NAMES:
                assert await cache.reach(name, 2, TIMEOUT), name
            # sessions, two subscriptions, commits, loads: not one for each model
            assert connections(url) - before < 3 * (RESTING.sessions + 16)
            await eventually(lambda: leases(store), lambda led: led == [])
        await cache.close()
        for at, name in enumerate(NAMES):
            state = await committed(store, 2, name)
            assert bits(state) == bits(replayed(first(name.encode()), [feedback(at)] * 2))

    with_store(url, act)


def test_a_model_that_rests_is_learnt_again_after_its_next_record(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("m00", first())
        facts: list[Fact] = []
        async with learning(store, facts=facts), learning(store):
            for at in range(3):
                await append(store, [feedback(at)], "m00")
                await committed(store, at + 1, "m00")
                await eventually(lambda: leases(store), lambda led: led == [])
            await store.models.create("m01", first())  # not in the list of names yet
            await append(store, [feedback(9)], "m01")
            await committed(store, 1, "m01")
        assert not [fact for fact in facts if isinstance(fact, LogRolledBack)]
        assert bits(await committed(store, 3, "m00")) == bits(replayed(first(), blobs(0, 3)))

    with_store(url, act)


@on_one_server
def test_a_check_finds_records_whose_hint_was_lost(url: str) -> None:
    async def act(store: Store) -> None:
        for name in NAMES:
            await store.models.create(name, first())
            await append(store, blobs(0, 2), name)  # no learner runs
        async with learning(store):
            for name in NAMES:
                await committed(store, 2, name)

    with_store(url, act)


@on_one_server
def test_a_busy_model_leaves_room_for_the_others(url: str) -> None:
    async def act(store: Store) -> None:
        names = NAMES[:6]
        for name in names:
            await store.models.create(name, first())
        await append(store, blobs(0, 400), names[0])
        async with learning(store, replace(RESTING, sessions=1, batch=1, turn=0.02)):
            for name in names[1:]:
                await append(store, [feedback(1)], name)
            for name in names[1:]:
                await committed(store, 1, name)
            assert (await store.states.position(names[0]))[1] < 400

    with_store(url, act)


@on_one_server
def test_a_model_is_taken_over_when_the_lease_of_a_dead_learner_ends(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("m00", first())
        async with learning(store):
            assert await store.leases.take("m00", 0, 1.0)  # of a learner that is killed
            await append(store, blobs(0, 2), "m00")
            started = monotonic()
            await committed(store, 2, "m00")
            assert monotonic() - started < 1.0 + 1.0

    with_store(url, act)


@on_one_server
def test_a_damaged_model_that_rests_is_rebuilt(url: str) -> None:
    """The worker that finds the damage calls the learners."""

    async def act(store: Store) -> None:
        await store.models.create("m00", first())
        async with learning(store):
            await append(store, blobs(0, 3), "m00")
            whole = await committed(store, 3, "m00")
            await eventually(lambda: leases(store), lambda led: led == [])
            with client(url) as connection:
                connection.hset(Keys("m00").state, "w", b"not a blob")
            cache = WeightCache(store, poll=0.02)
            await cache.start()

            async def served() -> int:
                return cache.serving["m00"].version if "m00" in cache.serving else -1

            await eventually(served, lambda version: version == 3)
            assert cache.damaged == set()
            await cache.close()
        assert bits((await store.states.load("m00")).state) == bits(whole)

    with_store(url, act)


@on_one_server
@pytest.mark.parametrize(
    ("key", "value"),
    [(Keys("m00").state, None), (Keys("m00").state, b"x"), (Keys("m00").seq, b"x")],
)
def test_a_damaged_position_stops_only_its_model(url: str, key: str, value: bytes | None) -> None:
    async def act(store: Store) -> None:
        await store.models.create("m00", first())
        with client(url) as connection:
            if key == Keys("m00").seq:
                connection.set(key, value)
            elif value is None:
                connection.hdel(key, "seq")
            else:
                connection.hset(key, "seq", value)
        async with learning(store):
            cache = WeightCache(store, poll=0.02)
            await cache.start()
            assert cache.started
            await store.models.create("m01", first())
            await append(store, blobs(0, 2), "m01")
            assert await cache.reach("m01", 2, TIMEOUT)
            with client(url) as connection:  # no hint: only a check finds it
                connection.delete(Keys("m01").state, Keys("m01").seq, Keys("m01").lease)

            async def served() -> list[str]:
                return sorted(cache.serving)

            await eventually(served, lambda names: "m01" not in names)
            await cache.close()

    with_store(url, act)


@on_one_server
def test_the_log_of_a_model_that_rests_is_trimmed_to_its_size_limit(url: str) -> None:
    """Each session reads one record; a version is due after a few."""

    async def act(store: Store) -> None:
        await store.models.create("m00", first())
        async with learning(store, replace(RESTING, rest=0.01, log_bytes=10_000)):
            for at in range(12):
                await append(store, [feedback(at)], "m00")
                await committed(store, at + 1, "m00")
                await eventually(lambda: leases(store), lambda led: led == [])
        assert len(await store.states.versions("m00")) > 1

    with_store(url, act)
