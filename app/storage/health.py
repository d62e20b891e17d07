"""What is asked of the servers themselves: how full, how old, how safe. On a Cluster every master.

Three levels of durability can be asked for. `local`: acknowledged is in the append-only file,
which reaches the disk within a second or two; `fsync`: it is on the disk; `replicated`: that, and a
replica has it. A level that was asked for and that a server does not give is refused.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from redis import exceptions as foreign

from app.errors import NotDurable
from app.storage.errors import refusal, translated
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


async def memory(client: Any) -> list[Memory]:
    """How full each master is; also a sign of life."""
    with translated():
        try:
            found = [await one.info("memory") for one in await client.masters()]
        except foreign.NoPermissionError:  # INFO is denied
            await client.exists(MODELS)
            return [Memory(0, 0)]
    return [Memory(int(one.get("maxmemory", 0)), int(one.get("used_memory", 0))) for one in found]


async def complaints(client: Any, durability: str) -> list[str]:
    """What is wrong with the servers' settings; what could not be asked is said too.

    OldServer if one is older than we need, NotDurable if it gives less than was asked for.
    """
    asked: tuple[Callable[[Any], Awaitable[list[str]]], ...] = (
        _age,
        lambda one: _settings(one, durability),
    )
    if durability == "replicated":
        asked += (_replicas,)
    with translated():
        masters = await client.masters()
    found = [said for one in masters for ask in asked for said in await ask(one)]
    return list(dict.fromkeys(found))


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
            return [f"CONFIG GET was refused ({refusal(error)}): {unchecked}"]
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
