"""Memory, version and durability of the servers; on a Cluster of every master.

There are three durability levels. `local`: acknowledged writes are in the append-only file, which
reaches the disk within a second or two. `fsync`: they are on the disk. `replicated`: they are also
on a replica. A server that does not provide the configured level is refused.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import time
from typing import Any, NamedTuple

import msgspec
from redis import exceptions as foreign

from app.errors import NotDurable
from app.storage.calls import server_message, translated
from app.storage.keys import KEPT_LISTS, MODELS, USAGE
from app.storage.server_version import refuse_old

#: Values of `appendfsync` that each level accepts; without a level, others are only reported.
FSYNC = {
    "": ("always",),
    "local": ("always", "everysec"),
    "fsync": ("always",),
    "replicated": ("always",),
}
#: Seconds of a slice of time; the bytes of clicked lists are counted by the slice of their end.
KEPT_SLICE = 600
#: The longest SOLAR_CONVERSION_SECONDS: no list of a right clock ends later.
MOST_KEPT_SECONDS = 7 * 86_400
#: Workers whose usage is kept.
MOST_WORKERS = 256
_CHECKED_SETTINGS = ("appendonly", "appendfsync", "maxmemory-policy")


class Memory(NamedTuple):
    """A server's memory limit (0: none, or unknown) and used memory, in bytes."""

    limit: int
    used: int

    @property
    def share(self) -> float:
        """Return the used share of the limit."""
        return self.used / self.limit if self.limit else 0.0


class AppendOnlyFile(NamedTuple):
    """The append-only file of all masters; `fsync` is its setting, None if it is hidden."""

    enabled: bool
    last_write_ok: bool
    fsync: str | None


class ServerStatus(NamedTuple):
    """The memory of the fullest master, the oldest version, and the append-only file.

    None is what the server hides.
    """

    memory: Memory | None = None
    version: str | None = None
    aof: AppendOnlyFile | None = None


class Servers:
    """The servers behind a store."""

    def __init__(self, client: Any, durability: str) -> None:
        self._client, self._durability = client, durability
        self._room, self._room_read = 0, float("-inf")

    async def memory_share(self) -> float:
        """Return the used share of the fullest server's memory limit, 0 without a limit."""
        return max(one.share for one in await self.memory())

    async def room_for_a_log(self, age: float = 0.0) -> int:
        """Return the bytes that one log may use so that all logs use a quarter of the server.

        An answer may be `age` seconds old: sessions of many models start at the same time.
        """
        now = asyncio.get_running_loop().time()
        if now < self._room_read + age:
            return self._room
        limits = [one.limit for one in await self.memory() if one.limit]
        with translated(self._client):
            models = int(await self._client.scard(MODELS))
        self._room = min(limits) // (4 * max(1, models)) if limits else 1 << 62
        self._room_read = now
        return self._room

    async def exchange_usage(
        self, worker: str, counts: Mapping[str, int], seconds: float
    ) -> dict[str, int]:
        """Store what a worker has stored by API key; return the sums over all other workers.

        The entry of a worker that has ended counts for `seconds`.
        """
        now = time()
        with translated(self._client):
            await self._client.hset(USAGE, worker, msgspec.json.encode([now, counts]))
            await self._client.pexpire(USAGE, int(seconds * 1000))
            found = await self._client.hgetall(USAGE)
            if len(found) > MOST_WORKERS:  # of workers that have ended; the others write again
                await self._client.delete(USAGE)
        sums: Counter[str] = Counter()
        for name, entry in found.items():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # damaged: written again soon
                at, stored = msgspec.json.decode(entry, type=tuple[float, dict[str, int]])
                if name != worker.encode() and abs(now - at) < seconds:
                    sums.update(stored)
        return dict(sums)

    async def exchange_kept(self, now: float, new: int, seconds: float) -> tuple[int, int]:
        """Count `new` bytes of clicked lists; return those of all workers, and the memory limit.

        A list counts for `seconds`, and until its slice of time ends. So other lists keep counting
        if the setting changes. The limit is that of the smallest master, 0: none; all lists of a
        model are on one master.
        """
        current, end = int(now / KEPT_SLICE), int((now + seconds) / KEPT_SLICE)
        latest = int((now + MOST_KEPT_SECONDS) / KEPT_SLICE)
        with translated(self._client):
            if new:
                await self._client.hincrby(KEPT_LISTS, str(end), new)
                await self._client.pexpire(KEPT_LISTS, 1000 * (MOST_KEPT_SECONDS + KEPT_SLICE))
            found = await self._client.hgetall(KEPT_LISTS)
            wrong = [one for one in found if not current <= int(one) <= latest]
            if wrong:
                await self._client.hdel(KEPT_LISTS, *wrong)
        kept = sum(int(size) for one, size in found.items() if one not in wrong)
        return kept, min((one.limit for one in await self.memory() if one.limit), default=0)

    async def memory(self) -> list[Memory]:
        """Return the memory of each master."""
        with translated(self._client):
            try:
                found = [await one.info("memory") for one in await self._client.masters()]
            except foreign.NoPermissionError:  # INFO is denied
                await self._client.exists(MODELS)
                return [Memory(0, 0)]
        return [_memory_of(one) for one in found]

    async def status(self) -> ServerStatus:
        """Return memory, version and append-only file."""
        with translated(self._client):
            masters = await self._client.masters()
            try:
                found = [await one.info() for one in masters]
            except foreign.ResponseError:  # INFO is denied
                await self._client.exists(MODELS)
                return ServerStatus()
            fsync = [await _fsync(one) for one in masters]
        memory = max(map(_memory_of, found), key=lambda one: (one.share, one.used))
        versions = sorted(str(one.get("redis_version", "")) for one in found)
        aof = AppendOnlyFile(
            all(one.get("aof_enabled") for one in found),
            all(one.get("aof_last_write_status", "ok") == "ok" for one in found),
            None if None in fsync else "/".join(sorted({str(one) for one in fsync})),
        )
        return ServerStatus(memory, versions[0] or None, aof)

    async def complaints(self) -> list[str]:
        """Return warnings about the servers' settings, also about settings that cannot be read.

        OldServer if a server is too old, NotDurable if it does not provide the configured level.
        """
        checks: tuple[Callable[[Any], Awaitable[list[str]]], ...] = (
            _age,
            lambda one: _settings(one, self._durability),
        )
        if self._durability == "replicated":
            checks += (_replicas,)
        with translated(self._client):
            masters = await self._client.masters()
        found = [line for one in masters for check in checks for line in await check(one)]
        return list(dict.fromkeys(found))

    async def refuse_old(self) -> None:
        """Raise OldServer if a server is too old; one that hides its version passes."""
        with translated(self._client):
            masters = await self._client.masters()
        for one in masters:
            await version(one)


