"""A URL becomes a client: of one server, of the master that Sentinels name, or of a Cluster.

All clients are alike to the store: they have redis-py's commands, `together` (several commands on
one connection of the server that has a key) and `masters` (every server that has keys).
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
#: A command that takes longer than this has failed; nothing we ask for takes a tenth of it.
TIMEOUT = 5.0
#: The same for a question to a Sentinel; several are asked at once.
SENTINEL_TIMEOUT = 0.5
#: Sentinels are asked who the master is at most, and if there is traffic at least, so often.
FRESH = 1.0
#: Each model that is learnt or followed holds a connection; redis-py would stop at 100.
CONNECTIONS = 8192


class Single(Redis):
    """One server, or whichever is the master now."""

    async def together(self, _key: str, *commands: Sequence[Any]) -> list[Any]:
        """The answers to commands that go over one connection; raises the first error."""
        return await self.batch([(command, {}) for command in commands])

    async def batch(
        self, calls: Sequence[tuple[Sequence[Any], dict[str, Any]]], *, asking: bool = False
    ) -> list[Any]:
        """The same with redis-py's options; `asking` asks a Cluster's node for what moves to it."""
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
        """Itself."""
        return [self]


class Place(NamedTuple):
    """What a URL of many servers says: the servers, the path, and a URL for each of them."""

    servers: list[Address]
    path: list[str]
    scheme: str
    credentials: str
    query: str

    @classmethod
    def of(cls, url: str) -> "Place":
        """Read it; ValueError that does not repeat it, as a password may be in it."""
        named, _, rest = url.partition("://")
        scheme, _, kind = named.partition("+")
        netloc = re.split("[/?#]", rest, maxsplit=1)[0]
        parts = urlsplit(rest[len(netloc) :])  # which may refuse several servers, one with brackets
        credentials, _, hosts = netloc.rpartition("@")
        path = [unquote(part) for part in parts.path.split("/") if part]
        try:
            port = 26379 if kind == "sentinel" else 6379
            servers = [_address(host, port) for host in hosts.split(",")]
        except ValueError:
            raise ValueError("store URL: expected HOST:PORT,HOST:PORT … in it") from None
        return cls(servers, path, scheme, credentials, parts.query)

    def url(self, address: Address, path: str = "") -> str:
        """The URL of one server."""
        host, port = address
        named = f"[{host}]" if ":" in host else host
        at = f"{self.credentials}@" if self.credentials else ""
        return f"{self.scheme}://{at}{named}:{port}/{path}" + (self.query and f"?{self.query}")


def _address(text: str, port: int) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return parts.hostname, parts.port or port


def check_url(url: str) -> None:
    """SolarError if no store can have this URL; it does not repeat it. None at all is fine."""
    if url:
        connect(url)


def connect(url: str) -> Any:
    """A client for a store. It sends again after a lost connection: all our writes allow that.

    SolarError does not repeat a wrong URL, as a password may be in it.
    """
    try:
        return _client(url)
    except ValueError as error:
        said = str(error) if str(error).startswith("store URL") else NOT_A_URL
        raise SolarError(said) from None


def _client(url: str) -> Any:
    if not url.startswith(SCHEMES):
        raise ValueError(f"store URL: expected one of {', '.join(SCHEMES)}")
    kind = url.partition("://")[0].partition("+")[2]
    if kind == "sentinel":
        return _of_sentinels(Place.of(url))
    if kind == "cluster":
        return _of_cluster(Place.of(url))
    return Single.from_url(url, **_options(retries=2))


def _options(retries: int, timeout: float = TIMEOUT) -> dict[str, Any]:
    backoff = ExponentialWithJitterBackoff(base=0.01, cap=0.2) if retries else NoBackoff()
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(backoff, retries),
        "retry_on_error": [foreign.ConnectionError, foreign.TimeoutError] if retries else [],
        "health_check_interval": 0,
        "max_connections": CONNECTIONS,
    }


def _of_cluster(place: Place) -> Cluster:
    if place.path not in ([], ["0"]):
        raise ValueError("store URL: expected no database but 0, a Cluster has no other")

    def node(address: Address) -> Any:
        return Single.from_url(place.url(address), **_options(retries=0))

    return Cluster(place.servers, node)


def _of_sentinels(place: Place) -> "Single":
    if not place.path:
        raise ValueError("store URL: expected the name of the service after the sentinels")
    service, database = place.path[0], "".join(place.path[1:2])
    given = parse_url(place.url(place.servers[0], database))
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
        for host, port in place.servers
    ]  # fmt: skip
    secure = given.pop("connection_class", None) is SSLConnection
    for name in ("host", "port"):
        given.pop(name, None)  # type: ignore[misc]
    connection = SentinelManagedSSLConnection if secure else SentinelManagedConnection
    options = {**_options(retries=2), **given, "connection_class": connection}
    return OfSentinels(connection_pool=Masters(service, sentinels, **options))


class OfSentinels(Single):
    """A client of the master that Sentinels name; it closes what it has opened."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Give the connections back, those to the Sentinels too."""
        await super().aclose(close_connection_pool)
        await self.connection_pool.aclose()


class Sentinels(Sentinel):
    """All of them are asked, and the newest answer counts: one that was cut off has an old one."""

    async def discover_master(self, service_name: str) -> Address:
        """Where the master is; MasterNotFoundError if none of them knows one that is up."""
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


class Masters(SentinelConnectionPool):
    """Connections to the master alone, given up as soon as another one is named.

    redis-py asks for the master when it opens a connection, no more: it would go on writing to an
    old master that it still reaches and the Sentinels do not.
    """

    def __init__(self, service: str, sentinels: Sentinels, **options: Any) -> None:
        options["redis_connect_func"] = _greet_master
        super().__init__(service, sentinels, **options)  # type: ignore[no-untyped-call]
        self.master_address: Address | None = None
        self._asked = self._used = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """A connection to the master; that it still is one is looked at beside the traffic.

        After a pause it is looked at first: much may have happened.
        """
        paused, self._used = monotonic() > self._used + FRESH, monotonic()
        if self._stale() and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask_quietly())
        if paused and self._asking is not None:
            await asyncio.wait([self._asking], timeout=SENTINEL_TIMEOUT)
        return await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]

    async def get_master_address(self) -> Address | None:
        """Where the master is, as of a moment ago."""
        if self._stale():
            await self._ask()
        return self.master_address

    def _stale(self) -> bool:
        return self.master_address is None or monotonic() > self._asked + FRESH

    async def _ask(self) -> None:
        address = await self.sentinel_manager.discover_master(self.service_name)
        self._asked = monotonic()
        before, self.master_address = self.master_address, address
        if before not in (None, address):
            await self.disconnect(inuse_connections=True)

    async def _ask_quietly(self) -> None:
        """Sentinels that are gone are no reason to leave a master that is there."""
        with suppress(foreign.RedisError, OSError):
            await self._ask()

    async def aclose(self) -> None:
        """Close all connections, those to the Sentinels too."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self.disconnect()
        await self.sentinel_manager.aclose()


async def _greet_master(connection: Any) -> None:
    """Refuse a server that is no master (any more): what it tells may be long gone."""
    await connection.on_connect()
    await connection.send_command("ROLE")
    if (await connection.read_response())[0] not in (b"master", "master"):
        raise foreign.ConnectionError("the server that a Sentinel named is not the master")
