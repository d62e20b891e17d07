"""How many clicked lists are remembered longer: a quarter of the store's memory."""

import asyncio
from typing import Any

import pytest

from app.ingest.clicked_lists import LIST_BYTES, SHARE, ClickedLists
from app.storage.health import Servers
from app.storage.store import Store
from tests.backends import anywhere, anywhere_emptied, on_servers, with_store

__all__ = ["anywhere", "anywhere_emptied"]  # fixtures

SIZE = 1_000
EACH = SIZE + LIST_BYTES


class Limited:
    """A store whose memory limit is given, and which counts the bytes of kept lists."""

    def __init__(self, limit: int) -> None:
        self.servers, self.limit, self.kept = self, limit, 0

    async def exchange_kept(self, _now: float, new: int, _seconds: float) -> tuple[int, int]:
        self.kept += new
        return self.kept, self.limit


def lists(limit: int, seconds: float = 60.0) -> tuple[ClickedLists, list[bool], Any]:
    reports, store = list[bool](), Limited(limit)
    found = ClickedLists(store, seconds, 30.0, reports.append)  # type: ignore[arg-type]
    asyncio.run(found.exchange())
    return found, reports, store


def click(some: ClickedLists) -> int:
    lifetime = some.lifetime(SIZE)
    some.count(SIZE, lifetime)
    return lifetime


def test_lists_are_kept_until_they_use_a_quarter_of_the_memory() -> None:
    some, reports, _ = lists(int(3.5 * EACH / SHARE))
    assert [click(some) for _ in range(5)] == [60_000, 60_000, 60_000, 0, 0]
    assert reports == [True, True, True, False, False]


def test_lists_of_all_workers_count_together() -> None:
    some, _, store = lists(4 * int(EACH / SHARE))
    store.kept = 3 * EACH  # of other workers
    asyncio.run(some.exchange())
    assert [click(some), click(some)] == [60_000, 0]
    asyncio.run(some.exchange())
    assert store.kept == 4 * EACH


def test_what_comes_of_clicked_lists_counts_too() -> None:
    some, _, store = lists(4 * int(EACH / SHARE))
    click(some)
    some.count_feedback(3 * EACH)
    assert some.lifetime(SIZE) == 0
    asyncio.run(some.exchange())
    assert store.kept == 4 * EACH


def test_asking_for_a_lifetime_counts_nothing() -> None:
    """An event may be a copy, or refused: it counts once it is in the log."""
    some, reports, _ = lists(int(1.5 * EACH / SHARE))
    assert [some.lifetime(SIZE) for _ in range(10)] == 10 * [60_000]
    assert reports == []


def test_without_a_memory_limit_all_lists_are_kept() -> None:
    some, _, _ = lists(0)
    assert all(click(some) for _ in range(1_000))


def test_a_lifetime_that_is_not_longer_changes_and_counts_nothing() -> None:
    some, reports, store = lists(0, seconds=30.0)
    some.count_feedback(SIZE)
    assert (click(some), reports) == (0, [])
    assert store.kept == 0


def test_bytes_are_counted_again_after_a_failed_exchange() -> None:
    some, _, store = lists(int(10 * EACH / SHARE))
    click(some)
    real, store.exchange_kept = store.exchange_kept, _fail
    with pytest.raises(ConnectionError):
        asyncio.run(some.exchange())
    store.exchange_kept = real
    asyncio.run(some.exchange())
    assert store.kept == EACH


async def _fail(*_: Any) -> tuple[int, int]:
    raise ConnectionError


@on_servers
def test_the_store_counts_by_slices_of_time_and_forgets_old_ones(url: str) -> None:
    async def act(store: Store) -> None:
        count = store.servers.exchange_kept
        assert (await count(1_200_000.0, 5, 1_800.0))[0] == 5
        assert (await count(1_200_600.0, 7, 1_800.0))[0] == 12
        assert (await count(1_202_399.0, 0, 1_800.0))[0] == 12
        assert (await count(1_202_400.0, 1, 1_800.0))[0] == 8  # 5 have expired
        assert (await count(1_210_000.0, 0, 1_800.0))[0] == 0

    with_store(url, act)


@on_servers
def test_lists_of_another_conversion_time_go_on_counting(url: str) -> None:
    """Also a worker that still has the former setting, next to the others, changes nothing."""

    async def act(store: Store) -> None:
        count = store.servers.exchange_kept
        await count(1_200_000.0, 5, 7_200.0)
        assert (await count(1_200_001.0, 7, 60.0))[0] == 12
        assert (await count(1_200_002.0, 9, 604_800.0))[0] == 21
        assert (await count(1_201_000.0, 0, 60.0))[0] == 14  # 7 have expired
        assert (await count(1_208_000.0, 0, 60.0))[0] == 9

    with_store(url, act)


class Masters:
    """A client of a Cluster whose masters have these memory limits, without stored counts."""

    def __init__(self, *limits: int) -> None:
        self.limits = limits

    async def hgetall(self, _: str) -> dict[bytes, bytes]:
        return {}

    async def masters(self) -> list[Any]:
        return [Master(limit) for limit in self.limits]


class Master:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    async def info(self, _: str) -> dict[str, int]:
        return {"maxmemory": self.limit}


@pytest.mark.parametrize(("limits", "expected"), [((3, 1, 2), 1), ((3, 0), 3), ((0, 0), 0)])
def test_all_clicked_lists_have_to_fit_into_the_smallest_master(
    limits: tuple[int, ...], expected: int
) -> None:
    """All keys of a model are on one master: with the sum of all limits it would fill up."""
    servers = Servers(Masters(*limits), "")
    assert asyncio.run(servers.exchange_kept(0.0, 0, 60.0)) == (0, expected)
