"""Real servers and stores for the tests; no test doubles."""

import asyncio
import contextlib
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

from app.storage.connection import MultiServerURL
from app.storage.embedded.server import EmbeddedServer, server_binary
from app.storage.store import Store
from tests import fleets
from tests.waits import TIMEOUT, until

T = TypeVar("T")
__all__ = ["TIMEOUT", "until"]  # re-exported from tests.waits
STORE_KINDS = ("embedded", "redis", "sentinel", "cluster")


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """A server for a module, with fsync as in production, in a temporary directory."""
    with (
        tempfile.TemporaryDirectory(prefix="solar-test-") as directory,
        EmbeddedServer.start(Path(directory)) as started,
    ):
        yield started


@pytest.fixture
def url(server: EmbeddedServer) -> str:
    """The module's server, emptied for this test."""
    with client(server.url) as connection:
        connection.flushall()
    return server.url


@contextlib.contextmanager
def started(kind: str) -> Iterator[str]:
    """Start a store of a kind in STORE_KINDS; yield its URL."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="solar-test-")))
        if kind == "embedded":
            yield stack.enter_context(EmbeddedServer.start(directory)).url
        elif kind == "redis":
            yield stack.enter_context(fleets.server()).url
        elif kind == "sentinel":
            yield stack.enter_context(fleets.sentinel_fleet()).url
        else:
            yield stack.enter_context(fleets.cluster_fleet()).url


@pytest.fixture(scope="module", params=STORE_KINDS)
def anywhere(request: pytest.FixtureRequest) -> Iterator[str]:
    """A store of each kind in turn; all kinds must behave the same (I21)."""
    with started(request.param) as url:
        yield url


@pytest.fixture(name="url")
def anywhere_emptied(anywhere: str) -> str:
    """A store of each kind, emptied for this test."""
    with client(anywhere) as connection:
        connection.flushall()
    return anywhere


@contextlib.contextmanager
def client(url: str) -> Iterator[Any]:
    """Open a Redis client that bypasses the store."""
    connection: Any
    if "+" in url.partition("://")[0]:
        place = MultiServerURL.parse(url)
        if "+sentinel" in url:
            sentinels: Any = redis.Sentinel(place.servers)  # type: ignore[no-untyped-call]
            connection = sentinels.master_for(place.path[0])
        else:
            nodes = [ClusterNode(*one) for one in place.servers]  # type: ignore[no-untyped-call]
            connection = RedisCluster(startup_nodes=nodes)
    else:
        connection = redis.Redis.from_url(url)
    try:
        yield connection
    finally:
        connection.close()


def keys_like(connection: Any, pattern: str = "*") -> set[bytes]:
    """Return all keys that match a pattern, on all masters."""
    everywhere = isinstance(connection, RedisCluster)
    options = {"target_nodes": RedisCluster.PRIMARIES} if everywhere else {}
    return set(connection.keys(pattern, **options))


def total(connection: Any, section: str, field: str) -> int:
    """Sum a field of INFO over all masters."""
    if isinstance(connection, RedisCluster):
        infos = connection.info(section, target_nodes=RedisCluster.PRIMARIES)
        return sum(int(one[field]) for one in infos.values())
    return int(connection.info(section)[field])


@contextlib.contextmanager
def bare_server(*settings: str, binary: str | None = None) -> Iterator[str]:
    """Start a server with settings that the embedded server never has; yield its URL."""
    with tempfile.TemporaryDirectory(prefix="solar-test-") as directory:
        path = Path(directory) / "s"
        plain = ["--port", "0", "--unixsocket", str(path), "--dir", directory, "--save", ""]
        command = [binary or server_binary(), *plain, *settings]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            with client(f"unix://{path}") as connection:
                until(lambda: _answers(connection))
            yield f"unix://{path}"
        finally:
            process.kill()
            process.wait()


def _answers(connection: Any) -> bool:
    try:
        return bool(connection.ping())
    except redis.ConnectionError:  # the socket does not exist yet, or the server does not listen
        return False


class _Old(socketserver.StreamRequestHandler):
    """Answers a connecting client as Redis 5.0.6 and 6.2.14 do; recorded from real servers."""

    server: "_OldServer"

    def handle(self) -> None:
        while line := self.rfile.readline():  # *2 $5 HELLO $1 3
            self.wfile.write(self._answer([self._word() for _ in range(int(line[1:]))]))

    def _word(self) -> bytes:
        size = int(self.rfile.readline()[1:])
        return self.rfile.read(size + 2)[:-2]

    def _answer(self, words: list[bytes]) -> bytes:
        match words[0]:
            case b"HELLO" if self.server.version >= "6":
                return b"%1\r\n$5\r\nproto\r\n:3\r\n"
            case b"HELLO":
                args = b"".join(b"`%s`, " % word for word in words[1:])
                return b"-ERR unknown command `HELLO`, with args beginning with: %s\r\n" % args
            case b"INFO":
                info = f"# Server\r\nredis_version:{self.server.version}\r\n".encode()
                return b"$%d\r\n%s\r\n" % (len(info), info)
        return b"-ERR Unknown subcommand or wrong number of arguments for '%s'.\r\n" % words[1]


class _OldServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    version = ""


@contextlib.contextmanager
def old_server(version: str) -> Iterator[str]:
    """Start a stand-in for a server of an old version; yield its URL."""
    with _OldServer(("127.0.0.1", 0), _Old) as listening:
        listening.version = version
        thread = threading.Thread(target=listening.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"redis://127.0.0.1:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


async def eventually(ask: Callable[[], Awaitable[T]], right: Callable[[T], object]) -> T:
    """Call `ask` until its answer is right, or fail with the last answer."""
    deadline = time.monotonic() + TIMEOUT
    while not right(answer := await ask()):
        assert time.monotonic() < deadline, f"timeout; the last answer was {answer}"
        await asyncio.sleep(0.005)
    return answer


@contextlib.asynccontextmanager
async def opened(url: str, durability: str = "") -> AsyncIterator[Store]:
    """Open a store, and close it after the block."""
    store = Store.open(url, durability)
    try:
        yield store
    finally:
        await store.close()


def with_store(url: str, act: Callable[[Store], Coroutine[Any, Any, T]], durability: str = "") -> T:
    """Run a coroutine on a store, with a timeout."""

    async def run() -> T:
        async with opened(url, durability) as store:
            return await asyncio.wait_for(act(store), 3 * TIMEOUT)

    return asyncio.run(run())
