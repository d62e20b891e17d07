"""Shares of senders: in the feedback of the last minute, and in the memory of the store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.quotas import MOST_NAMES, RecentCounts, SourceQuota, StoreQuota
from app.storage.health import MOST_WORKERS
from app.storage.keys import USAGE
from app.storage.store import Store
from tests.servers import client, server, url, with_store

__all__ = ["server", "url"]  # fixtures

MINIMUM = SourceQuota.MINIMUM_WORK
EVENT = MINIMUM // 100


class Clock:
    """A clock that stands still until it is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quota(clock: Clock) -> SourceQuota:
    return SourceQuota(0.5, clock)


# ---- share of the work ----


def test_a_single_sender_is_never_refused(quota: SourceQuota) -> None:
    assert all(quota.take("web", MINIMUM) for _ in range(10))


def test_up_to_the_minimum_of_work_nobody_is_refused(quota: SourceQuota) -> None:
    assert quota.take("others", 1)
    assert quota.take("web", MINIMUM - 1)
    assert not quota.take("web", 1)


def test_a_sender_over_its_share_is_refused_until_others_post(quota: SourceQuota) -> None:
    assert quota.take("others", MINIMUM)
    assert quota.take("web", MINIMUM + 10)
    assert not quota.take("web", 1)
    assert quota.take("others", 10)
    assert quota.take("web", 1)


def test_one_event_of_much_work_counts_as_many_events(quota: SourceQuota) -> None:
    assert quota.take("web", 500 * EVENT)
    assert all(quota.take("others", EVENT) for _ in range(400))
    assert not quota.take("web", EVENT)


def test_refused_events_do_not_count(quota: SourceQuota) -> None:
    assert quota.take("others", MINIMUM)
    assert quota.take("web", MINIMUM + 1)
    for _ in range(5):
        assert not quota.take("web", 1000)
    assert quota.take("others", 1)
    assert quota.take("web", 1)


def test_work_that_is_given_back_does_not_count(quota: SourceQuota, clock: Clock) -> None:
    assert quota.take("others", MINIMUM)
    assert quota.take("web", MINIMUM)
    clock.now += 10.0
    assert quota.take("web", 5)
    quota.give_back("web", MINIMUM + 5)
    assert quota.take("web", MINIMUM)
    clock.now += 55.0  # the first counts are too old, those from after 10 s are not
    assert quota.take("web", 2)
    clock.now += 60.0
    assert quota._recent.counts() == {"web": MINIMUM + 2}
    quota._recent.drop_old()
    assert (quota._recent.counts(), quota._recent.total) == ({}, 0)


def test_two_senders_at_a_share_of_one_half_are_not_both_refused(quota: SourceQuota) -> None:
    assert quota.take("web", 60 * EVENT)
    assert quota.take("app", 60 * EVENT)
    taken = [quota.take(name, 10 * EVENT) for _ in range(20) for name in ("web", "app")]
    assert taken == [True] * 40


@given(
    share=st.floats(0.0, 0.99),
    posts=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 1000 * EVENT)), max_size=60),
)
def test_the_sender_with_the_least_work_can_always_post(
    share: float, posts: list[tuple[int, int]]
) -> None:
    quota, taken = SourceQuota(share, Clock()), dict[str, int]()
    for sender, count in posts:
        if quota.take(f"s{sender}", count):
            taken[f"s{sender}"] = taken.get(f"s{sender}", 0) + count
    if taken:
        assert quota.take(min(taken, key=lambda name: taken[name]), 1)


def test_only_the_last_minute_counts(quota: SourceQuota, clock: Clock) -> None:
    assert quota.take("others", 10)
    assert quota.take("web", MINIMUM)
    clock.now += 59.0
    assert not quota.take("web", 1)
    assert quota.take("others", 1)
    clock.now += 2.0
    assert quota.take("web", MINIMUM)


@given(
    steps=st.lists(
        st.tuples(st.floats(0.0, 20.0), st.sampled_from("abc"), st.integers(1, 9)), max_size=50
    )
)
def test_recent_counts_are_those_of_a_plain_list(steps: list[tuple[float, str, int]]) -> None:
    """Counts are dropped in parts of a thirtieth: a count lives up to that much shorter."""
    clock = Clock()
    recent, listed = RecentCounts(60.0, clock), list[tuple[float, str, int]]()
    for wait, name, count in steps:
        clock.now += wait
        recent.drop_old()
        recent.add(name, count)
        listed.append((clock.now, name, count))
        for one in "abc":
            young = sum(c for t, n, c in listed if n == one and t > clock.now - 58.0)
            old = sum(c for t, n, c in listed if n == one and t > clock.now - 60.0)
            assert young <= recent.of(one) <= old
        assert recent.total == sum(map(recent.of, "abc"))


