"""Missing features of libraries that SOLAR implements: docs/decisions/0012-kept-by-hand.md.

A test fails when a library provides the feature, and names the code to remove.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import hiredis
from redis.asyncio import RedisCluster

from app.storage.cluster import SLOTS, slot_of
from app.storage.connection import connect
from tests.waits import TIMEOUT

HOST = "127.0.0.1"
HALF = SLOTS // 2
#: GET as the answer to COMMAND describes it: its first word is a key.
COMMANDS = b"*1\r\n*6\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n"


class ClusterNode:
    """A Cluster node that records each command and its connection."""

    def __init__(self, cluster: "MovingCluster") -> None:
        self._cluster, self._connections = cluster, 0
        self.got: list[tuple[str, int]] = []
        self.handlers: set[asyncio.Task[Any]] = set()

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = int(server.sockets[0].getsockname()[1])
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self.handlers.add(handler)
        self._connections += 1
        connection, commands = self._connections, hiredis.Reader()
        while data := await reader.read(1 << 16):
            commands.feed(data)
            while (words := commands.gets()) is not False:
                name = words[0].decode().upper()
                self.got.append((name, connection))
                writer.write(self._cluster.answer(self, name, words))
        writer.close()
        await writer.wait_closed()


class MovingCluster:
    """Two nodes with half of the slots each; the first migrates its slots to the second."""

    def __init__(self) -> None:
        self.source, self.target = ClusterNode(self), ClusterNode(self)

    def answer(self, node: ClusterNode, name: str, words: list[bytes]) -> bytes:
        if name == "CLUSTER":
            return self._slots()
        if name == "COMMAND":
            return COMMANDS
        if name == "GET" and node is self.source:
            return f"-ASK {slot_of(words[1])} {HOST}:{self.target.port}\r\n".encode()
        return b"+OK\r\n"

    def _slots(self) -> bytes:
        parts = [(0, HALF - 1, self.source), (HALF, SLOTS - 1, self.target)]
        ranges = [
            f"*3\r\n:{first}\r\n:{last}\r\n*2\r\n${len(HOST)}\r\n{HOST}\r\n:{node.port}\r\n"
            for first, last, node in parts
        ]
        return f"*{len(ranges)}\r\n{''.join(ranges)}".encode()


@asynccontextmanager
async def moving() -> AsyncIterator[MovingCluster]:
    cluster = MovingCluster()
    async with await cluster.source.listen(), await cluster.target.listen():
        yield cluster
        for handler in cluster.source.handlers | cluster.target.handlers:
            await asyncio.wait_for(handler, TIMEOUT)  # the client has closed its connections


def key_in(slots: range) -> str:
    return next(f"k{at}" for at in range(999) if slot_of(f"k{at}") in slots)


async def connections_of_an_asking(cluster: MovingCluster, client: Any) -> tuple[int, int]:
    """Connections on which a client with two idle ones sends ASKING and the next command."""
    there = key_in(range(HALF, SLOTS))
    await client.get(there)  # loads the slot map
    cluster.target.got.clear()
    await asyncio.gather(client.get(there), client.get(there))
    assert len({connection for name, connection in cluster.target.got if name == "GET"}) == 2
    cluster.target.got.clear()
    await client.get(key_in(range(HALF)))
    (asking, first), (get, second) = cluster.target.got
    assert (asking, get) == ("ASKING", "GET")
    return first, second


def asked(make: Callable[[MovingCluster], Any]) -> tuple[int, int]:
    async def act() -> tuple[int, int]:
        async with moving() as cluster:
            client = make(cluster)
            try:
                return await connections_of_an_asking(cluster, client)
            finally:
                await client.aclose()

    return asyncio.run(act())


def test_redis_py_sends_asking_and_its_command_on_two_connections() -> None:
    first, second = asked(
        lambda cluster: RedisCluster(host=HOST, port=cluster.source.port, protocol=2)
    )
    assert first != second, (
        "redis-py sends ASKING on the same connection now: app/storage/cluster.py can go"
    )


def test_solar_sends_asking_and_its_command_on_one_connection() -> None:
    first, second = asked(
        lambda cluster: connect(f"redis+cluster://{HOST}:{cluster.source.port}?protocol=2")
    )
    assert first == second
