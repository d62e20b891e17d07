"""Clients by URL, the slot table of a Cluster, and log lines about outages."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from redis import exceptions as foreign

from app.errors import SolarError, StoreError, Unavailable
from app.storage.calls import translated
from app.storage.cluster import SLOTS, Cluster, slot_of
from app.storage.connection import MultiServerURL, connect
from app.storage.outages import Outages
from app.storage.store import Store

A, B = ("a", 1), ("b", 2)


# ---- URLs ----


def test_a_url_names_servers_credentials_service_and_options() -> None:
    parts = MultiServerURL.parse(
        "rediss+sentinel://me:s%40fe@one,two:7,[::1]:8/main/3?ssl_ca_certs=x"
    )
    assert parts.servers == [("one", 26379), ("two", 7), ("::1", 8)]
    assert parts.path == ["main", "3"]
    assert parts.url(("::1", 8), "3") == "rediss://me:s%40fe@[::1]:8/3?ssl_ca_certs=x"
    assert MultiServerURL.parse("redis+cluster://one").servers == [("one", 6379)]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("redis+sentinel://hush@host:1", "expected the service name"),
        ("redis+sentinel://:hush@/main", "expected servers as HOST:PORT"),
        ("redis+cluster://:hush@host:1,:2", "expected servers as HOST:PORT"),
        ("redis+cluster://:hush@host:port", "expected servers as HOST:PORT"),
        ("redis+cluster://:hush@host:1/2", "expected database 0 or none"),
        ("redis+magic://:hush@host:1", "expected one of redis://"),
    ],
)
def test_an_invalid_url_is_refused_without_its_password(bad: str, why: str) -> None:
    with pytest.raises(SolarError, match=why) as caught:
        connect(bad)
    assert "hush" not in str(caught.value)


def test_password_and_tls_apply_to_all_nodes_and_sentinels_may_have_another_password() -> None:
    async def act() -> tuple[dict[str, Any], dict[str, Any]]:
        url = "rediss+sentinel://me:safe@h:1/main/2?sentinel_password=own&ssl_ca_certs=ca"
        client = connect(url)
        pool = client.connection_pool
        asked = pool.sentinel_manager.sentinels[0].connection_pool.connection_kwargs
        await client.aclose()
        return pool.connection_kwargs, asked

    master, sentinel = asyncio.run(act())
    assert (master["username"], master["password"], master["db"]) == ("me", "safe", 2)
    assert (sentinel["password"], sentinel["ssl_ca_certs"]) == ("own", "ca")
    assert sentinel.get("username") is None
    assert master["ssl_ca_certs"] == "ca"


# ---- a cluster's slots ----


class FakeNode:
    """A node with prepared answers that records its calls."""

    def __init__(self, name: str, map_: Callable[[], Any]) -> None:
        self.name, self._map = name, map_
        self.answers: list[Any] = []
        self.asked: list[tuple[str, bool]] = []

    async def batch(self, calls: Any, *, asking: bool = False) -> list[Any]:
        self.asked.append((calls[0][0][0], asking))
        answer = self.answers.pop(0) if self.answers else self.name
        if isinstance(answer, Exception):
            raise answer
        return [answer for _ in calls]

    async def execute_command(self, *args: Any) -> Any:
        assert args == ("CLUSTER SLOTS",)
        return self._map()

    async def aclose(self) -> None:
        pass


class FakeCluster:
    """A cluster of fake nodes: `a` owns the first half of the slots, `b` the second."""

    def __init__(self) -> None:
        self.halves = [A, B]
        self.nodes = {address: FakeNode(address[0], self.map) for address in (A, B)}
        self.cluster: Any = Cluster([A, B], self.nodes.__getitem__)

    def map(self) -> Any:
        middle = SLOTS // 2
        first, second = ([host.encode(), port, b"id"] for host, port in self.halves)
        return [[0, middle - 1, first], [middle, SLOTS - 1, second]]


def key_at(address: tuple[str, int]) -> str:
    half = slice(0, SLOTS // 2) if address == A else slice(SLOTS // 2, SLOTS)
    return next(f"k{at}" for at in range(999) if slot_of(f"k{at}") in range(SLOTS)[half])


def test_a_command_goes_to_the_owner_of_its_slot() -> None:
    async def act() -> None:
        fake = FakeCluster()
        assert await fake.cluster.get(key_at(A)) == "a"
        assert await fake.cluster.get(key_at(B)) == "b"
        assert await fake.cluster.hmget(key_at(B), ["x"]) == "b"

    asyncio.run(act())


def test_a_pipeline_goes_to_all_nodes_at_once_and_keeps_its_order() -> None:
    async def act() -> None:
        fake = FakeCluster()
        pipeline = fake.cluster.pipeline(transaction=False)
        for at in (A, B, A, B):
            pipeline.get(key_at(at))
        assert await pipeline.execute() == ["a", "b", "a", "b"]
        assert [len(node.asked) for node in fake.nodes.values()] == [1, 1]

    asyncio.run(act())


def test_a_moved_slot_is_followed_and_its_new_owner_is_kept() -> None:
    async def act() -> None:
        fake = FakeCluster()
        await fake.cluster.get(key_at(A))
        fake.nodes[A].answers = [foreign.MovedError(f"{slot_of(key_at(A))} b:2")]
        fake.halves = [B, B]
        assert await fake.cluster.get(key_at(A)) == "b"
        assert await fake.cluster.get(key_at(A)) == "b"
        assert len(fake.nodes[A].asked) == 2

    asyncio.run(act())


def test_a_migrating_slot_is_asked_for_at_its_target_and_its_owner_is_kept() -> None:
    async def act() -> None:
        fake = FakeCluster()
        fake.nodes[A].answers = [foreign.AskError(f"{slot_of(key_at(A))} b:2"), "a"]
        assert await fake.cluster.get(key_at(A)) == "b"
        assert fake.nodes[B].asked == [("GET", True)]
        assert await fake.cluster.get(key_at(A)) == "a"

    asyncio.run(act())


@pytest.mark.parametrize(
    "error",
    [
        foreign.TryAgainError("TRYAGAIN"),
        foreign.ClusterDownError("CLUSTERDOWN"),
        foreign.ConnectionError("gone"),
        foreign.ReadOnlyError("READONLY"),
    ],
)
def test_a_temporary_error_of_a_node_is_retried(error: Exception) -> None:
    async def act() -> None:
        fake = FakeCluster()
        fake.nodes[A].answers = [error, error]
        assert await fake.cluster.get(key_at(A)) == "a"
        fake.nodes[A].answers = [error, "x", "x"]
        pipeline = fake.cluster.pipeline(transaction=False)
        for at in (A, B, A):
            pipeline.get(key_at(at))
        assert await pipeline.execute() == ["x", "b", "x"]

    asyncio.run(act())


@pytest.mark.parametrize(
    "error",
    [
        foreign.TryAgainError("TRYAGAIN"),
        foreign.MovedError("1 b:2"),
        foreign.AskError("1 b:2"),
        foreign.ClusterDownError("CLUSTERDOWN"),
        foreign.ConnectionError("gone"),
    ],
)
def test_a_cluster_that_keeps_failing_is_unavailable(error: Exception) -> None:
    """Never an error that becomes a 500."""

    async def act() -> None:
        fake = FakeCluster()
        for node in fake.nodes.values():
            node.answers = [error] * 99
        with pytest.raises(Unavailable):
            await Store(fake.cluster).log.tail("books")

    asyncio.run(act())


def test_a_cluster_with_unassigned_slots_is_unavailable() -> None:
    async def act() -> None:
        fake = FakeCluster()
        fake.map = list  # type: ignore[method-assign]
        for node in fake.nodes.values():
            node._map = fake.map
        with pytest.raises(Unavailable):
            await Store(fake.cluster).log.tail("books")

    asyncio.run(act())


def test_a_timeout_is_not_retried_but_refreshes_the_slot_table() -> None:
    async def act() -> None:
        fake = FakeCluster()
        fake.nodes[A].answers = [foreign.TimeoutError("slow")]
        with pytest.raises(foreign.TimeoutError):
            await fake.cluster.get(key_at(A))
        assert len(fake.nodes[A].asked) == 1
        fake.halves = [B, B]
        assert await fake.cluster.get(key_at(A)) == "b"

    asyncio.run(act())


@pytest.mark.parametrize(
    "error",
    [
        foreign.MovedError("1 b:2"),
        foreign.AskError("1 b:2"),
        foreign.TryAgainError("TRYAGAIN"),
        foreign.ClusterDownError("CLUSTERDOWN"),
        foreign.ClusterError("TTL exhausted"),
        foreign.ReadOnlyError("READONLY"),
        foreign.MasterDownError("MASTERDOWN"),
        foreign.ResponseError("UNBLOCKED force unblock"),
        foreign.ResponseError("NOREPLICAS Not enough good replicas"),
    ],
)
def test_errors_of_a_failover_are_unavailable(error: Exception) -> None:
    with pytest.raises(Unavailable), translated(connect("redis://one")):
        raise error
    assert issubclass(Unavailable, StoreError)


# ---- log lines about an outage ----


def test_an_outage_is_logged_at_its_start_once_a_minute_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "solar.storage")
    now = [1000.0]
    outages = Outages("the store at one:6379", clock=lambda: now[0])
    for _ in range(300):  # twice a second
        outages.failed("books", "unreachable")
        outages.failed("films", "unreachable")
        now[0] += 0.5
    outages.succeeded("films")
    outages.succeeded("films")
    assert caplog.messages == [
        "unreachable",
        "unreachable; the outage has lasted 60 s",
        "unreachable; the outage has lasted 120 s",
    ]
    outages.succeeded("books")
    outages.succeeded("books")
    outages.failed("films", "unreachable")
    assert caplog.messages[3:] == [
        "the store at one:6379 is reachable again after 150.0 s",
        "unreachable",
    ]


def test_a_store_that_fails_and_returns_again_and_again_is_a_few_lines_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    outages = Outages("the store", clock=lambda: now[0])
    with caplog.at_level("INFO", "solar.storage"):
        for second in range(120):
            now[0] = float(second)
            outages.failed("books", "unreachable")
            now[0] += 0.5
            outages.succeeded("books")
    minutes = [record.message for record in caplog.records]
    assert minutes == ["unreachable", "the store is reachable again after 0.5 s"] * 4


def test_a_store_that_answers_for_some_models_only_is_one_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outages = Outages("the store")
    for _ in range(10):
        outages.failed("books", "unreachable")
        outages.succeeded("films")
    assert caplog.messages == ["unreachable"]
