"""TCP proxies in front of servers: slow for replicas, cut for some peers or directions.

A proxy identifies its peer by the data: a replica sends PSYNC, a Sentinel names its connection, all
others are clients. Data of a cut proxy are held, like by a network that resends: they arrive late,
once the proxy is restored, even if the sender has ended. Data to a replica are lost when the master
is killed.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, Self, TypeAlias

HOST = "127.0.0.1"
Peer: TypeAlias = Literal["client", "replica", "sentinel"]
Direction: TypeAlias = Literal["requests", "answers"]
BOTH: tuple[Direction, ...] = ("requests", "answers")
#: Whether data pass: of a request so far (the answer is empty), or of its answer.
Passes: TypeAlias = Callable[[bytes, bytes], bool]


def let_pass(_request: bytes, _answer: bytes) -> bool:
    """Cause no fault."""
    return True


class TcpProxies:
    """All proxies of a fleet, in a separate thread, so that a busy test does not delay them."""

    def __enter__(self) -> Self:
        self._loop, self._proxies = asyncio.new_event_loop(), list[TcpProxy]()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def to(self, port: int) -> "TcpProxy":
        """Open a proxy to the server on a port; the server may start later."""
        proxy = TcpProxy(self._loop, port)
        asyncio.run_coroutine_threadsafe(proxy.open(), self._loop).result(10)
        self._proxies.append(proxy)
        return proxy

    async def _close(self) -> None:
        for proxy in self._proxies:
            proxy.close()
        # Only tasks that accept or reach a connection run here: each registers its connection.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*tasks, return_exceptions=True)
        for proxy in self._proxies:
            proxy.abort()
        for _ in range(3):  # let aborted connections end
            await asyncio.sleep(0.01)


class TcpProxy:
    """A proxy of one server; `lag` delays its replicas by seconds.

    `passes` sees all data, in the thread of the proxies; what it does not let pass is lost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self.loop, self.target, self.lag = loop, target, 0.0
        self.passes: Passes = let_pass
        self.links: set[_Link] = set()
        self.cuts: frozenset[tuple[Peer, Direction]] = frozenset()

    async def open(self) -> None:
        """Listen."""
        self._server = await self.loop.create_server(lambda: _Client(_Link(self)), HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self, *peers: Peer, directions: Iterable[Direction] = BOTH) -> None:
        """Hold all data of these peers."""
        self.cuts |= {(peer, direction) for peer in peers for direction in directions}

    def restore(self) -> None:
        """Deliver held data and end the cut."""
        self.cuts = frozenset()
        self.loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        for link in [*self.links]:
            link.requests.pump()
            link.answers.pump()

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def abort(self) -> None:
        """Abort all connections."""
        for link in [*self.links]:
            link.abort()


class _Link:
    """One connection and its peer."""

    def __init__(self, proxy: TcpProxy) -> None:
        self.proxy = proxy
        self.peer: Peer = "client"
        self.requests, self.answers = _Stream(self, "requests"), _Stream(self, "answers")
        self._request, self._is_answered = b"", False
        self._ended = 0
        proxy.links.add(self)

    async def reach(self) -> None:
        """Connect to the server; disconnect the client if that fails."""
        try:
            await self.proxy.loop.create_connection(lambda: _Server(self), HOST, self.proxy.target)
        except OSError:
            self.abort()

    def received(self, data: bytes) -> None:
        """Forward data of the client and identify the peer."""
        if b"PSYNC" in data[:4096]:
            self.peer = "replica"
        elif b"sentinel-" in data[:4096]:
            self.peer = "sentinel"
        if self._is_answered:
            self._request, self._is_answered = b"", False
        self._request += data
        if self.proxy.passes(self._request, b""):
            self.requests.put(data)

    def answered(self, data: bytes) -> None:
        """Forward data of the server."""
        self._is_answered = True
        if self.proxy.passes(self._request, data):
            self.answers.put(data)

    def ended(self) -> None:
        """Forget the link once both connections have ended: held data may arrive until then."""
        self._ended += 1
        if self._ended == 2:
            self.proxy.links.discard(self)

    def abort(self) -> None:
        """Abort both connections."""
        self.proxy.links.discard(self)
        for stream in (self.requests, self.answers):
            stream.queue.clear()
            if stream.end is not None:
                stream.end.abort()


class _Stream:
    """One direction of a link: queued data with delivery times."""

    def __init__(self, link: _Link, name: Direction) -> None:
        self._link, self._name = link, name
        self.end: asyncio.Transport | None = None
        self.queue: deque[tuple[float, bytes | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, data: bytes | None) -> None:
        """Queue data; None closes the connection."""
        proxy = self._link.proxy
        slow = self._link.peer == "replica" and self._name == "answers"
        self.queue.append((proxy.loop.time() + (proxy.lag if slow else 0.0), data))
        self.pump()

    def pump(self) -> None:
        """Deliver due data unless the proxy is cut."""
        proxy = self._link.proxy
        while self.queue and self.end and (self._link.peer, self._name) not in proxy.cuts:
            if self.queue[0][0] > proxy.loop.time():
                self._later()
                return
            data = self.queue.popleft()[1]
            if data is None:
                self.end.close()
            elif not self.end.is_closing():
                self.end.write(data)

    def _later(self) -> None:
        if self._timer is None:
            self._timer = self._link.proxy.loop.call_at(self.queue[0][0], self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.pump()


class _Client(asyncio.Protocol):
    """The connection of the client."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._link.answers.end = transport
        self._reaching = self._link.proxy.loop.create_task(self._link.reach())

    def data_received(self, data: bytes) -> None:
        self._link.received(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._link.requests.put(None)
        self._link.ended()


class _Server(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._link.requests.end = transport
        self._link.requests.pump()

    def data_received(self, data: bytes) -> None:
        self._link.answered(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._link.peer == "replica":
            self._link.abort()
        else:
            self._link.answers.put(None)
            self._link.ended()
