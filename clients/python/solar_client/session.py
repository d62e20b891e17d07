"""Sessions send calls to a service and translate foreign errors, once.

They use the transports of httpx without its clients: a client takes as long as the transport, for
redirects, cookies and hooks that no call of the service needs.
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpcore
import httpx

from solar_client.addresses import base_url, find_proxy, key_header
from solar_client.backoff import read_retry_after
from solar_client.calls import Answer, Call
from solar_client.connections import DeadlineBackend, StaleConnection
from solar_client.encoding import read_compressed
from solar_client.errors import TimedOut, Unreachable
from solar_client.transport import AsyncTransport, Transport

KEPT_CONNECTIONS = 20


@dataclass(frozen=True, slots=True)
class Target:
    """Where calls go: the address, the headers (with the API key), certificates and the proxy."""

    base: httpx.URL
    headers: dict[str, str] = field(repr=False)
    certificates: ssl.SSLContext | None
    proxy: httpx.Proxy | None = field(repr=False)
    _urls: dict[str, httpx.URL] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str, key: str | None, certificates: ssl.SSLContext | None) -> "Target":
        """Check the address and the key; without one, `SOLAR_KEY` of the environment is used."""
        base = base_url(url)
        headers = key_header(os.environ.get("SOLAR_KEY", "") if key is None else key)
        if certificates is None and base.scheme == "https":
            certificates = ssl.create_default_context()  # httpx's default has no private CAs
        headers["user-agent"] = "solar-client"
        return cls(base, headers, certificates, find_proxy(base))

    def request(self, call: Call[Any], content: Any, timeouts: dict[str, float]) -> httpx.Request:
        """Return the request of a call."""
        kind = {"content-type": call.content_type} if call.content_type else {}
        return httpx.Request(
            call.method, self._url(call.path), headers={**self.headers, **kind}, content=content,
            extensions={"timeout": timeouts},
        )  # fmt: skip

    def _url(self, path: str) -> httpx.URL:
        """Return the address of a path; those of /rank and /feedback are parsed once."""
        found = self._urls.get(path)
        if found is None:
            whole, _, query = path.partition("?")
            base = self.base.raw_path.decode().rstrip("/")
            found = self.base.copy_with(raw_path=f"{base}/{whole}?{query}".rstrip("?").encode())
            if path in ("rank", "feedback"):
                self._urls[path] = found
        return found


def _answer(response: httpx.Response) -> Answer:
    retry_after = response.headers.get("retry-after")
    seconds = read_retry_after(retry_after, time.time()) if retry_after else 0.0
    return Answer(response.status_code, response.content, seconds)


@contextmanager
def _translated(call: Call[Any], seconds: float) -> Iterator[None]:
    path = call.path.partition("?")[0]
    try:
        yield
    except (httpcore.TimeoutException, TimeoutError):
        raise TimedOut(f"/{path}: no answer within {seconds:g} s") from None
    except (
        httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, httpx.HTTPError,
    ) as error:  # fmt: skip
        raise Unreachable(f"/{path}: {error or 'the connection was closed'}") from error


class Session:
    """Connections of one process to a service; safe for threads."""

    def __init__(self, target: Target) -> None:
        self._target, self._backend = target, DeadlineBackend()
        self._kept = self._transport(KEPT_CONNECTIONS)

    def _transport(self, kept: int) -> Transport:
        target = self._target
        return Transport(self._backend, target.certificates, target.proxy, kept)

    @cached_property
    def _fresh(self) -> Transport:
        """A transport that keeps no connection, so that each call gets a new one."""
        return self._transport(0)

    def exchange(self, call: Call[Any], seconds: float) -> Answer:
        """Send a call and return the answer, all within `seconds`."""
        until = time.monotonic() + seconds
        timeouts = {"connect": until, "read": until, "write": until, "pool": seconds}
        with _translated(call, seconds):
            try:
                return self._send(self._kept, call, timeouts)
            except StaleConnection:
                if not call.repeatable:
                    raise
                return self._send(self._fresh, call, timeouts)

    def _send(self, transport: Transport, call: Call[Any], timeouts: dict[str, float]) -> Answer:
        content = call.body if isinstance(call.body, bytes) else read_compressed(call.body)
        response = transport.handle_request(self._target.request(call, content, timeouts))
        with closing(response):
            response.read()
        return _answer(response)

    def close(self) -> None:
        """Close all connections."""
        self._kept.close()
        if "_fresh" in self.__dict__:
            self._fresh.close()

    def abandon(self) -> None:
        """Close the sockets in a forked process; the parent's connections stay open."""
        self._backend.abandon()


class AsyncSession:
    """Connections of one event loop to a service."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._kept = self._transport(KEPT_CONNECTIONS)

    def _transport(self, kept: int) -> AsyncTransport:
        return AsyncTransport(self._target.certificates, self._target.proxy, kept)

    @cached_property
    def _fresh(self) -> AsyncTransport:
        """A transport that keeps no connection, so that each call gets a new one."""
        return self._transport(0)

    async def exchange(self, call: Call[Any], seconds: float) -> Answer:
        """Send a call and return the answer, all within `seconds`."""
        with _translated(call, seconds):
            async with asyncio.timeout(seconds):
                try:
                    return await self._send(self._kept, call)
                except StaleConnection:
                    if not call.repeatable:
                        raise
                    return await self._send(self._fresh, call)

    async def _send(self, transport: AsyncTransport, call: Call[Any]) -> Answer:
        content = call.body if isinstance(call.body, bytes) else _read_in_thread(call.body)
        response = await transport.handle_async_request(self._target.request(call, content, {}))
        async with aclosing(response):
            await response.aread()
        return _answer(response)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._kept.aclose()
        if "_fresh" in self.__dict__:
            await self._fresh.aclose()


async def _read_in_thread(files: Sequence[Path]) -> AsyncIterator[bytes]:
    """Read and compress files without blocking the event loop."""
    chunks = read_compressed(files)
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk
