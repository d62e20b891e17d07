"""Connections with the deadline of a whole call, and a mark on kept ones that were closed.

httpx limits each phase of a call: a server that sends a byte now and then is waited for without
end. So the synchronous pool below takes its timeouts as the time, of the monotonic clock, when the
call must end. asyncio limits a whole call by itself.

A kept connection may be closed by the server while a request is on its way. If no byte of the
answer has come, `StaleConnection` says so, and the call may be sent again.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotResolved
from ipaddress import ip_address
from typing import Any
from weakref import WeakSet

import httpcore


class StaleConnection(httpcore.ReadError):
    """A kept connection was closed before any byte of the answer."""


class _Use:
    """Whether a connection has served a request before, and whether an answer has begun."""

    __slots__ = ("answering", "served")

    def __init__(self) -> None:
        self.served = self.answering = False

    @property
    def stale(self) -> bool:
        return self.served and not self.answering


class DeadlineStream(httpcore.NetworkStream):
    """A connection whose timeouts are the time when the call must end."""

    def __init__(
        self, stream: httpcore.NetworkStream, streams: "WeakSet[httpcore.NetworkStream]"
    ) -> None:
        self._stream, self._use, self._streams = stream, _Use(), streams
        streams.add(self)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read some bytes."""
        try:
            data = self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))
        except httpcore.ReadError:
            if self._use.stale:
                raise StaleConnection from None
            raise
        if not data and self._use.stale:
            raise StaleConnection
        self._use.served = self._use.answering = True
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all bytes."""
        self._use.answering = False
        self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Return an encrypted connection in place of this one."""
        left = _left(timeout, httpcore.ConnectTimeout)
        encrypted = self._stream.start_tls(ssl_context, server_hostname, left)
        return DeadlineStream(encrypted, self._streams)

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks about the socket."""
        return self._stream.get_extra_info(info)


def _left(until: float | None, error: type[httpcore.TimeoutException]) -> float | None:
    if until is None:
        return None
    left = until - time.monotonic()
    if left <= 0.0:
        raise error
    return left


class DeadlineBackend(httpcore.NetworkBackend):
    """Connects before the time when the call must end, and knows its open connections."""

    def __init__(self) -> None:
        self._inner, self._resolver = httpcore.SyncBackend(), Resolver()
        self._streams: WeakSet[httpcore.NetworkStream] = WeakSet()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that answers; each gets its share of the time."""
        addresses = self._resolver.resolve(host, port, _left(timeout, httpcore.ConnectTimeout))
        for tried, address in enumerate(addresses):
            left = _left(timeout, httpcore.ConnectTimeout)
            share = None if left is None else left / (len(addresses) - tried)
            try:
                stream = self._inner.connect_tcp(
                    address, port, share, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if tried == len(addresses) - 1:
                    raise
            else:
                return DeadlineStream(stream, self._streams)
        raise httpcore.ConnectError(f"{host}: no address")

    def abandon(self) -> None:
        """Close the sockets in a forked process; the parent's connections stay open."""
        for stream in list(self._streams):
            stream.get_extra_info("socket").close()


class Resolver:
    """Resolves names in a thread: getaddrinfo has no timeout. One lookup per name at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[tuple[str, int], Future[list[str]]] = {}

    def resolve(self, host: str, port: int, seconds: float | None) -> list[str]:
        """Return the addresses of a host in the order of the system."""
        try:
            return [str(ip_address(host))]
        except ValueError:
            pass
        try:
            return self._lookup(host, port).result(seconds)
        except NotResolved:
            raise httpcore.ConnectTimeout(f"{host}: not resolved in time") from None
        except OSError as error:
            raise httpcore.ConnectError(f"{host}: {error.strerror}") from None

    def _lookup(self, host: str, port: int) -> "Future[list[str]]":
        with self._lock:
            running = self._running.get((host, port))
            if running is None:
                running = self._running[host, port] = Future()
                work = threading.Thread(target=self._work, args=(host, port, running), daemon=True)
                work.start()
            return running

    def _work(self, host: str, port: int, future: "Future[list[str]]") -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(one[4][0]) for one in found]
        except OSError as error:
            self._forget(host, port)
            future.set_exception(error)
        else:
            self._forget(host, port)
            future.set_result(list(dict.fromkeys(addresses)))

    def _forget(self, host: str, port: int) -> None:
        with self._lock:
            del self._running[host, port]


class MarkedStream(httpcore.AsyncNetworkStream):
    """A connection that says whether it was closed while it was kept."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream, self._use = stream, _Use()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read some bytes."""
        try:
            data = await self._stream.read(max_bytes, timeout)
        except httpcore.ReadError:
            if self._use.stale:
                raise StaleConnection from None
            raise
        if not data and self._use.stale:
            raise StaleConnection
        self._use.served = self._use.answering = True
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all bytes."""
        self._use.answering = False
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return an encrypted connection in place of this one."""
        return MarkedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks about the socket."""
        return self._stream.get_extra_info(info)


class MarkedBackend(httpcore.AsyncNetworkBackend):
    """Makes marked connections."""

    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a server."""
        stream = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return MarkedStream(stream)
