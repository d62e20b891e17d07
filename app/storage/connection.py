"""Clients by URL: of one server, of the master that Sentinels name, or of a Cluster.

Every client has redis-py's commands, `together` (several commands on one connection to the server
that holds a key), `masters` (every server that holds keys) and `address` (for messages).
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from redis import exceptions as foreign
from redis.asyncio import Redis
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff

from app.errors import SolarError
from app.storage.cluster import Address, Cluster

SCHEMES = (
    "redis://", "rediss://", "unix://", "redis+sentinel://", "rediss+sentinel://",
    "redis+cluster://", "rediss+cluster://",
)  # fmt: skip
NOT_A_URL = (
    "store URL: expected redis://USER:PASSWORD@HOST:PORT/0; in a password write /, @ and : as %2F, "
    "%40 and %3A"
)
#: Timeout of a command in seconds; commands of the store take less than a tenth of it.
TIMEOUT = 5.0
#: Timeout of a command to a Sentinel in seconds; all Sentinels are asked in parallel.
SENTINEL_TIMEOUT = 0.5
#: Seconds between two questions to the Sentinels about the master while there is traffic.
MASTER_SECONDS = 1.0
#: Each model that is learnt or followed holds a connection; redis-py's limit is 100.
MAX_CONNECTIONS = 8192


class Single(Redis):
    """A client of one server, or of the current master."""

    address = ""

    async def together(self, _key: str, *commands: Sequence[Any]) -> list[Any]:
        """Send commands over one connection; return the answers or raise the first error."""
        return await self.batch([(command, {}) for command in commands])

    async def batch(
        self, calls: Sequence[tuple[Sequence[Any], dict[str, Any]]], *, asking: bool = False
    ) -> list[Any]:
        """Do the same with redis-py's options; `asking` sends ASKING before each command."""
        if len(calls) == 1 and not asking:
            args, options = calls[0]
            return [await self.execute_command(*args, **options)]  # type: ignore[no-untyped-call]
        pipeline: Any = self.pipeline(transaction=False)
        for args, options in calls:
            if asking:
                pipeline.execute_command("ASKING")
            pipeline.execute_command(*args, **options)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers[1::2] if asking else answers

    async def masters(self) -> list["Single"]:
        """Return this client."""
        return [self]


class MultiServerURL(NamedTuple):
    """The parts of a URL with several servers."""

    servers: list[Address]
    path: list[str]
    scheme: str
    credentials: str
    query: str

    @classmethod
    def parse(cls, url: str) -> "MultiServerURL":
        """Parse a URL; the ValueError does not repeat it, because it may hold a password."""
        named, _, rest = url.partition("://")
        scheme, _, kind = named.partition("+")
        netloc = re.split("[/?#]", rest, maxsplit=1)[0]
        remainder = urlsplit(rest[len(netloc) :])  # it refuses several servers with brackets
        credentials, _, hosts = netloc.rpartition("@")
        path = [unquote(part) for part in remainder.path.split("/") if part]
        try:
            port = 26379 if kind == "sentinel" else 6379
            servers = [_address(host, port) for host in hosts.split(",")]
        except ValueError:
            raise ValueError("store URL: expected servers as HOST:PORT,HOST:PORT") from None
        return cls(servers, path, scheme, credentials, remainder.query)

    def url(self, address: Address, path: str = "") -> str:
        """Return the URL of one server."""
        at = f"{self.credentials}@" if self.credentials else ""
        server = f"{self.scheme}://{at}{_host_and_port(address)}"
        return f"{server}/{path}" + (self.query and f"?{self.query}")


def _address(text: str, port: int) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return parts.hostname, parts.port or port


def _host_and_port(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_url(url: str) -> None:
    """Raise SolarError for an invalid URL, without repeating it; an empty URL is valid."""
    if url:
        connect(url)


def connect(url: str) -> Any:
    """Return a client for a store. It resends after a lost connection: all writes allow that.

    SolarError does not repeat an invalid URL, because it may hold a password.
    """
    try:
        client = _client(url)
    except ValueError as error:
        message = str(error) if str(error).startswith("store URL") else NOT_A_URL
        raise SolarError(message) from None
    client.address = public_address(url)
    return client


def public_address(url: str) -> str:
    """Return hosts and ports, or the socket, of a URL without credentials; empty if unclear.

    >>> public_address("redis://me:hush@store:6380/0"), public_address("redis://store")
    ('store:6380', 'store:6379')
    >>> public_address("rediss+sentinel://:hush@one,two:7/main")
    'one:26379,two:7'
    >>> public_address("unix://:hush@/run/valkey.sock?db=1")
    '/run/valkey.sock'
    >>> public_address("redis://me:12/hush@store"), public_address("redis://")
    ('', '')
    """
    rest = url.partition("://")[2]
    netloc = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in rest[len(netloc) :]:  # perhaps a password with a slash: its start is in `netloc`
        return ""
    if url.startswith("unix://"):
        return unquote(urlsplit(url).path)
    with suppress(ValueError):  # no host: redis-py's default
        return ",".join(map(_host_and_port, MultiServerURL.parse(url).servers))
    return ""


def _client(url: str) -> Any:
    if not url.startswith(SCHEMES):
        raise ValueError(f"store URL: expected one of {', '.join(SCHEMES)}")
    kind = url.partition("://")[0].partition("+")[2]
    if kind == "sentinel":
        return _of_sentinels(MultiServerURL.parse(url))
    if kind == "cluster":
        return _of_cluster(MultiServerURL.parse(url))
    return Single.from_url(url, **_options(retries=2))


def _options(retries: int, timeout: float = TIMEOUT) -> dict[str, Any]:
    backoff = ExponentialWithJitterBackoff(base=0.01, cap=0.2) if retries else NoBackoff()
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(backoff, retries),
        "retry_on_error": [foreign.ConnectionError, foreign.TimeoutError] if retries else [],
        "health_check_interval": 0,
        "max_connections": MAX_CONNECTIONS,
    }


