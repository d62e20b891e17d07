"""Transports of httpx over pools of `connections`."""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any

import httpcore
import httpx

from solar_client.connections import DeadlineBackend, MarkedBackend

#: Seconds that an idle connection is kept: less than the service (75) and most proxies (60) do.
KEEP_SECONDS = 50.0
MOST_CONNECTIONS = 100


def _pool_options(context: ssl.SSLContext | None, kept: int) -> dict[str, Any]:
    return {
        "ssl_context": context, "max_connections": MOST_CONNECTIONS,
        "max_keepalive_connections": kept, "keepalive_expiry": KEEP_SECONDS,
    }  # fmt: skip


def _proxy_options(proxy: httpx.Proxy) -> dict[str, Any]:
    url = proxy.url
    return {
        "proxy_url": httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        ),
        "proxy_auth": proxy.raw_auth, "proxy_headers": proxy.headers.raw,
        "proxy_ssl_context": proxy.ssl_context,
    }  # fmt: skip


def _core_request(request: httpx.Request) -> httpcore.Request:
    url = request.url
    return httpcore.Request(
        method=request.method,
        url=httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        ),
        headers=request.headers.raw, content=request.stream, extensions=request.extensions,
    )  # fmt: skip


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        getattr(self._stream, "close", lambda: None)()


class Transport(httpx.BaseTransport):
    """A connection pool with deadlines; `kept` is the number of idle connections it keeps."""

    def __init__(
        self, backend: DeadlineBackend, context: ssl.SSLContext | None, proxy: httpx.Proxy | None,
        kept: int,
    ) -> None:  # fmt: skip
        options = {**_pool_options(context, kept), "network_backend": backend}
        self._pool: httpcore.ConnectionPool = (
            httpcore.HTTPProxy(**_proxy_options(proxy), **options)
            if proxy
            else httpcore.ConnectionPool(**options)
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; errors are those of httpcore."""
        answer = self._pool.handle_request(_core_request(request))
        assert isinstance(answer.stream, Iterable)  # noqa: S101  # mypy
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream),
            extensions=answer.extensions,
        )  # fmt: skip

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """A connection pool for asyncio; `kept` is the number of idle connections it keeps."""

    def __init__(
        self, context: ssl.SSLContext | None, proxy: httpx.Proxy | None, kept: int
    ) -> None:
        options = {**_pool_options(context, kept), "network_backend": MarkedBackend()}
        self._pool: httpcore.AsyncConnectionPool = (
            httpcore.AsyncHTTPProxy(**_proxy_options(proxy), **options)
            if proxy
            else httpcore.AsyncConnectionPool(**options)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; errors are those of httpcore."""
        answer = await self._pool.handle_async_request(_core_request(request))
        assert isinstance(answer.stream, AsyncIterable)  # noqa: S101  # mypy
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_AsyncBody(answer.stream),
            extensions=answer.extensions,
        )  # fmt: skip

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()
