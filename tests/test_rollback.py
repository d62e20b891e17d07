"""A store that went back, as after a failover: noticed by whoever had seen more of it (I12)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.domain.facts import LogRolledBack, Served
from app.errors import RolledBack
from app.ingest.appender import Appender, Post
from app.learning.learner import Learner
from app.learning.pool import learn_all
from app.learning.session import Fact, LeaderSession, LearnerOptions
from app.observability.metrics import Metrics, StoreHealth
from app.serving.weight_cache import WeightCache
from app.storage.rollback import rolled_back
from app.storage.states import LogPosition
from app.storage.store import Store
from tests.faults.invented import MODEL, Invented, new_model
from tests.faults.posters import Ledger, insist
from tests.servers import client, eventually, keys_like, server, url, with_store

__all__ = ["server", "url"]  # fixtures

#: A learner that commits only when it must.
SLOW = LearnerOptions(lease=60.0, commit=3600.0, idle=0.02)
QUICK = LearnerOptions(lease=60.0, idle=0.02)


class Past:
    """The store as it was once; it can be so again."""

    def __init__(self, url: str) -> None:
        self._url = url
        with client(url) as connection:
            self._kept = {key: connection.dump(key) for key in keys_like(connection)}

    def comes_back(self) -> None:
        with client(self._url) as connection:
            connection.flushall()
            for key, value in self._kept.items():
                connection.restore(key, 0, value)


async def feed(store: Store, name: str, count: int = 3) -> None:
    """Some records, named so that no two calls make the same."""
    epoch, *_ = await store.states.position(MODEL)
    named = Invented(1, name)
    events = [named.labels() for _ in range(count)]
    await insist(store, epoch, events, Ledger())


async def learnt(store: Store) -> LogPosition:
    """Everything, by a learner whose term ends then."""
    stop = asyncio.Event()
    learning = asyncio.create_task(Learner(store, MODEL, QUICK).run(stop))
    tail = await store.log.tail(MODEL)
    await eventually(lambda: store.states.position(MODEL), lambda place: place[1] == tail)
    stop.set()
    await learning
    return await store.states.position(MODEL)


Story = Callable[[Store, Past], Awaitable[None]]


async def goes_back(_: Store, past: Past) -> None:
    past.comes_back()


async def goes_back_and_on_as_far(store: Store, past: Past) -> None:
    past.comes_back()
    await feed(store, "other", 3)
    await learnt(store)


async def goes_back_and_on_further(store: Store, past: Past) -> None:
    past.comes_back()
    await feed(store, "other", 5)
    await learnt(store)


async def goes_on(store: Store, _: Past) -> None:
    await feed(store, "more", 4)
    await learnt(store)


STORIES = [
    (goes_back, True),
    (goes_back_and_on_as_far, True),
    (goes_back_and_on_further, True),
    (goes_on, False),
]


@pytest.mark.parametrize(("story", "back"), STORIES)
def test_two_places_tell_whether_the_store_went_back(url: str, story: Story, back: bool) -> None:
    async def act(store: Store) -> bool:
        await new_model(store)
        await feed(store, "first")
        await learnt(store)
        past = Past(url)
        await feed(store, "second")
        before = await learnt(store)
        await story(store, past)
        return await rolled_back(store, MODEL, before, await store.states.position(MODEL))

    assert with_store(url, act) == back


def test_a_model_that_was_deleted_and_created_anew_meanwhile_did_not_go_back(url: str) -> None:
    """Two places of one life are compared, and the log is that of the next one by now."""

    async def act(store: Store) -> bool:
        await new_model(store)
        before = await store.states.position(MODEL)
        await feed(store, "first")
        now = await learnt(store)
        await store.models.delete(MODEL)
        await new_model(store)
        await feed(store, "other")
        return await rolled_back(store, MODEL, before, now)

    assert not with_store(url, act)


@pytest.mark.parametrize(("story", "back"), STORIES)
def test_a_ranker_notices_a_store_that_went_back_and_serves_what_it_has(
    url: str, story: Story, back: bool
) -> None:
    """Also one that went back and on between two looks: the number alone says nothing."""

    async def act(store: Store) -> list[bool]:
        told: list[Served] = []
        weight_cache = WeightCache(store, told.append)
        await new_model(store)
        await feed(store, "first")
        await learnt(store)
        past = Past(url)
        await feed(store, "second")
        await learnt(store)
        await weight_cache._take(MODEL, await store.states.load_weights(MODEL))
        await story(store, past)
        await weight_cache._refresh(MODEL)
        found = await store.states.load_weights(MODEL)
        assert weight_cache.serving[MODEL].place == (found.epoch, found.seq, found.chain)
        assert (weight_cache.serving[MODEL].weights == found.weights).all()
        return [one.backwards for one in told]

    assert with_store(url, act) == [False, back]


@pytest.mark.parametrize(("story", "back"), STORIES)
def test_a_learner_notices_a_store_that_went_back_and_learns_on_from_it(
    url: str, story: Story, back: bool
) -> None:
    async def act(store: Store) -> None:
        await new_model(store)
        await feed(store, "first")
        await learnt(store)
        past, stop, facts = Past(url), asyncio.Event(), list[Fact]()
        await feed(store, "second")
        metrics = Metrics()

        def tell(fact: Fact) -> None:
            facts.append(fact)
            metrics.learnt(fact)

        learner = Learner(store, MODEL, QUICK, tell)
        learning = asyncio.create_task(learner.run(stop))
        await eventually(lambda: store.states.position(MODEL), lambda place: place[1] == 6)
        stop.set()
        await learning
        await story(store, past)
        stop.clear()
        learning = asyncio.create_task(learner.run(stop))
        await feed(store, "last", 2)
        tail = await store.log.tail(MODEL)
        await eventually(lambda: store.states.position(MODEL), lambda place: place[1] == tail)
        stop.set()
        await learning
        assert [fact for fact in facts if isinstance(fact, LogRolledBack)] == [
            LogRolledBack(MODEL)
        ] * back
        page = metrics.page([], {}, StoreHealth(True, 0.0)).decode()
        assert f'solar_version_backwards_total{{model="{MODEL}"}} {float(back)}' in page

    with_store(url, act)


def test_a_learner_at_work_notices_within_a_moment(url: str) -> None:
    async def act(store: Store) -> None:
        await new_model(store)
        await feed(store, "first")
        await learnt(store)
        past, stop, facts = Past(url), asyncio.Event(), list[Fact]()
        learning = asyncio.create_task(learn_all(store, stop, QUICK, facts.append))
        await feed(store, "second")
        await eventually(lambda: store.states.position(MODEL), lambda place: place[1] == 6)
        past.comes_back()

        async def told() -> list[Fact]:
            return [fact for fact in facts if isinstance(fact, LogRolledBack)]

        assert await eventually(told, bool) == [LogRolledBack(MODEL)]
        stop.set()
        await learning

    with_store(url, act)


def test_what_was_learnt_of_lost_records_is_never_committed_over_others(url: str) -> None:
    """Read before the failover, and uncommitted: the next records would be put on top of them."""

    async def act(store: Store) -> None:
        await new_model(store)
        await feed(store, "first")
        fence = await store.leases.take(MODEL, 0, 60.0)
        term = await LeaderSession.begin(store, MODEL, fence, SLOW)
        await rounds(term, 3)
        await term.commit_done()  # the first batch is committed at once
        past = Past(url)
        await feed(store, "lost", 3)
        await rounds(term, 6)
        past.comes_back()
        await feed(store, "other", 5)
        await rounds(term, 8)
        with pytest.raises(RolledBack, match="the log lost records up to"):
            await commit(term)
        assert (await store.states.position(MODEL))[1] == 1
        await store.leases.release(MODEL, fence)
        await learnt(store)

    async def rounds(term: Any, until: int) -> None:
        while term._reducer.seq < until:
            await term.round()

    async def commit(term: Any) -> None:
        await term.commit()
        await term.commit_done()

    with_store(url, act)


def test_a_poster_notices_that_the_log_went_back(url: str) -> None:
    async def act(store: Store) -> list[LogRolledBack]:
        epoch, facts = await new_model(store), list[LogRolledBack]()
        appender, named = Appender(store, 1 << 40, 60.0, facts.append), Invented(2, "e")

        async def post(count: int) -> None:
            await asyncio.gather(
                *(appender.post((MODEL, epoch), Post([named.labels()], {})) for _ in range(count))
            )

        await post(3)
        past = Past(url)
        await post(3)
        assert facts == []
        past.comes_back()
        await post(1)
        await post(5)
        return facts

    assert with_store(url, act) == [LogRolledBack(MODEL)]
