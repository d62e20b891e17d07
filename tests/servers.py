"""Real servers for the tests, and a store on one: no doubles."""

import asyncio
import contextlib
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from app.store.embedded import EmbeddedServer, server_binary
from app.store.store import Store

T = TypeVar("T")
PATIENCE = 20.0  # seconds: how long a test waits for what must come


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """A server for a module; fsync as in production, in a directory of its own."""
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
def client(url: str) -> Iterator[Any]:
    """A plain client, to look behind the store's back."""
    connection = redis.Redis.from_url(url)
    try:
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def bare_server(*settings: str) -> Iterator[str]:
    """A server with settings that ours would never have; its URL."""
    with tempfile.TemporaryDirectory(prefix="solar-test-") as directory:
        path = Path(directory) / "s"
        plain = ["--port", "0", "--unixsocket", str(path), "--dir", directory, "--save", ""]
        process = subprocess.Popen([server_binary(), *plain, *settings], stdout=subprocess.DEVNULL)
        try:
            with client(f"unix://{path}") as connection:
                until(lambda: path.exists() and connection.ping())
            yield f"unix://{path}"
        finally:
            process.kill()
            process.wait()


def until(true: Callable[[], object]) -> None:
    """Wait until something holds, or fail."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


async def eventually(ask: Callable[[], Awaitable[T]], right: Callable[[T], object]) -> T:
    """Ask until the answer is right, or fail with the last one."""
    deadline = time.monotonic() + PATIENCE
    while not right(answer := await ask()):
        assert time.monotonic() < deadline, f"waited in vain; the last answer was {answer}"
        await asyncio.sleep(0.005)
    return answer


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """A store that is closed in the end."""
    store = Store.open(url)
    try:
        yield store
    finally:
        await store.close()


def with_store(url: str, act: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a store; what hangs fails."""

    async def run() -> T:
        async with opened(url) as store:
            return await asyncio.wait_for(act(store), 3 * PATIENCE)

    return asyncio.run(run())
