"""Weights that rank in duels only, in memory: followers and kept versions."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.domain import codec
from app.domain.duels import SUBMITTED, VERSION, Duel, DuelState, EndDuel
from app.domain.followers import MOST_BEHIND
from app.errors import IsFollower, NoSuchModel
from app.learning.learner import warm_up
from app.serving.served_model import ServedModel
from app.serving.weight_cache import WeightCache
from app.storage.keys import keys_of
from app.storage.store import Store
from tests.servers import client, eventually, server, url, with_store
from tests.test_follower_learner import follow
from tests.test_learner import append, blobs, committed, first, learning
from tests.test_weight_cache import following

__all__ = ["server", "url"]  # fixtures

FOLLOWER = "books/books-b"


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile first: that takes longer than a test waits."""
    warm_up()


def with_cache(url: str, act: Callable[[Store, WeightCache], Awaitable[None]], **pace: Any) -> None:
    """Run a check on a model with a follower, and a cache."""

    async def run(store: Store) -> None:
        await store.models.create("books", first())
        await follow(store)
        async with following(store, **pace) as cache:
            await act(store, cache)

    with_store(url, run)


async def until(cache: WeightCache, found: Callable[[WeightCache], object]) -> None:
    async def now() -> object:
        return found(cache)

    await eventually(now, bool)


def in_duel(served: ServedModel, challenger: str, **settings: Any) -> ServedModel:
    return replace(served, duel=DuelState(7, Duel(challenger, 0.5, 0.05, **settings)))


def test_followers_are_served_by_their_addresses_only(url: str) -> None:
    async def act(store: Store, cache: WeightCache) -> None:
        await until(cache, lambda one: FOLLOWER in one.followers)
        assert cache.serving.keys() == {"books"}
        assert cache.names == {"books"}
        with pytest.raises(IsFollower, match="books-b follows books"):
            await cache.find("books-b")
        with pytest.raises(NoSuchModel):
            await cache.find("books-c")
        async with learning(store):
            await append(store, blobs(0, 5))
            state = await committed(store, 5, FOLLOWER)
        await until(cache, lambda one: one.followers[FOLLOWER].version == 5)
        assert cache.followers[FOLLOWER].weights.tobytes() == state.model.weights.tobytes()

    with_cache(url, act)


def test_a_deleted_follower_is_dropped_and_another_one_of_its_name_is_served(url: str) -> None:
    async def act(store: Store, cache: WeightCache) -> None:
        await until(cache, lambda one: FOLLOWER in one.followers)
        before = cache.followers[FOLLOWER].epoch
        await store.followers.delete(FOLLOWER)
        await until(cache, lambda one: not one.followers)
        assert cache.follower_cache.leaders == {}
        await follow(store, gamma=3.0)
        await until(cache, lambda one: FOLLOWER in one.followers)
        found = cache.followers[FOLLOWER]
        assert (found.epoch, found.config.gamma) == (before + 1, 3.0)
        await store.followers.delete_all("books")
        await store.models.delete("books")
        await until(cache, lambda one: not one.followers and not one.serving)

    with_cache(url, act)


def test_a_follower_duels_unless_it_is_late_stalled_or_gone(url: str) -> None:
    async def act(store: Store, cache: WeightCache) -> None:
        await until(cache, lambda one: FOLLOWER in one.followers)
        served = in_duel(cache.serving["books"], "books-b")
        sides = cache.sides(served)
        assert sides is not None
        assert sides.champion is served.weights
        assert sides.challenger is cache.followers[FOLLOWER].weights
        assert cache.sides(replace(served, version=MOST_BEHIND)) is not None
        assert cache.sides(replace(served, version=MOST_BEHIND + 1)) is None
        cache.tails["books"] = MOST_BEHIND + 1
        assert cache.sides(served) is None
        cache.tails["books"] = 0
        narrow = replace(served, weights=np.zeros(2))
        assert cache.sides(narrow) is None
        assert cache.sides(in_duel(served, "books-c")) is None
        await store.followers.stall(FOLLOWER)
        await until(cache, lambda one: FOLLOWER in one.stalled)
        assert cache.sides(served) is None
        await store.followers.delete(FOLLOWER)
        await follow(store)
        await until(cache, lambda one: one.sides(served) is not None)
        assert not cache.stalled

    with_cache(url, act)


def test_the_submitted_order_and_a_champion_that_is_a_follower_are_sides(url: str) -> None:
    async def act(_: Store, cache: WeightCache) -> None:
        await until(cache, lambda one: FOLLOWER in one.followers)
        plain = cache.serving["books"]
        assert cache.sides(plain) is None
        found = cache.sides(in_duel(plain, SUBMITTED))
        assert found is not None
        assert found.champion is plain.weights
        assert found.challenger is None
        found = cache.sides(in_duel(plain, SUBMITTED, champion="books-b"))
        assert found is not None
        assert found.champion is cache.followers[FOLLOWER].weights
        assert cache.sides(in_duel(plain, SUBMITTED, champion="books-c")) is None
        over = DuelState(7, Duel(SUBMITTED, 0.5, 0.05), ended=9)
        assert cache.sides(replace(plain, duel=over)) is None

    with_cache(url, act)


def test_a_kept_version_is_loaded_once_and_forgotten_after_its_duel(url: str) -> None:
    async def act(store: Store, cache: WeightCache) -> None:
        async with learning(store):
            await append(store, blobs(0, 5))
            await committed(store, 5)
            epoch, *_ = await store.states.position("books")
            await store.versions.keep_for_duel("books", epoch, 0)
            await append(store, [codec.dump_record(Duel(VERSION, 0.5, 0.05, 0))])
            await committed(store, 6)
            await until(cache, lambda one: one.serving["books"].version == 6)
            served = cache.serving["books"]
            found = cache.sides(served)
            assert found is not None
            assert found.challenger is not None
            assert found.challenger.tobytes() == first().model.weights.tobytes()
            with client(url) as connection:  # it is in memory: nothing is read again
                connection.delete(keys_of("books").dueling(epoch, 0))
            await append(store, blobs(6, 9))
            await committed(store, 9)
            await until(cache, lambda one: one.serving["books"].version == 9)
            again = cache.sides(cache.serving["books"])
            assert again is not None
            assert again.challenger is found.challenger
            await append(store, [codec.dump_record(EndDuel(6))])
            await committed(store, 10)
        await until(cache, lambda one: one.serving["books"].version == 10)
        assert cache.follower_cache._versions == {}

    with_cache(url, act)


def test_a_version_that_is_not_there_yet_is_loaded_by_a_later_check(url: str) -> None:
    async def act(store: Store, cache: WeightCache) -> None:
        async with learning(store):
            epoch, *_ = await store.states.position("books")
            await append(store, [codec.dump_record(Duel(VERSION, 0.5, 0.05, 0))])
            await committed(store, 1)
        await until(cache, lambda one: one.serving["books"].duel is not None)
        assert cache.sides(cache.serving["books"]) is None
        await store.versions.keep_for_duel("books", epoch, 0)
        await until(cache, lambda one: one.sides(one.serving["books"]) is not None)
        await store.followers.delete_all("books")
        await store.models.delete("books")
        await until(cache, lambda one: not one.serving)
        assert cache.follower_cache._versions == {}

    with_cache(url, act)
