"""Weights in memory: they follow the store, survive its outage, and are never damaged."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from app.domain.facts import Served, ServingFact
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.errors import BadBlob, NoSuchModel, Unavailable
from app.learning.learner import warm_up
from app.serving.served_model import ServedModel
from app.serving.weight_cache import WeightCache
from app.storage import hints
from app.storage.cancellation import end
from app.storage.embedded.server import EmbeddedServer
from app.storage.keys import Keys
from app.storage.store import Store
from tests.servers import TIMEOUT, client, eventually, server, url, with_store
from tests.test_learner import append, blobs, first, learning

__all__ = ["server", "url"]  # fixtures

STATE = Keys("books").state


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile first: that takes longer than a test waits."""
    warm_up()


@contextlib.asynccontextmanager
async def following(
    store: Store, facts: list[ServingFact] | None = None, **pace: float
) -> AsyncIterator[WeightCache]:
    weight_cache = WeightCache(
        store, (facts if facts is not None else []).append, **{"poll": 0.02, **pace}
    )
    await weight_cache.start()
    try:
        yield weight_cache
    finally:
        ended = await close(weight_cache)
    assert ended


async def close(weight_cache: WeightCache) -> bool:
    """Close the cache; return whether no task was left. Remaining tasks are cancelled."""
    closing = asyncio.create_task(weight_cache.close())
    await asyncio.wait([closing], timeout=TIMEOUT / 10)
    ended = closing.done() and not running_followers()
    while tasks := running_followers():
        await end(tasks)
    await closing
    return ended


def running_followers() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if "WeightCache._" in repr(task)]


async def learnt(store: Store, start: int, stop: int) -> None:
    """Append records, learn and commit them."""
    await append(store, blobs(start, stop))
    async with learning(store):
        await eventually(lambda: store.states.position("books"), lambda place: place[1] == stop)


async def served(weight_cache: WeightCache, version: int) -> ServedModel:
    async def now() -> ServedModel | None:
        return weight_cache.serving.get("books")

    found = await eventually(now, lambda one: one is not None and one.version == version)
    assert found is not None
    return found


def saved(url: str) -> dict[bytes, bytes]:
    with client(url) as connection:
        found: dict[bytes, bytes] = connection.hgetall(STATE)
    return found


def put(url: str, fields: dict[Any, Any]) -> None:
    """Write fields without publishing a hint."""
    with client(url) as connection:
        connection.hset(STATE, mapping=fields)