def _of_cluster(parts: MultiServerURL) -> Cluster:
    if parts.path not in ([], ["0"]):
        raise ValueError("store URL: expected database 0 or none; a Cluster has no other")

    def node(address: Address) -> Any:
        client: Any = Single.from_url(parts.url(address), **_options(retries=0))
        client.address = _host_and_port(address)
        return client

    return Cluster(parts.servers, node)


def _of_sentinels(parts: MultiServerURL) -> "Single":
    if not parts.path:
        raise ValueError("store URL: expected the service name in the path, after the Sentinels")
    service, database = parts.path[0], "".join(parts.path[1:2])
    given = parse_url(parts.url(parts.servers[0], database))
    own = {
        name: given.pop(f"sentinel_{name}", None)  # type: ignore[misc]
        for name in ("username", "password")
    }
    tls = {name: value for name, value in given.items() if name.startswith("ssl_")}
    sentinels = Sentinels([])  # type: ignore[no-untyped-call]
    sentinels.sentinels = [
        Redis(
            host=host, port=port, ssl="connection_class" in given,
            **{**_options(0, SENTINEL_TIMEOUT), **tls, **own},
        )
        for host, port in parts.servers
    ]  # fmt: skip
    secure = given.pop("connection_class", None) is SSLConnection
    for name in ("host", "port"):
        given.pop(name, None)  # type: ignore[misc]
    connection = SentinelManagedSSLConnection if secure else SentinelManagedConnection
    options = {**_options(retries=2), **given, "connection_class": connection}
    return SentinelClient(connection_pool=MasterPool(service, sentinels, **options))


class SentinelClient(Single):
    """A client of the master that Sentinels name."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close all connections, also those to the Sentinels."""
        await super().aclose(close_connection_pool)
        await self.connection_pool.aclose()


class Sentinels(Sentinel):
    """Asks all Sentinels and takes the newest answer: a partitioned one has an old answer."""

    async def discover_master(self, service_name: str) -> Address:
        """Return the master's address; MasterNotFoundError if no Sentinel knows one that is up."""
        asked = (sentinel.sentinel_master(service_name) for sentinel in self.sentinels)
        found = await asyncio.gather(*asked, return_exceptions=True)
        up = [
            one
            for one in found
            if isinstance(one, dict) and self.check_master_state(one, service_name)
        ]
        if not up:
            raise MasterNotFoundError("no Sentinel knows a master that is up")
        newest = max(up, key=lambda state: int(state["config-epoch"]))
        return newest["ip"], int(newest["port"])


class MasterPool(SentinelConnectionPool):
    """A pool of connections to the master; it closes them when the Sentinels name another.

    redis-py asks for the master only when it opens a connection. So it would keep writing to an old
    master that it reaches and the Sentinels do not.
    """

    def __init__(self, service: str, sentinels: Sentinels, **options: Any) -> None:
        options["redis_connect_func"] = _greet_master
        super().__init__(service, sentinels, **options)  # type: ignore[no-untyped-call]
        self.master_address: Address | None = None
        self._asked = self._used = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection to the master; its role is checked in the background.

        After a pause in the traffic the check comes first.
        """
        paused, self._used = monotonic() > self._used + MASTER_SECONDS, monotonic()
        if self._stale() and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._try_ask())
        if paused and self._asking is not None:
            await asyncio.wait([self._asking], timeout=SENTINEL_TIMEOUT)
        return await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]

    async def get_master_address(self) -> Address | None:
        """Return the master's address, at most MASTER_SECONDS old."""
        if self._stale():
            await self._ask()
        return self.master_address

    def _stale(self) -> bool:
        return self.master_address is None or monotonic() > self._asked + MASTER_SECONDS

    async def _ask(self) -> None:
        address = await self.sentinel_manager.discover_master(self.service_name)
        self._asked = monotonic()
        before, self.master_address = self.master_address, address
        if before not in (None, address):
            await self.disconnect(inuse_connections=True)

    async def _try_ask(self) -> None:
        """Ignore unreachable Sentinels: the master may still be reachable."""
        with suppress(foreign.RedisError, OSError):
            await self._ask()

    async def aclose(self) -> None:
        """Close all connections, also those to the Sentinels."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self.disconnect()
        await self.sentinel_manager.aclose()


async def _greet_master(connection: Any) -> None:
    """Refuse a server that is not the master: its data may be stale."""
    await connection.on_connect()
    await connection.send_command("ROLE")
    if (await connection.read_response())[0] not in (b"master", "master"):
        raise foreign.ConnectionError("the server that a Sentinel named is not the master")
