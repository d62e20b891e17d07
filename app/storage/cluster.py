"""A Redis Cluster as one client: each command goes to the node that has its key's slot.

redis-py's own client for a Cluster sends ASKING on one connection and the command on another, and
closes everybody's connections when a slot moves (8.1); and what must be on one connection, as a
write and its WAIT, it does not have. What we need is little: all keys of a model are in one slot.
`tests/test_kept_by_hand.py` says when redis-py sends ASKING right.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from redis import exceptions as foreign
from redis.commands import AsyncCoreCommands
from redis.crc import key_slot

Address: TypeAlias = tuple[str, int]
#: A command's words, and redis-py's options for its answer.
ClusterCommand: TypeAlias = tuple[Sequence[Any], dict[str, Any]]

SLOTS = 16_384
#: Seconds before each further try; about a second in all. A failover takes longer, and so does a
#: slot with much in it on its way to another node: then whoever asked is told to come again.
PAUSES = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2, 0.2, 0.2)
_ELSEWHERE = (foreign.AskError,)  # MovedError is one
_NOT_NOW = (
    foreign.TryAgainError,
    foreign.ClusterDownError,
    foreign.ReadOnlyError,
    foreign.ConnectionError,
    OSError,
)


class Cluster(AsyncCoreCommands):
    """A client of all nodes that have slots."""

    _event_dispatcher: Any = None  # redis-py's commands want one; those that we use do without

    def __init__(self, first: Sequence[Address], connect: Callable[[Address], Any]) -> None:
        self._first, self._connect = list(first), connect
        self._nodes: dict[Address, Any] = {}
        self._owners: list[Address] = []  # by slot
        self._stale, self._renewing = True, asyncio.Lock()

    async def aclose(self) -> None:
        """Close the connections to all nodes."""
        await _close(self._nodes.values())
        self._nodes.clear()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """One command on one key."""
        return (await self._on_owner(slot_of(_key(args)), [(args, options)]))[0]

    async def together(self, key: str, *commands: Sequence[Any]) -> list[Any]:
        """The answers to commands that go over one connection; raises the first error."""
        return await self._on_owner(slot_of(key), [(command, {}) for command in commands])

    def pipeline(self, transaction: bool = False) -> "ClusterPipeline":
        """Commands that may be for many nodes; never a transaction."""
        if transaction:
            raise ValueError("transaction: expected a script instead")
        return ClusterPipeline(self)

    def pubsub(self) -> Any:
        """A subscription at some node: what is published at one is heard at all."""
        return self._node(random.choice(self._known())).pubsub()  # noqa: S311

    async def masters(self) -> list[Any]:
        """Every node that has slots."""
        self._stale = True
        await self._renewed()
        return [self._node(address) for address in dict.fromkeys(self._owners)]

    async def spread(self, calls: Sequence[ClusterCommand]) -> list[Any]:
        """Answers to commands for many nodes: one round trip to each, unless slots have moved."""
        await self._renewed()
        parts: dict[Address, list[int]] = defaultdict(list)
        for at, (args, _) in enumerate(calls):
            parts[self._owners[slot_of(_key(args))]].append(at)
        answers: list[Any] = [None] * len(calls)

        async def ask(address: Address, places: list[int]) -> None:
            some = [calls[at] for at in places]
            try:
                found = await self._node(address).batch(some)
            except _ELSEWHERE + _NOT_NOW:
                found = [await self.execute_command(*args, **options) for args, options in some]
            for at, answer in zip(places, found, strict=True):
                answers[at] = answer

        await asyncio.gather(*(ask(*part) for part in parts.items()))
        return answers

    async def _on_owner(self, slot: int, calls: Sequence[ClusterCommand]) -> list[Any]:
        """Commands on keys of one slot, wherever that is; sent again until it answers."""
        failure: Exception | None = None
        asked: Address | None = None  # the node that a slot is on its way to
        for pause in PAUSES:
            address = asked or await self._owner(slot)
            try:
                answers: list[Any] = await self._node(address).batch(calls, asking=bool(asked))
            except _ELSEWHERE as moved:
                failure, there = moved, (moved.host or address[0], int(moved.port))
                asked = None if isinstance(moved, foreign.MovedError) else there
                if asked is None:
                    self._owners[slot] = there
                continue
            except _NOT_NOW as error:
                failure, asked = error, None
                self._stale |= not isinstance(error, foreign.TryAgainError)
                self._first.sort(key=address.__eq__)  # others are asked first where slots are
            except foreign.TimeoutError:
                self._stale = True
                raise
            else:
                self._stale |= isinstance(failure, foreign.MovedError)
                return answers
            await asyncio.sleep(pause)
        raise failure or foreign.ClusterError("nothing was tried")

    async def _owner(self, slot: int) -> Address:
        await self._renewed()
        return self._owners[slot]

    async def _renewed(self) -> None:
        """Find out where all slots are, if something has changed."""
        async with self._renewing:
            if not self._stale:
                return
            failure: Exception = foreign.ClusterDownError("no node knows where all slots are")
            for address in self._known():
                try:
                    self._take(await self._node(address).execute_command("CLUSTER SLOTS"), address)
                except (foreign.RedisError, OSError) as error:
                    failure = error
                else:
                    return
            raise failure

    def _take(self, found: Sequence[Any], told_by: Address) -> None:
        owners: list[Any] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in found:
            owner = (host.decode() if host else told_by[0], int(port))
            owners[first : last + 1] = [owner] * (last + 1 - first)
        if None in owners:
            raise foreign.ClusterDownError("a node does not know where all slots are")
        self._owners, self._stale = owners, False

    def _known(self) -> list[Address]:
        """All addresses that we know, those that failed of late last."""
        others = [address for address in dict.fromkeys(self._owners) if address not in self._first]
        return [*self._first, *others]

    def _node(self, address: Address) -> Any:
        if address not in self._nodes:
            self._nodes[address] = self._connect(address)
        return self._nodes[address]


class ClusterPipeline(AsyncCoreCommands):
    """Commands that are sent together, each to where its key is."""

    _event_dispatcher: Any = None

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._calls: list[ClusterCommand] = []

    def execute_command(self, *args: Any, **options: Any) -> "ClusterPipeline":
        """One more."""
        self._calls.append((args, options))
        return self

    async def execute(self) -> list[Any]:
        """All answers, in order; raises the first error."""
        return await self._cluster.spread(self._calls)


def slot_of(key: str | bytes) -> int:
    """The slot of a key.

    >>> slot_of("solar:{books}:log") == slot_of("solar:{books}:state") == slot_of("books")
    True
    """
    return int(key_slot(key.encode() if isinstance(key, str) else key))


def _key(args: Sequence[Any]) -> str:
    """The first key of a command, among those that we use."""
    match str(args[0]).upper():
        case "EVALSHA":
            found = args[3]
        case "XREAD":
            found = args[[*args].index(b"STREAMS") + 1]
        case _:
            found = args[1]
    return str(found)


async def _close(nodes: Iterable[Any]) -> None:
    await asyncio.gather(*(node.aclose() for node in nodes))
