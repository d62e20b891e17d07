"""A client for a Redis Cluster: each command goes to the node that owns its key's slot.

It replaces redis-py's client for three reasons (redis-py 8.1). That client sends ASKING on one
connection and the command on another. It closes all connections when a slot moves. It cannot send
several commands, such as a write and its WAIT, on one connection. All keys of a model share a slot,
so this client stays small. `tests/test_kept_by_hand.py` fails once redis-py sends ASKING correctly.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, TypeAlias

from redis import exceptions as foreign
from redis.commands import AsyncCoreCommands
from redis.crc import key_slot

Address: TypeAlias = tuple[str, int]
#: A command's words, and redis-py's options for its answer.
ClusterCommand: TypeAlias = tuple[Sequence[Any], dict[str, Any]]

SLOTS = 16_384
#: Seconds after which `masters` reads the slot table again.
SLOTS_SECONDS = 1.0
#: Seconds before each retry; about a second in total. A failover, or the move of a slot with much
#: data, takes longer: then the call fails and its caller may retry.
RETRY_PAUSES = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2, 0.2, 0.2)
_REDIRECTED = (foreign.AskError,)  # and its subclass MovedError
_RETRIED = (
    foreign.TryAgainError,
    foreign.ClusterDownError,
    foreign.ReadOnlyError,
    foreign.ConnectionError,
    OSError,
)


class Cluster(AsyncCoreCommands):
    """A client of all nodes that own slots."""

    address = ""
    _event_dispatcher: Any = None  # redis-py's mixin requires it; the commands used here do not

    def __init__(self, seeds: Sequence[Address], connect: Callable[[Address], Any]) -> None:
        self._seeds, self._connect = list(seeds), connect
        self._nodes: dict[Address, Any] = {}
        self._owners: list[Address] = []  # by slot
        self._stale, self._renewing = True, asyncio.Lock()
        self._read_at = float("-inf")

    async def aclose(self) -> None:
        """Close the connections to all nodes."""
        await _close(self._nodes.values())
        self._nodes.clear()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command on one key."""
        return (await self._on_owner(slot_of(_key(args)), [(args, options)]))[0]

    async def together(self, key: str, *commands: Sequence[Any]) -> list[Any]:
        """Send commands over one connection; return the answers or raise the first error."""
        return await self._on_owner(slot_of(key), [(command, {}) for command in commands])

    def pipeline(self, transaction: bool = False) -> "ClusterPipeline":
        """Start a pipeline over all nodes; never a transaction."""
        if transaction:
            raise ValueError("transaction: expected False; a Cluster needs a script instead")
        return ClusterPipeline(self)

    def pubsub(self) -> Any:
        """Subscribe at a random node: a Cluster publishes to all nodes."""
        return self._node(random.choice(self._known())).pubsub()  # noqa: S311

    async def masters(self) -> list[Any]:
        """Return every node that owns slots, as of at most a second ago."""
        self._stale |= monotonic() > self._read_at + SLOTS_SECONDS
        await self._renewed()
        return [self._node(address) for address in dict.fromkeys(self._owners)]

    async def spread(self, calls: Sequence[ClusterCommand], *, strict: bool = True) -> list[Any]:
        """Send commands to many nodes: one round trip to each, unless slots have moved.

        Unless `strict`, the answers of a node that fails are its error.
        """
        await self._renewed()
        parts: dict[Address, list[int]] = defaultdict(list)
        for at, (args, _) in enumerate(calls):
            parts[self._owners[slot_of(_key(args))]].append(at)
        answers: list[Any] = [None] * len(calls)

        async def ask(address: Address, indexes: list[int]) -> None:
            some = [calls[at] for at in indexes]
            try:
                found = await self._ask_node(address, some)
            except (foreign.RedisError, OSError) as error:
                if strict:
                    raise
                found = [error] * len(some)
            for at, answer in zip(indexes, found, strict=True):
                answers[at] = answer

        await asyncio.gather(*(ask(*part) for part in parts.items()))
        return answers

    async def _ask_node(self, address: Address, calls: Sequence[ClusterCommand]) -> list[Any]:
        try:
            answers: list[Any] = await self._node(address).batch(calls)
        except _REDIRECTED + _RETRIED:
            answers = [await self.execute_command(*args, **options) for args, options in calls]
        return answers

    async def _on_owner(self, slot: int, calls: Sequence[ClusterCommand]) -> list[Any]:
        """Send commands on keys of one slot to its owner; follow redirections and retry."""
        failure: Exception | None = None
        asked: Address | None = None  # the node that imports the slot
        for pause in RETRY_PAUSES:
            address = asked or await self._owner(slot)
            try:
                answers: list[Any] = await self._node(address).batch(calls, asking=bool(asked))
            except _REDIRECTED as moved:
                failure, there = moved, (moved.host or address[0], int(moved.port))
                asked = None if isinstance(moved, foreign.MovedError) else there
                if asked is None:
                    self._owners[slot] = there
                continue
            except _RETRIED as error:
                failure, asked = error, None
                self._stale |= not isinstance(error, foreign.TryAgainError)
                self._seeds.sort(key=address.__eq__)  # ask the other seeds first
            except foreign.TimeoutError:
                self._stale = True
                raise
            else:
                self._stale |= isinstance(failure, foreign.MovedError)
                return answers
            await asyncio.sleep(pause)
        raise failure or foreign.ClusterError("no attempt was made")

    async def _owner(self, slot: int) -> Address:
        await self._renewed()
        return self._owners[slot]

    async def _renewed(self) -> None:
        """Read the slot table if it is stale."""
        async with self._renewing:
            if not self._stale:
                return
            failure: Exception = foreign.ClusterDownError("no node knows the owners of all slots")
            for address in self._known():
                try:
                    self._take(await self._node(address).execute_command("CLUSTER SLOTS"), address)
                except (foreign.RedisError, OSError) as error:
                    failure = error
                else:
                    return
            raise failure

    def _take(self, found: Sequence[Any], source: Address) -> None:
        owners: list[Any] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in found:
            owner = (host.decode() if host else source[0], int(port))
            owners[first : last + 1] = [owner] * (last + 1 - first)
        if None in owners:
            raise foreign.ClusterDownError("a node does not know the owners of all slots")
        self._owners, self._stale, self._read_at = owners, False, monotonic()

    def _known(self) -> list[Address]:
        """Return all known addresses, recently failed seeds last among the seeds."""
        others = [address for address in dict.fromkeys(self._owners) if address not in self._seeds]
        return [*self._seeds, *others]

    def _node(self, address: Address) -> Any:
        if address not in self._nodes:
            self._nodes[address] = self._connect(address)
        return self._nodes[address]


class ClusterPipeline(AsyncCoreCommands):
    """A pipeline whose commands go to the owners of their keys."""

    _event_dispatcher: Any = None

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._calls: list[ClusterCommand] = []

    def execute_command(self, *args: Any, **options: Any) -> "ClusterPipeline":
        """Add a command."""
        self._calls.append((args, options))
        return self

    async def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        """Return all answers in order; raise the first error, or return errors as answers."""
        return await self._cluster.spread(self._calls, strict=raise_on_error)


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key.

    >>> slot_of("solar:{books}:log") == slot_of("solar:{books}:state") == slot_of("books")
    True
    """
    return int(key_slot(key.encode() if isinstance(key, str) else key))


def _key(args: Sequence[Any]) -> str:
    """Return the first key of a command; knows the commands that the store uses."""
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
