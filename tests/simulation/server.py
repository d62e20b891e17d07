"""A primary, its replica and its disk: the data of each and the losses of faults.

level        power cut loses     failover loses
local        unsynced writes     writes not yet on the replica
fsync        nothing             writes not yet on the replica
replicated   nothing             nothing acknowledged: the store checks WAIT
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Literal, NamedTuple

from redis import exceptions as foreign

from tests.simulation import scripts
from tests.simulation.keyspace import Keyspace, Writes

Level = Literal["local", "fsync", "replicated"]
LEVELS: tuple[Level, ...] = ("local", "fsync", "replicated")
#: Seconds between two fsyncs at `local`.
FSYNC_SECONDS = 1.0
#: Commands that a full server refuses.
REFUSED_WHEN_FULL = {"sadd", *scripts.ALL} - scripts.ALLOW_OOM


class Call(NamedTuple):
    """A call of a client: a script (with keys and arguments) or a plain command."""

    name: str
    given: tuple[Any, ...]
    digest: str = ""  # of a script

    @classmethod
    def of(cls, command: Sequence[Any]) -> "Call":
        """Parse a command of the Redis protocol."""
        word, *words = command
        if word != "EVALSHA":
            return cls(str(word).lower(), tuple(words))
        digest, count, *rest = words
        name = scripts.BY_DIGEST.get(digest, "unknown")
        return cls(name, (rest[:count], rest[count:]), digest)

    def run(self, db: Keyspace) -> Any:
        """Execute the call; return the answer."""
        if self.name in scripts.ALL:
            return scripts.ALL[self.name](db, *self.given)
        return getattr(db, self.name)(*self.given)


class Step(NamedTuple):
    """An executed call, its answer and its writes, and the wall time."""

    call: Call
    answer: Any
    writes: Writes
    at: float = 0.0


@dataclass
class Copy:
    """A copy of the keyspace that lags by some steps."""

    db: Keyspace
    steps: int = 0

    def follow(self, journal: Sequence[Step], until: int) -> None:
        """Apply steps up to `until`."""
        for step in journal[self.steps : until]:
            self.db.apply(step.writes)
        self.steps = max(self.steps, until)


@dataclass
class Watcher:
    """Callbacks for every step and for lost steps."""

    step: Callable[[Step], None] = lambda _: None
    lost: Callable[[Sequence[Step]], None] = lambda _: None


@dataclass
class Server:
    """The servers behind one address: a primary, a replica and a disk."""

    clock: Callable[[], float]
    level: Level = "fsync"
    lag: Callable[[], float] = lambda: 0.0
    watcher: Watcher = field(default_factory=Watcher)
    up: bool = True
    full: bool = False
    incarnation: int = 0  # incarnation; every connection belongs to one

    def __post_init__(self) -> None:
        self.ahead = 0.0  # seconds of the wall clock, which ends keys
        self.db = Keyspace(self.wall_clock)
        self.journal: list[Step] = []
        self._disk, self._replica = Copy(Keyspace(self.wall_clock)), Copy(Keyspace(self.wall_clock))
        self._stalled = False
        self._synced = self.clock()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.published: dict[str, list[str]] = {}
        self._loaded: set[str] = set()

    # ---- calls of clients ----

    def serve(self, calls: Sequence[Call]) -> tuple[list[Any], int]:
        """Execute calls sent together; return the answers, including errors, and a step count.

        A replica with that many steps has all writes of the calls; it is 0 without writes, as on a
        connection that wrote nothing.
        """
        before, answers = len(self.journal), list[Any]()
        for call in calls:
            try:
                answers.append(self.execute(call))
            except foreign.ResponseError as error:
                answers.append(error)
        return answers, len(self.journal) if len(self.journal) > before else 0

    def copies(self, steps: int) -> int:
        """Return the number of replicas with `steps` steps."""
        return int(self._replica.steps >= steps)

    def execute(self, call: Call) -> Any:
        """Execute one call atomically."""
        self.reach(self.incarnation)
        if call.name == "script load":
            self._loaded.add(sha1(call.given[0], usedforsecurity=False).hexdigest())
            return None
        if call.name == "wait":
            return 0  # `client.py` implements the wait
        if call.digest and call.digest not in self._loaded:
            raise foreign.NoScriptError("No matching script. Please use EVAL.")
        if self.full and call.name in REFUSED_WHEN_FULL:
            raise foreign.OutOfMemoryError("command not allowed when used memory > 'maxmemory'")
        self._sync()
        writes = self.db.begin()
        answer = call.run(self.db)
        if writes:
            self._written(Step(call, answer, writes, self.wall_clock()))
        messages, self.db.messages = self.db.messages, []
        for channel, message in messages:
            self.published.setdefault(channel, []).append(message)
            self.wake(channel)
        return answer

    def reach(self, incarnation: int) -> None:
        """Raise ConnectionError if the connection belongs to an earlier incarnation."""
        if not self.up or incarnation != self.incarnation:
            raise foreign.ConnectionError("Connection closed by server.")

    def _written(self, step: Step) -> None:
        self.journal.append(step)
        self._sync()
        self._send(len(self.journal))
        self.watcher.step(step)
        for key in step.writes:
            self.wake(key)

    # ---- waiting for keys and channels ----

    async def touched(self, key: str, seconds: float) -> None:
        """Wait for a write to a key, up to `seconds`; ConnectionError if the server stops."""
        self.reach(self.incarnation)
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting.setdefault(key, []).append(waiting)
        timer = loop.call_later(seconds, _settle, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._waiting[key].remove(waiting)

    def wake(self, key: str) -> None:
        for waiting in self._waiting.get(key, ()):
            _settle(waiting)

    # ---- faults ----

    def stop(self) -> None:
        """Stop: close all connections and drop loaded scripts."""
        self.up, self.incarnation = False, self.incarnation + 1
        self._loaded.clear()
        for all_waiting in self._waiting.values():
            for waiting in all_waiting:
                _settle(waiting, foreign.ConnectionError("Connection closed by server."))

    def start(self) -> None:
        """Restart after a kill: all written data are there, also unsynced ones."""
        self.up = True

    def cut_power(self) -> None:
        """Cut the power: unsynced data are lost."""
        self.stop()
        self._sync()
        self._go_back(self._disk)

    def fail_over(self) -> None:
        """Promote the replica; writes that it lacks are lost, also from the old disk."""
        self.stop()
        self._go_back(self._replica)

    def wall_clock(self) -> float:
        """Return the wall time of the primary, the replica and the disk."""
        return self.clock() + self.ahead

    def step_clock(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self.ahead += seconds

    def stall(self, stalled: bool) -> None:
        """Stop or resume replication."""
        self._stalled = stalled
        if not stalled:
            self._send(len(self.journal))

    def _go_back(self, copy: Copy) -> None:
        lost = self.journal[copy.steps :]
        del self.journal[copy.steps :]
        self.db = Keyspace(self.wall_clock, copy.db.data)
        for one in (self._disk, self._replica):
            one.db, one.steps = Keyspace(self.wall_clock, copy.db.data), copy.steps
        if lost:
            self.watcher.lost(lost)

    def _sync(self) -> None:
        """Sync the disk: once a second at `local`, else before every answer."""
        if self.level != "local":
            self._disk.follow(self.journal, len(self.journal))
        elif self.clock() >= self._synced + FSYNC_SECONDS:
            self._disk.follow(self.journal, len(self.journal))
            self._synced = self.clock()

    def _send(self, steps: int) -> None:
        """Send steps to the replica with its lag."""
        if lag := self.lag():
            asyncio.get_running_loop().call_later(lag, self._arrived, steps, self.incarnation)
        else:
            self._arrived(steps, self.incarnation)

    def _arrived(self, steps: int, incarnation: int) -> None:
        if not self._stalled and incarnation == self.incarnation:
            self._replica.follow(self.journal, steps)


def _settle(waiting: "asyncio.Future[None]", error: Exception | None = None) -> None:
    if waiting.done():
        return
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)
