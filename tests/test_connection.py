"""From a URL to a client, and how a client finds the server that has a key."""

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
    place = MultiServerURL.parse(
        "rediss+sentinel://me:s%40fe@one,two:7,[::1]:8/main/3?ssl_ca_certs=x"
    )
    assert place.servers == [("one", 26379), ("two", 7), ("::1", 8)]
    assert place.path == ["main", "3"]
    assert place.url(("::1", 8), "3") == "rediss://me:s%40fe@[::1]:8/3?ssl_ca_certs=x"
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
def test_a_url_that_cannot_be_is_refused_without_its_password(bad: str, why: str) -> None:
    with pytest.raises(SolarError, match=why) as caught:
        connect(bad)
    assert "hush" not in str(caught.value)


def test_a_password_and_tls_are_for_all_nodes_and_a_sentinel_may_have_its_own() -> None:
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


class Node:
    """A node that does what it is told, and notes what it was asked."""

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


class World:
    """A cluster of invented nodes: `a` has the first half of the slots, `b` the second."""

    def __init__(self) -> None:
        self.halves = [A, B]
        self.nodes = {address: Node(address[0], self.map) for address in (A, B)}
        self.cluster: Any = Cluster([A, B], self.nodes.__getitem__)

    def map(self) -> Any:
        middle = SLOTS // 2
        first, second = ([host.encode(), port, b"id"] for host, port in self.halves)
        return [[0, middle - 1, first], [middle, SLOTS - 1, second]]


def key_at(address: tuple[str, int]) -> str:
    half = slice(0, SLOTS // 2) if address == A else slice(SLOTS // 2, SLOTS)
    return next(f"k{at}" for at in range(999) if slot_of(f"k{at}") in range(SLOTS)[half])


def test_a_command_goes_to_the_node_that_has_its_key() -> None:
    async def act() -> None:
        world = World()
        assert await world.cluster.get(key_at(A)) == "a"
        assert await world.cluster.get(key_at(B)) == "b"
        assert await world.cluster.hmget(key_at(B), ["x"]) == "b"

    asyncio.run(act())


def test_a_pipeline_goes_to_all_nodes_at_once_and_keeps_its_order() -> None:
    async def act() -> None:
        world = World()
        pipeline = world.cluster.pipeline(transaction=False)
        for at in (A, B, A, B):
            pipeline.get(key_at(at))
        assert await pipeline.execute() == ["a", "b", "a", "b"]
        assert [len(node.asked) for node in world.nodes.values()] == [1, 1]

    asyncio.run(act())


def test_a_slot_that_has_moved_is_followed_and_remembered() -> None:
    async def act() -> None:
        world = World()
        await world.cluster.get(key_at(A))
        world.nodes[A].answers = [foreign.MovedError(f"{slot_of(key_at(A))} b:2")]
        world.halves = [B, B]
        assert await world.cluster.get(key_at(A)) == "b"
        assert await world.cluster.get(key_at(A)) == "b"
        assert len(world.nodes[A].asked) == 2

    asyncio.run(act())


def test_a_slot_on_its_way_is_asked_for_at_the_other_end_and_not_remembered() -> None:
    async def act() -> None:
        world = World()
        world.nodes[A].answers = [foreign.AskError(f"{slot_of(key_at(A))} b:2"), "a"]
        assert await world.cluster.get(key_at(A)) == "b"
        assert world.nodes[B].asked == [("GET", True)]
        assert await world.cluster.get(key_at(A)) == "a"

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
def test_a_node_that_cannot_for_a_moment_is_asked_again(error: Exception) -> None:
    async def act() -> None:
        world = World()
        world.nodes[A].answers = [error, error]
        assert await world.cluster.get(key_at(A)) == "a"
        world.nodes[A].answers = [error, "x", "x"]
        pipeline = world.cluster.pipeline(transaction=False)
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
def test_a_cluster_that_does_not_come_round_is_unavailable(error: Exception) -> None:
    """Never anything that would become a 500."""

    async def act() -> None:
        world = World()
        for node in world.nodes.values():
            node.answers = [error] * 99
        with pytest.raises(Unavailable):
            await Store(world.cluster).log.tail("books")

    asyncio.run(act())


def test_a_cluster_with_a_hole_is_unavailable() -> None:
    async def act() -> None:
        world = World()
        world.map = list  # type: ignore[method-assign]
        for node in world.nodes.values():
            node._map = world.map
        with pytest.raises(Unavailable):
            await Store(world.cluster).log.tail("books")

    asyncio.run(act())


def test_a_slow_node_is_not_asked_twice_but_the_map_is_asked_for() -> None:
    async def act() -> None:
        world = World()
        world.nodes[A].answers = [foreign.TimeoutError("slow")]
        with pytest.raises(foreign.TimeoutError):
            await world.cluster.get(key_at(A))
        assert len(world.nodes[A].asked) == 1
        world.halves = [B, B]
        assert await world.cluster.get(key_at(A)) == "b"

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
def test_what_a_failover_brings_is_unavailable(error: Exception) -> None:
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


def test_a_store_that_answers_for_some_models_only_is_one_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outages = Outages("the store")
    for _ in range(10):
        outages.failed("books", "unreachable")
        outages.succeeded("films")
    assert caplog.messages == ["unreachable"]
