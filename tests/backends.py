"""Fixtures for the store's contract: servers of each kind, and the simulator's double."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from time import monotonic
from typing import Any, TypeVar

import pytest

from app.storage.store import Store
from tests import servers
from tests.servers import STORE_KINDS, TIMEOUT, started
from tests.simulation.client import Client
from tests.simulation.server import Server

T = TypeVar("T")
DOUBLE = "double"
_DOUBLES: dict[str, Server] = {}
#: Run a test on servers only.
on_servers = pytest.mark.parametrize("anywhere", STORE_KINDS, indirect=True, scope="module")


@pytest.fixture(scope="module", params=[*STORE_KINDS, DOUBLE])
def anywhere(request: pytest.FixtureRequest) -> Iterator[str]:
    """Provide a URL for each kind of store, and a name for the double."""
    if request.param == DOUBLE:
        yield DOUBLE
        return
    with started(request.param) as url:
        yield url


@pytest.fixture(name="url")
def anywhere_emptied(anywhere: str) -> Iterator[str]:
    """Empty the store for this test."""
    if anywhere == DOUBLE:
        _DOUBLES[anywhere] = Server(monotonic)
    else:
        with servers.client(anywhere) as connection:
            connection.flushall()
    yield anywhere
    _DOUBLES.clear()


@contextlib.contextmanager
def client(url: str) -> Iterator[Any]:
    """Provide a plain client, to inspect keys directly."""
    if url in _DOUBLES:
        yield _DOUBLES[url].db
        return
    with servers.client(url) as connection:
        yield connection


def with_store(url: str, act: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a store, with a timeout."""
    if url not in _DOUBLES:
        return servers.with_store(url, act)

    async def run() -> T:
        client_double: Any = Client(_DOUBLES[url])
        return await asyncio.wait_for(act(Store(client_double)), 3 * TIMEOUT)

    return asyncio.run(run())
