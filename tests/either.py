"""Where the contract of the store is tested: on a real server, and on the simulator's double."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from time import monotonic
from typing import Any, TypeVar

import pytest

from app.store.store import Store
from tests import servers
from tests.servers import PATIENCE
from tests.servers import url as real
from tests.simulation.client import Client
from tests.simulation.server import Server

__all__ = ["real"]

T = TypeVar("T")
_DOUBLES: dict[str, Server] = {}


@pytest.fixture(params=["server", "double"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server's address, or what stands for a double's."""
    if request.param == "server":
        yield request.getfixturevalue("real")
        return
    _DOUBLES["double"] = Server(monotonic)
    yield "double"
    del _DOUBLES["double"]


@contextlib.contextmanager
def client(url: str) -> Iterator[Any]:
    """A plain client, to look behind the store's back."""
    if url in _DOUBLES:
        yield _DOUBLES[url].db
        return
    with servers.client(url) as connection:
        yield connection


def with_store(url: str, act: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a store; what hangs fails."""
    if url not in _DOUBLES:
        return servers.with_store(url, act)

    async def run() -> T:
        client: Any = Client(_DOUBLES[url])
        return await asyncio.wait_for(act(Store(client)), 3 * PATIENCE)

    return asyncio.run(run())