def test_a_new_name_for_each_event_takes_bounded_memory(clock: Clock) -> None:
    """Without keys a client may state any source: those beyond the limit count together."""
    recent = RecentCounts(60.0, clock)
    for at in range(2 * MOST_NAMES):
        recent.add(f"name {at}", 1)
    assert recent.names("one more") == MOST_NAMES + 1
    assert recent.of("name 5") == 1
    assert recent.of("unseen") == MOST_NAMES
    clock.now += 61.0
    recent.drop_old()
    assert (recent.total, recent.names("one")) == (0, 1)


# ---- share of the store's memory ----


@pytest.fixture
def store_quota(clock: Clock) -> StoreQuota:
    quota = StoreQuota(60.0, clock)
    quota.add("flood", 1_000_000)
    return quota


def test_a_store_with_room_admits_every_key(store_quota: StoreQuota) -> None:
    store_quota.add("web", 1)
    assert store_quota.admits_impression("flood", 0.7)
    assert store_quota.admits_feedback("flood", 0.7)


def test_a_key_that_stores_alone_is_admitted_as_without_quotas(store_quota: StoreQuota) -> None:
    assert store_quota.admits_impression("flood", 0.8)
    assert not store_quota.admits_impression("flood", 0.81)
    assert store_quota.admits_feedback("flood", 0.99)


def test_a_nearly_full_store_refuses_the_key_that_stores_most(
    store_quota: StoreQuota, clock: Clock
) -> None:
    store_quota.add("web", 1_000)
    assert not store_quota.admits_impression("flood", 0.71)
    assert not store_quota.admits_feedback("flood", 0.71)
    for small in ("web", "new"):
        assert store_quota.admits_impression(small, 0.9)
        assert not store_quota.admits_impression(small, 0.91)
        assert store_quota.admits_feedback(small, 0.99)
    clock.now += 61.0  # what it stored has expired
    assert store_quota.admits_feedback("flood", 0.79)


def test_what_other_workers_have_stored_counts(clock: Clock) -> None:
    """A worker that sees only one of the keys, or that has just started."""
    quota = StoreQuota(60.0, clock)
    quota.update({"flood": 1_000_000, "web": 1_000})
    assert quota.admits_impression("web", 0.85)
    assert not quota.admits_impression("flood", 0.75)
    quota.add("web", 10)
    assert quota.admits_feedback("web", 0.99)
    assert not quota.admits_feedback("flood", 0.99)


def test_workers_exchange_their_counts_through_the_store(url: str) -> None:
    async def act(store: Store) -> None:
        exchange = store.servers.exchange_usage
        assert await exchange("one", {"web": 5, "flood": 7}, 60.0) == {}
        assert await exchange("two", {"web": 1}, 60.0) == {"web": 5, "flood": 7}
        assert await exchange("three", {}, 60.0) == {"web": 6, "flood": 7}
        assert await exchange("one", {}, 60.0) == {"web": 1}
        for at in range(MOST_WORKERS + 2):
            await exchange(f"ended {at}", {"web": 1}, 60.0)
        assert len(await exchange("last", {}, 60.0)) <= 1

    with_store(url, act)
    with client(url) as connection:
        assert 0 < connection.pttl(USAGE) <= 60_000
        assert connection.hlen(USAGE) < MOST_WORKERS


@pytest.mark.parametrize(
    "entry", [b"", b"damaged", b"\xff", b"[1]", b'["x", {}]', b'[1, {"a": "b"}]']
)
def test_a_damaged_count_of_a_worker_is_ignored(url: str, entry: bytes) -> None:
    async def act(store: Store) -> None:
        await store.servers.exchange_usage("one", {"web": 5}, 60.0)
        with client(url) as connection:
            connection.hset(USAGE, "damaged", entry)
        assert await store.servers.exchange_usage("two", {}, 60.0) == {"web": 5}

    with_store(url, act)


def test_a_restarted_worker_knows_what_its_predecessor_counted(url: str) -> None:
    async def act(store: Store) -> None:
        quotas = [StoreQuota(60.0), StoreQuota(60.0)]
        quotas[0].add("flood", 1_000_000)
        await store.servers.exchange_usage("killed", quotas[0].counts(), 60.0)
        quotas[1].add("web", 10)
        quotas[1].update(await store.servers.exchange_usage("new", quotas[1].counts(), 60.0))
        assert quotas[1].admits_feedback("web", 0.95)
        assert not quotas[1].admits_feedback("flood", 0.95)

    with_store(url, act)
