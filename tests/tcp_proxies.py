"""Wires between servers and those who talk to them: slow for replicas, cut for some, one way only.

A wire is a TCP proxy that knows by what is said who is at its other end: a replica (it says
PSYNC), a Sentinel (it names its connection so), or a client. What is cut is held, as by a network
that sends again until it gets through: it arrives late, once the wire is whole, even if its sender
has gone. What is on its way to a replica when its master is killed is lost with the master.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from typing import Literal, Self, TypeAlias

HOST = "127.0.0.1"
Who: TypeAlias = Literal["client", "replica", "sentinel"]
Direction: TypeAlias = Literal["requests", "answers"]
BOTH: tuple[Direction, ...] = ("requests", "answers")


class Wires:
    """All wires of a fleet, in a thread of their own: a busy test does not make them slow."""

    def __enter__(self) -> Self:
        self._loop, self._wires = asyncio.new_event_loop(), list[Wire]()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def to(self, port: int) -> "Wire":
        """A wire to the server on a port, whether it runs yet or not."""
        wire = Wire(self._loop, port)
        asyncio.run_coroutine_threadsafe(wire.open(), self._loop).result(10)
        self._wires.append(wire)
        return wire

    async def _close(self) -> None:
        for wire in self._wires:
            wire.close()
        for _ in range(3):  # what was aborted ends
            await asyncio.sleep(0.01)


class Wire:
    """A way to one server; `lag` is by how many seconds its replicas are behind."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self.loop, self.target, self.lag = loop, target, 0.0
        self.links: set[_Link] = set()
        self.cuts: frozenset[tuple[Who, Direction]] = frozenset()

    async def open(self) -> None:
        """Listen."""
        self._server = await self.loop.create_server(lambda: _Client(_Link(self)), HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self, *whom: Who, ways: Iterable[Direction] = BOTH) -> None:
        """From now on nothing gets through to or from these."""
        self.cuts |= {(who, way) for who in whom for way in ways}

    def mend(self) -> None:
        """Whole again; what was held arrives now."""
        self.cuts = frozenset()
        self.loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        for link in [*self.links]:
            link.requests.pump()
            link.answers.pump()

    def close(self) -> None:
        """No more connections, and those that are end."""
        self._server.close()
        for link in [*self.links]:
            link.abort()


class _Link:
    """One connection, and who made it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.who: Who = "client"
        self.requests, self.answers = _Way(self, "requests"), _Way(self, "answers")
        wire.links.add(self)

    async def reach(self) -> None:
        """Connect to the server; a client of one that is gone is let go."""
        try:
            await self.wire.loop.create_connection(lambda: _Server(self), HOST, self.wire.target)
        except OSError:
            self.abort()

    def heard(self, data: bytes) -> None:
        """Something from the client: it may tell who that is."""
        if b"PSYNC" in data[:4096]:
            self.who = "replica"
        elif b"sentinel-" in data[:4096]:
            self.who = "sentinel"
        self.requests.put(data)

    def abort(self) -> None:
        """Both ends, at once."""
        self.wire.links.discard(self)
        for way in (self.requests, self.answers):
            way.queue.clear()
            if way.end is not None:
                way.end.abort()


class _Way:
    """One direction of a link: what is on its way, each with the time when it is due."""

    def __init__(self, link: _Link, name: Direction) -> None:
        self._link, self._name = link, name
        self.end: asyncio.Transport | None = None
        self.queue: deque[tuple[float, bytes | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, data: bytes | None) -> None:
        """Send something on; None is the end."""
        wire = self._link.wire
        slow = self._link.who == "replica" and self._name == "answers"
        self.queue.append((wire.loop.time() + (wire.lag if slow else 0.0), data))
        self.pump()

    def pump(self) -> None:
        """Deliver what is due, unless the wire is cut."""
        wire = self._link.wire
        while self.queue and self.end and (self._link.who, self._name) not in wire.cuts:
            if self.queue[0][0] > wire.loop.time():
                self._later()
                return
            data = self.queue.popleft()[1]
            if data is None:
                self.end.close()
            elif not self.end.is_closing():
                self.end.write(data)

    def _later(self) -> None:
        if self._timer is None:
            self._timer = self._link.wire.loop.call_at(self.queue[0][0], self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.pump()


class _Client(asyncio.Protocol):
    """The end that asks."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._link.answers.end = transport
        self._reaching = self._link.wire.loop.create_task(self._link.reach())

    def data_received(self, data: bytes) -> None:
        self._link.heard(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._link.requests.put(None)


class _Server(asyncio.Protocol):
    """The end that answers."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._link.requests.end = transport
        self._link.requests.pump()

    def data_received(self, data: bytes) -> None:
        self._link.answers.put(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._link.who == "replica":
            self._link.abort()
        else:
            self._link.answers.put(None)
            self._link.wire.links.discard(self._link)
