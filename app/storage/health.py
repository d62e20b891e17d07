"""What is asked of the servers themselves: how full, how old, how safe. On a Cluster every master.

Three levels of durability can be asked for. `local`: acknowledged is in the append-only file,
which reaches the disk within a second or two; `fsync`: it is on the disk; `replicated`: that, and a
replica has it. A level that was asked for and that a server does not give is refused.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from redis import exceptions as foreign

from app.errors import NotDurable
from app.storage.calls import server_message, translated
from app.storage.keys import MODELS
from app.storage.server_version import refuse_old

#: What each level takes of `appendfsync`; without a level less is only complained about.
FSYNC = {
    "": ("always",),
    "local": ("always", "everysec"),
    "fsync": ("always",),
    "replicated": ("always",),
}
_ASKED = ("appendonly", "appendfsync", "maxmemory-policy")


class Memory(NamedTuple):
    """A server's memory limit (0: none that we know of), and how much is used; in bytes."""

    limit: int
    used: int

    @property
    def share(self) -> float:
        """How much of the limit is used."""
        return self.used / self.limit if self.limit else 0.0


class Servers:
    """The servers behind a store."""

    def __init__(self, client: Any, durability: str) -> None:
        self._client, self._durability = client, durability

    async def memory_share(self) -> float:
        """How much of the fullest server's memory limit is used, 0 without one; a sign of life."""
        return max(one.share for one in await self._memory())

    async def room_for_a_log(self) -> int:
        """How many bytes a log may take, so that all of them leave three quarters of the server."""
        limits = [one.limit for one in await self._memory() if one.limit]
        with translated():
            models = int(await self._client.scard(MODELS))
        return min(limits) // (4 * max(1, models)) if limits else 1 << 62

    async def _memory(self) -> list[Memory]:
        """How full each master is."""
        with translated():
            try:
                found = [await one.info("memory") for one in await self._client.masters()]
            except foreign.NoPermissionError:  # INFO is denied
                await self._client.exists(MODELS)
                return [Memory(0, 0)]
        return [
            Memory(int(one.get("maxmemory", 0)), int(one.get("used_memory", 0))) for one in found
        ]

    async def complaints(self) -> list[str]:
        """What is wrong with the servers' settings; what could not be asked is said too.

        OldServer if one is older than we need, NotDurable if it gives less than was asked for.
        """
        asked: tuple[Callable[[Any], Awaitable[list[str]]], ...] = (
            _age,
            lambda one: _settings(one, self._durability),
        )
        if self._durability == "replicated":
            asked += (_replicas,)
        with translated():
            masters = await self._client.masters()
        found = [said for one in masters for ask in asked for said in await ask(one)]
        return list(dict.fromkeys(found))

    async def refuse_old(self) -> None:
        """OldServer if a server is older than we need; one that will not say passes."""
        with translated():
            masters = await self._client.masters()
        for one in masters:
            await version(one)


async def _age(server: Any) -> list[str]:
    said = await version(server)
    return [] if said else ["INFO names no version: whether it is too old goes unchecked"]


async def version(server: Any) -> str:
    """What a server says that it is, maybe nothing; OldServer if that is too old."""
    with translated():
        try:
            said = str((await server.info("server")).get("redis_version", ""))
        except foreign.ResponseError as error:  # may not be asked, or our client's first word
            hello = "unknown command `HELLO`" in str(error)
            said = "5 or older (it knows no HELLO)" if hello else ""
    refuse_old(said, "the store")
    return said


async def _settings(server: Any, durability: str) -> list[str]:
    with translated():
        try:
            found = await server.config_get(*_ASKED)
        except foreign.ResponseError as error:  # denied or renamed: a managed server, an ACL
            unchecked = f"expected {', '.join(_ASKED)} go unchecked"
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
        "appendfsync": (fsync, "a power cut loses what was acknowledged since the last fsync"),
    }
    return [
        f"{name}: expected {' or '.join(values)}, got {found.get(name)}: {why}"
        for name, (values, why) in wanted.items()
        if found.get(name) not in values
    ]


async def _replicas(server: Any) -> list[str]:
    with translated():
        try:
            count = (await server.info("replication")).get("connected_slaves", 0)
        except foreign.ResponseError:
            return ["INFO is denied: whether there is a replica goes unchecked"]
    return [] if count else ["a master has no replica now: feedback is refused until it has one"]