@contextlib.contextmanager
def paused(server: EmbeddedServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_every_commit_is_served_with_the_weights_that_were_committed(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        facts: list[ServingFact] = []
        async with following(store, facts) as weight_cache:
            assert (await weight_cache.find("books")).version == 0
            await learnt(store, 0, 5)
            serving, state = await served(weight_cache, 5), (await store.states.load("books")).state
            assert serving.weights.tobytes() == state.model.weights.tobytes()
            assert serving.sums.tobytes() == state.sums.tobytes()
            assert serving.config == state.model.config
            diagonal = [0, 2, 5, 9]
            assert serving.trace == pytest.approx(state.model.spread[diagonal].sum())
            assert not any(isinstance(fact, Served) and fact.backwards for fact in facts)

    with_store(url, act)


def test_a_hint_triggers_an_update_before_the_next_poll(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with following(store, poll=10 * TIMEOUT) as weight_cache:
            await weight_cache.find("books")
            with client(url) as connection:  # a subscriber is connected
                await eventually(lambda: asyncio.to_thread(connection.pubsub_channels), len)
            await learnt(store, 0, 3)
            await served(weight_cache, 3)

    with_store(url, act)


def test_polling_replaces_a_lost_hint(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await learnt(store, 0, 3)
        later = saved(url)
        with client(url) as connection:
            connection.flushall()
        await store.models.create("books", first())
        async with following(store) as weight_cache:
            assert (await weight_cache.find("books")).version == 0
            put(url, later)
            await served(weight_cache, 3)

    with_store(url, act)


def test_a_version_rollback_is_detected_counted_and_served(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await learnt(store, 0, 3)
        earlier, facts = saved(url), list[ServingFact]()
        async with following(store, facts) as weight_cache:
            await learnt(store, 3, 6)
            await served(weight_cache, 6)
            assert not any(isinstance(fact, Served) and fact.backwards for fact in facts)
            put(url, earlier)
            serving = await served(weight_cache, 3)
            assert [isinstance(fact, Served) and fact.backwards for fact in facts].count(True) == 1
            state = (await store.states.load("books")).state
            assert serving.weights.tobytes() == state.model.weights.tobytes()

    with_store(url, act)


def test_the_same_version_with_other_records_is_detected_counted_and_served(url: str) -> None:
    """A failover loses learnt records, and as many others are learnt before the next poll."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, blobs(10, 13))
        async with learning(store):
            await eventually(lambda: store.states.position("books"), lambda place: place[1] == 3)
        other, facts = saved(url), list[ServingFact]()
        with client(url) as connection:
            connection.flushall()
        await store.models.create("books", first())
        await learnt(store, 0, 3)
        async with following(store, facts) as weight_cache:
            before = await served(weight_cache, 3)
            put(url, other)

            async def now() -> bytes:
                return weight_cache.serving["books"].chain

            await eventually(now, lambda chain: chain == other[b"chain"])
            assert weight_cache.serving["books"].version == 3
            assert weight_cache.serving["books"].weights.tobytes() != before.weights.tobytes()
            assert [isinstance(fact, Served) and fact.backwards for fact in facts].count(True) == 1

    with_store(url, act)


async def two_versions(store: Store, url: str) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The fields of a model at versions 4 and 5; the store has version 4."""
    await store.models.create("books", first())
    await learnt(store, 0, 4)
    four = saved(url)
    await learnt(store, 4, 5)
    five = saved(url)
    put(url, four)
    return four, five


def flipped(fields: dict[bytes, bytes], part: bytes) -> dict[bytes, bytes]:
    damaged = bytearray(fields[part])
    damaged[-9] ^= 1
    return {**fields, part: bytes(damaged)}


@pytest.mark.parametrize("part", [b"w", b"sums", b"meta"])
def test_damaged_weights_are_never_served_and_reported_until_they_are_repaired(
    url: str, part: bytes
) -> None:
    async def act(store: Store) -> None:
        _, five = await two_versions(store, url)
        async with following(store) as weight_cache:
            before = await served(weight_cache, 4)
            put(url, flipped(five, part))
            await eventually(damage(weight_cache), lambda names: names == {"books"})
            assert await weight_cache.find("books") is before
            put(url, five)
            await served(weight_cache, 5)
            assert weight_cache.damaged == set()

    with_store(url, act)


def test_damage_ends_when_the_store_returns_to_the_served_version(url: str) -> None:
    """As after a failover to a replica without the damaged version."""

    async def act(store: Store) -> None:
        four, five = await two_versions(store, url)
        async with following(store) as weight_cache:
            await served(weight_cache, 4)
            put(url, flipped(five, b"w"))
            await eventually(damage(weight_cache), lambda names: names == {"books"})
            put(url, four)
            await eventually(damage(weight_cache), lambda names: names == set())

    with_store(url, act)


def damage(weight_cache: WeightCache) -> Any:
    async def now() -> set[str]:
        return set(weight_cache.damaged)

    return now


def test_a_model_damaged_from_the_start_is_not_served_until_it_is_repaired(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        good = saved(url)
        put(url, {"w": b"not a blob"})
        async with following(store) as weight_cache:
            assert weight_cache.damaged == {"books"}
            with pytest.raises(BadBlob):
                await weight_cache.find("books")
            put(url, good)
            assert (await served(weight_cache, 0)).version == 0
            assert weight_cache.damaged == set()

    with_store(url, act)


def test_a_deleted_damaged_model_is_no_longer_reported(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        put(url, {"w": b"not a blob"})
        async with following(store) as weight_cache:
            assert weight_cache.damaged == {"books"}
            await store.models.delete("books")
            await eventually(damage(weight_cache), lambda names: names == set())

    with_store(url, act)


def test_models_created_elsewhere_are_found_and_deleted_ones_are_dropped(url: str) -> None:
    async def act(store: Store) -> None:
        async with following(store) as weight_cache:
            with pytest.raises(NoSuchModel):
                await weight_cache.find("books")
            await store.models.create("books", first())
            await served(weight_cache, 0)
            await store.models.delete("books")

            async def names() -> list[str]:
                return list(weight_cache.serving)

            await eventually(names, lambda found: found == [])
            with pytest.raises(NoSuchModel):
                await weight_cache.find("books")

    with_store(url, act)


def test_a_recreated_model_is_a_new_one_and_no_rollback(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await learnt(store, 0, 3)
        facts: list[ServingFact] = []
        async with following(store, facts) as weight_cache:
            await served(weight_cache, 3)
            await store.models.delete("books")
            await store.models.create(
                "books", initial_state(ModelConfig(("other",)), seed=b"again")
            )
            serving = await served(weight_cache, 0)
            assert serving.config.features == ("other",)
            assert serving.epoch == 2
            assert not any(isinstance(fact, Served) and fact.backwards for fact in facts)
            await store.models.delete("books")
            await store.models.create("books", first(b"again"))

            async def epoch() -> int:
                return (await weight_cache.find("books")).epoch

            await eventually(epoch, lambda found: found == 3)
            await learnt(store, 0, 2)
            await served(weight_cache, 2)

    with_store(url, act)


def test_a_caller_that_waits_for_a_version_gets_it_when_it_is_served(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with following(store) as weight_cache:
            assert await weight_cache.reach("books", 1, 0.01) is None
            waiting = [
                asyncio.create_task(weight_cache.reach("books", 4, TIMEOUT)) for _ in range(3)
            ]
            await learnt(store, 0, 4)
            found = await asyncio.gather(*waiting)
            assert [one.version for one in found if one] == [4, 4, 4]
            assert (await weight_cache.reach("books", 2, 0.0)) is not None

    with_store(url, act)


def test_a_caller_that_waits_for_a_deleted_model_gets_an_error(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with following(store) as weight_cache:
            waiting = asyncio.create_task(weight_cache.reach("books", 1, TIMEOUT))
            await weight_cache.find("books")
            await store.models.delete("books")
            with pytest.raises(NoSuchModel):
                await waiting

    with_store(url, act)


def test_a_hanging_store_is_detected_and_the_weights_stay_served(
    server: EmbeddedServer, url: str
) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await learnt(store, 0, 2)
        async with following(store, check_timeout=0.2) as weight_cache:
            before = await served(weight_cache, 2)
            assert weight_cache.reachable

            async def reachable() -> bool:
                return weight_cache.reachable

            with paused(server):
                await eventually(reachable, lambda yes: not yes)
                assert await weight_cache.find("books") is before
                assert await weight_cache.reach("books", 3, 0.01) is None
            await eventually(reachable, bool)
            await learnt(store, 2, 3)
            await served(weight_cache, 3)

    with_store(url, act)


def test_served_arrays_are_read_only(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with following(store) as weight_cache:
            serving = await weight_cache.find("books")
            for array in (serving.weights, serving.sums):
                assert isinstance(array, np.ndarray)
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 1.0

    with_store(url, act)


def test_weights_loaded_at_startup_do_not_count_for_freshness(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await append(store, blobs(0, 1), time=5)
        async with learning(store):
            await eventually(lambda: store.states.position("books"), lambda place: place[1] == 1)
        facts: list[ServingFact] = []
        async with following(store, facts) as weight_cache:
            await served(weight_cache, 1)
            await append(store, blobs(1, 2), time=7)
            async with learning(store):
                await served(weight_cache, 2)
        assert [fact.appended for fact in facts if isinstance(fact, Served)] == [0, 7]

    with_store(url, act)


def test_a_first_load_longer_than_one_check_is_complete_before_requests_are_served(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(store: Store) -> None:
        names = [f"m{at}" for at in range(5)]
        for name in names:
            await store.models.create(name, first())
        load, loads = store.states.load_many, list[str]()

        async def slow(models: Sequence[str]) -> AsyncIterator[Any]:
            async for name, found in load(models):
                loads.append(name)
                if len(loads) in (3, 5):  # the check ends by its timeout; some models were loaded
                    await asyncio.Event().wait()
                yield name, found

        monkeypatch.setattr(store.states, "load_many", slow)
        async with following(store, check_timeout=0.2) as weight_cache:
            assert weight_cache.started
            assert sorted(weight_cache.serving) == names
            assert len(loads) == len(names) + 2

    with_store(url, act)


def test_a_start_waits_for_one_check_of_a_hanging_store_only(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        asked = list[str]()

        async def hanging(models: Sequence[str]) -> AsyncIterator[Any]:
            asked.extend(models)
            await asyncio.Event().wait()
            yield

        monkeypatch.setattr(store.states, "load_many", hanging)
        weight_cache = WeightCache(store, check_timeout=0.05)
        await weight_cache.start()
        try:
            assert not weight_cache.started
            assert asked == ["books"]
        finally:
            await weight_cache.close()

    with_store(url, act)


def test_a_first_load_beyond_its_timeout_goes_on_while_requests_are_served(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(store: Store) -> None:
        for name in ("a", "b"):
            await store.models.create(name, first())
        load, go_on = store.states.load_many, asyncio.Event()

        async def slow(models: Sequence[str]) -> AsyncIterator[Any]:
            async for name, found in load(models):
                if name == "b":
                    await go_on.wait()
                yield name, found

        monkeypatch.setattr(store.states, "load_many", slow)
        weight_cache = WeightCache(store, check_timeout=TIMEOUT)
        await weight_cache.start(timeout=0.2)
        try:
            assert not weight_cache.started
            go_on.set()

            async def started() -> bool:
                return weight_cache.started

            await eventually(started, bool)
            assert sorted(weight_cache.serving) == ["a", "b"]
        finally:
            await weight_cache.close()

    with_store(url, act)


def test_the_same_version_is_loaded_once(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        facts: list[ServingFact] = []
        async with following(store, facts) as weight_cache:
            found = await asyncio.gather(*(weight_cache.load("books") for _ in range(5)))
            assert all(one is found[0] for one in found)
            assert len(facts) == 1

    with_store(url, act)


def test_closing_stops_all_followers_at_once(url: str) -> None:
    """A cancelled command may not notice: Python 3.11's `wait_for`, which redis-py sends with."""

    async def act(store: Store) -> None:
        for at in range(20):
            await store.models.create(f"m{at}", first())
        for at in range(10):
            weight_cache = WeightCache(store, poll=0.02)
            await weight_cache.start()
            await asyncio.sleep(at / 1000)
            assert await close(weight_cache), "it goes on following"

    with_store(url, act)


def test_a_silent_subscription_is_replaced_and_all_models_are_checked(
    server: EmbeddedServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection may end without notice, and the server drops hints for it."""
    monkeypatch.setattr(hints, "SILENCE_SECONDS", 0.05)

    async def act(store: Store) -> None:
        heard = store.hints.changed()
        assert await anext(heard) == ""
        with paused(server):
            again = asyncio.ensure_future(anext(heard))
            await asyncio.sleep(0.3)  # of silence
            assert not again.done()
        assert await asyncio.wait_for(again, TIMEOUT) == ""
        await heard.aclose()  # type: ignore[attr-defined]

    with_store(url, act)


def test_an_unexpected_error_of_a_check_does_not_end_the_checks(url: str) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        await learnt(store, 0, 3)
        later = saved(url)
        with client(url) as connection:
            connection.flushall()
        await store.models.create("books", first())
        failures = [OSError("the metrics directory was removed")]

        def report(fact: ServingFact) -> None:
            if isinstance(fact, Served) and weight_cache.started and failures:
                raise failures.pop()

        weight_cache = WeightCache(store, report, poll=0.02)
        await weight_cache.start()
        before = saved(url)
        put(url, later)
        await served(weight_cache, 3)
        assert not failures
        put(url, before)
        await served(weight_cache, 0)
        assert await close(weight_cache)

    with_store(url, act)


def test_a_message_that_is_no_hint_is_ignored(url: str) -> None:
    async def act(store: Store) -> None:
        heard = store.hints.changed()
        assert await anext(heard) == ""
        with client(url) as connection:
            for message in (b"\xff", b"", b"no.model", b"books 812"):
                connection.publish("solar:changed", message)
        assert await anext(heard) == "books"
        await heard.aclose()  # type: ignore[attr-defined]

    with_store(url, act)


def test_a_hint_during_a_failed_load_is_not_lost(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner repairs a model while a worker reads the damaged state."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        loads, load_weights = 0, store.states.load_weights

        async def damaged_once(model: str) -> Any:
            nonlocal loads
            loads += 1
            if loads > 1:
                return await load_weights(model)
            with client(url) as connection:
                connection.publish("solar:changed", "books")
            async with asyncio.timeout(TIMEOUT):
                while "books" not in weight_cache._load_again:
                    await asyncio.sleep(0.001)
            raise BadBlob("damaged")

        async with following(store, poll=10 * TIMEOUT) as weight_cache:
            with client(url) as connection:  # a subscriber is connected
                await eventually(lambda: asyncio.to_thread(connection.pubsub_channels), len)
                monkeypatch.setattr(store.states, "load_weights", damaged_once)
                connection.publish("solar:changed", "books")

            async def damaged() -> bool:
                return loads > 1 and not weight_cache.damaged

            await eventually(damaged, bool)

    with_store(url, act)


def test_a_load_that_fails_during_a_check_is_repeated_by_the_next_check(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(store: Store) -> None:
        for name in ("a", "b"):
            await store.models.create(name, first())
        monkeypatch.setattr("app.serving.weight_cache.CHECKED_AT_ONCE", 1)
        weight_cache, checked = WeightCache(store), list[str]()
        positions, load_weights = store.states.positions, store.states.load_weights

        async def failing(_: str) -> Any:
            raise Unavailable("the store is unreachable")

        async def noted(models: Sequence[str]) -> Any:
            checked.extend(models)
            if len(checked) == 3:  # of the second round
                monkeypatch.setattr(store.states, "load_weights", failing)
                await weight_cache._try_load("b")
                monkeypatch.setattr(store.states, "load_weights", load_weights)
            return await positions(models)

        monkeypatch.setattr(store.states, "positions", noted)
        for _ in range(4):  # the first one checks all models
            await weight_cache._discover()
        assert checked == ["a", "b", "a", "b", "b"]

    with_store(url, act)


def test_the_newest_of_two_loads_at_the_same_time_is_served(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check and a hint: both compare with the log, because the learner's term has changed."""

    async def act(store: Store) -> None:
        await store.models.create("books", first())
        states = []
        for at in range(3):
            await learnt(store, at, at + 1)
            states.append(saved(url))
        weight_cache, gates = WeightCache(store), [asyncio.Event(), asyncio.Event()]
        waiting = iter(gates)

        async def compared(*_: object) -> bool:
            if gate := next(waiting, None):
                await gate.wait()
            return False

        monkeypatch.setattr("app.serving.weight_cache.rolled_back", compared)
        put(url, states[0])
        await weight_cache.load("books")
        loads = []
        for state in states[1:]:
            put(url, state)
            loads.append(asyncio.create_task(weight_cache.load("books")))
            await asyncio.sleep(0.1)
        for gate, load in zip(gates, loads, strict=True):
            gate.set()
            await load
        assert weight_cache.serving["books"].version == 3

    with_store(url, act)