def _memory_of(info: Mapping[str, Any]) -> Memory:
    return Memory(int(info.get("maxmemory", 0)), int(info.get("used_memory", 0)))


async def _fsync(server: Any) -> str | None:
    """Return the setting `appendfsync`; None if CONFIG GET is denied."""
    try:
        found = (await server.config_get("appendfsync")).get("appendfsync")
    except foreign.ResponseError:
        return None
    return found if found is None else str(found)


async def _age(server: Any) -> list[str]:
    found = await version(server)
    return [] if found else ["INFO shows no version: expected Redis 7.0 or newer, not checked"]


async def version(server: Any) -> str:
    """Return a server's version, empty if it is hidden; OldServer if it is too old."""
    with translated(server):
        try:
            found = str((await server.info("server")).get("redis_version", ""))
        except foreign.ResponseError as error:  # INFO is denied, or HELLO is unknown
            hello = "unknown command `HELLO`" in str(error)
            found = "5 or older (HELLO is unknown to it)" if hello else ""
    refuse_old(found, "the store")
    return found


async def _settings(server: Any, durability: str) -> list[str]:
    with translated(server):
        try:
            found = await server.config_get(*_CHECKED_SETTINGS)
        except foreign.ResponseError as error:  # denied or renamed, by a managed server or an ACL
            unchecked = f"{', '.join(_CHECKED_SETTINGS)} are not checked"
            return [f"CONFIG GET was refused ({server_message(error)}): {unchecked}"]
    weak = [*_weaknesses(found, FSYNC[durability])]
    if weak and durability:
        raise NotDurable(f"SOLAR_DURABILITY is {durability}, but {'; '.join(weak)}")
    policy = found.get("maxmemory-policy")
    evicts = f"maxmemory-policy: expected noeviction, got {policy}: the server may evict a model"
    return weak if policy == "noeviction" else [*weak, evicts]


def _weaknesses(found: dict[str, str], fsync: tuple[str, ...]) -> list[str]:
    wanted = {
        "appendonly": (("yes",), "without AOF a restart loses acknowledged feedback"),
        "appendfsync": (fsync, "a power cut loses writes acknowledged since the last fsync"),
    }
    return [
        f"{name}: expected {' or '.join(values)}, got {found.get(name)}: {why}"
        for name, (values, why) in wanted.items()
        if found.get(name) not in values
    ]


async def _replicas(server: Any) -> list[str]:
    with translated(server):
        try:
            count = (await server.info("replication")).get("connected_slaves", 0)
        except foreign.ResponseError:
            return ["INFO is denied: the number of replicas is not checked"]
    return [] if count else ["a master has no replica: feedback is refused until it has one"]
