"""Rollbacks of the store after a failover, detected by weight cache, learner and appender (I12)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.domain.facts import LogRolledBack, Served, ServingFact
from app.errors import RolledBack
from app.ingest.appender import Appender, Post
from app.learning.learner import Learner
from app.learning.options import Fact, LearnerOptions
from app.learning.pool import learn_all
from app.learning.session import LeaderSession
from app.observability.metrics import Metrics
from app.observability.model_metrics import StoreHealth
from app.serving.weight_cache import WeightCache
from app.storage.rollback import rolled_back
from app.storage.states import LogPosition
from app.storage.store import Store
from tests.faults.event_generator import MODEL, EventGenerator, new_model
from tests.faults.feedback_clients import Ledger, post_until_answered
from tests.servers import client, eventually, keys_like, server, url, with_store

__all__ = ["server", "url"]  # fixtures

#: A learner that delays its commits.
SLOW = LearnerOptions(lease=60.0, commit=3600.0, idle=0.02)
SHORT_INTERVALS = LearnerOptions(lease=60.0, idle=0.02)


class StoreSnapshot:
    """A copy of the store, which can be restored."""

    def __init__(self, url: str) -> None:
        self._url = url
        with client(url) as connection:
            self._kept = {key: connection.dump(key) for key in keys_like(connection)}

    def restore(self) -> None:
        with client(self._url) as connection:
            connection.flushall()
            for key, value in self._kept.items():
                connection.restore(key, 0, value)


async def feed(store: Store, name: str, count: int = 3) -> None:
    """Append records with unique names."""
    epoch, *_ = await store.states.position(MODEL)
    generator = EventGenerator(1, name)
    events = [generator.labels() for _ in range(count)]
    await post_until_answered(store, epoch, events, Ledger())


async def learnt(store: Store) -> LogPosition:
    """Learn everything, in one learner term."""
    stop = asyncio.Event()
    learning = asyncio.create_task(Learner(store, MODEL, SHORT_INTERVALS).run(stop))
    tail = await store.log.tail(MODEL)
    await eventually(lambda: store.states.position(MODEL), lambda place: place[1] == tail)
    stop.set()
    await learning
    return await store.states.position(MODEL)


Story = Callable[[Store, StoreSnapshot], Awaitable[None]]


async def rolls_back(_: Store, snapshot: StoreSnapshot) -> None:
    snapshot.restore()


async def rolls_back_and_grows_as_far(store: Store, snapshot: StoreSnapshot) -> None:
    snapshot.restore()
    await feed(store, "other", 3)
    await learnt(store)


async def rolls_back_and_grows_further(store: Store, snapshot: StoreSnapshot) -> None:
    snapshot.restore()
    await feed(store, "other", 5)
    await learnt(store)


async def grows(store: Store, _: StoreSnapshot) -> None:
    await feed(store, "more", 4)
    await learnt(store)


STORIES = [
    (rolls_back, True),
    (rolls_back_and_grows_as_far, True),
    (rolls_back_and_grows_further, True),
    (grows, False),
]


@pytest.mark.parametrize(("story", "is_rollback"), STORIES)
def test_two_log_positions_reveal_a_rollback_of_the_store(
    url: str, story: Story, is_rollback: bool
) -> None:
    async def act(store: Store) -> bool:
        await new_model(store)
        await feed(store, "first")
        await learnt(store)
        snapshot = StoreSnapshot(url)
        await feed(store, "second")
        before = await learnt(store)
        await story(store, snapshot)
        return await rolled_back(store, MODEL, before, await store.states.position(MODEL))

    assert with_store(url, act) == is_rollback


def test_deleting_and_recreating_a_model_is_not_a_rollback(url: str) -> None:
    """Two positions of one epoch are compared; the log already belongs to the next epoch."""

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


@pytest.mark.parametrize(("story", "is_rollback"), STORIES)
def test_the_weight_cache_detects_a_rollback_and_serves_the_stored_version(
    url: str, story: Story, is_rollback: bool
) -> None:
    """Also if the store was rolled back and grew between two polls, past the old version."""

    async def act(store: Store) -> list[bool]:
        facts_seen: list[ServingFact] = []
        weight_cache = WeightCache(store, facts_seen.append)
        await new_model(store)
        await feed(store, "first")
        await learnt(store)
        snapshot = StoreSnapshot(url)
        await feed(store, "second")
        await learnt(store)
        await weight_cache._take(MODEL, await store.states.load_weights(MODEL))
        await story(store, snapshot)
        await weight_cache._refresh([MODEL])
        found = await store.states.load_weights(MODEL)
        assert weight_cache.serving[MODEL].position == (found.epoch, found.seq, found.chain)
        assert (weight_cache.serving[MODEL].weights == found.weights).all()
        return [isinstance(one, Served) and one.backwards for one in facts_seen]

    assert with_store(url, act) == [False, is_rollback]


@pytest.mark.parametrize(("story", "is_rollback"), STORIES)
def test_a_learner_detects_a_rollback_and_continues_from_the_stored_state(
    url: str, story: Story, is_rollback: bool
) -> None:
    async def act(store: Store) -> None:
        await new_model(store)
        await feed(store, "first")
        await learnt(store)
        snapshot, stop, facts = StoreSnapshot(url), asyncio.Event(), list[Fact]()
        await feed(store, "second")
        metrics = Metrics()

        def report(fact: Fact) -> None:
            facts.append(fact)
            metrics.learnt(fact)

        learner = Learner(store, MODEL, SHORT_INTERVALS, report)
        learning = asyncio.create_task(learner.run(stop))
        await eventually(lambda: store.states.position(MODEL), lambda place: place[1] == 6)
        stop.set()
        await learning
        await story(store, snapshot)
        stop.clear()
        learning = asyncio.create_task(learner.run(stop))
        await feed(store, "last", 2)
        tail = await store.log.tail(MODEL)
        await eventually(lambda: store.states.position(MODEL), lambda place: place[1] == tail)
        stop.set()
        await learning
        assert [fact for fact in facts if isinstance(fact, LogRolledBack)] == [
            LogRolledBack(MODEL)
        ] * is_rollback
        page = metrics.page([], {}, StoreHealth(True, 0.0)).decode()
        assert f'solar_version_backwards_total{{model="{MODEL}"}} {float(is_rollback)}' in page

    with_store(url, act)


def test_a_busy_learner_detects_a_rollback_quickly(url: str) -> None:
    async def act(store: Store) -> None:
        await new_model(store)
        await feed(store, "first")
        await learnt(store)
        snapshot, stop, facts = StoreSnapshot(url), asyncio.Event(), list[Fact]()
        learning = asyncio.create_task(learn_all(store, stop, SHORT_INTERVALS, facts.append))
        await feed(store, "second")
        await eventually(lambda: store.states.position(MODEL), lambda place: place[1] == 6)
        snapshot.restore()

        async def facts_seen() -> list[Fact]:
            return [fact for fact in facts if isinstance(fact, LogRolledBack)]

        assert await eventually(facts_seen, bool) == [LogRolledBack(MODEL)]
        stop.set()
        await learning

    with_store(url, act)


def test_a_learner_never_commits_lost_records_over_new_ones(url: str) -> None:
    """Records read before the failover, uncommitted: later records must not build on them."""

    async def act(store: Store) -> None:
        await new_model(store)
        await feed(store, "first")
        fence = await store.leases.take(MODEL, 0, 60.0)
        term = await LeaderSession.begin(store, MODEL, fence, SLOW)
        await rounds(term, 3)
        await term.commit_done()  # the first batch is committed at once
        snapshot = StoreSnapshot(url)
        await feed(store, "lost", 3)
        await rounds(term, 6)
        snapshot.restore()
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


def test_the_appender_detects_a_rollback_of_the_log(url: str) -> None:
    async def act(store: Store) -> list[LogRolledBack]:
        epoch, facts = await new_model(store), list[LogRolledBack]()
        appender, generator = Appender(store, 1 << 40, 60.0, facts.append), EventGenerator(2, "e")

        async def post(count: int) -> None:
            await asyncio.gather(
                *(
                    appender.post((MODEL, epoch), Post([generator.labels()], {}))
                    for _ in range(count)
                )
            )

        await post(3)
        snapshot = StoreSnapshot(url)
        await post(3)
        assert facts == []
        snapshot.restore()
        await post(1)
        await post(5)
        return facts

    assert with_store(url, act) == [LogRolledBack(MODEL)]
