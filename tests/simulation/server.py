"""A primary, its replica and its disk: what each has, and what is lost when one is gone.

level        power cut loses             failover loses
local        what was not fsynced yet    what the replica has not got yet
fsync        nothing                     what the replica has not got yet
replicated   nothing                     nothing acknowledged: an append waits for the replica
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from redis import exceptions as foreign

from tests.simulation import scripts
from tests.simulation.keyspace import Keyspace, Writes

Level = Literal["local", "fsync", "replicated"]
LEVELS: tuple[Level, ...] = ("local", "fsync", "replicated")
#: Seconds between two fsyncs at `local`.
EVERY = 1.0
#: Commands that a full server refuses.
NEED_ROOM = {"sadd", *scripts.ALL} - scripts.WITHOUT_ROOM


class Call(NamedTuple):
    """What a client asks for: a script (with keys and arguments), or a plain command."""

    name: str
    given: tuple[Any, ...]

    def run(self, db: Keyspace) -> Any:
        """The answer."""
        if self.name in scripts.ALL:
            return scripts.ALL[self.name](db, *self.given)
        return getattr(db, self.name)(*self.given)


class Step(NamedTuple):
    """A call that was made, its answer, and what it wrote."""

    call: Call
    answer: Any
    writes: Writes


@dataclass
class Copy:
    """A keyspace some steps behind."""

    db: Keyspace
    steps: int = 0

    def follow(self, journal: Sequence[Step], until: int) -> None:
        """Catch up to so many steps."""
        for step in journal[self.steps : until]:
            self.db.apply(step.writes)
        self.steps = max(self.steps, until)


@dataclass
class Watcher:
    """Who is told of every step, and of every step that is lost."""

    step: Callable[[Step], None] = lambda _: None
    lost: Callable[[Sequence[Step]], None] = lambda _: None


@dataclass
class Server:
    """What stands behind one address; clients see one server, whatever is behind it."""

    clock: Callable[[], float]
    level: Level = "fsync"
    lag: Callable[[], float] = lambda: 0.0
    watcher: Watcher = field(default_factory=Watcher)
    up: bool = True
    full: bool = False
    life: int = 0  # every connection ends with it

    def __post_init__(self) -> None:
        self.db = Keyspace(self.clock)
        self.journal: list[Step] = []
        self._disk, self._replica = Copy(Keyspace(self.clock)), Copy(Keyspace(self.clock))
        self._stalled = False
        self._synced = self.clock()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.published: Counter[str] = Counter()

    # ---- what clients do ----

    def execute(self, call: Call) -> Any:
        """One call, whole or not at all."""
        self.reach(self.life)
        if self.full and call.name in NEED_ROOM:
            raise foreign.OutOfMemoryError("command not allowed when used memory > 'maxmemory'")
        self._sync()
        writes = self.db.begin()
        answer = call.run(self.db)
        if writes:
            self._written(Step(call, answer, writes))
        return answer

    def reach(self, life: int) -> None:
        """ConnectionError if the connection of that life is no more."""
        if not self.up or life != self.life:
            raise foreign.ConnectionError("Connection closed by server.")

    def _written(self, step: Step) -> None:
        self.journal.append(step)
        self._sync()
        self._send(len(self.journal))
        self.watcher.step(step)
        for key in step.writes:
            self.wake(key)
        if step.call.name == "commit":
            channel = step.call.given[1][10]
            self.published[channel] += 1
            self.wake(channel)

    async def replicated(self, steps: int, seconds: float) -> None:
        """WAIT 1: until the replica has so many steps, or NOREPLICAS."""
        life, ends = self.life, self.clock() + seconds
        while self._replica.steps < steps:
            if self.clock() >= ends:
                raise foreign.ResponseError("NOREPLICAS Not enough good replicas to write.")
            await asyncio.sleep(0.01)
            self.reach(life)

    # ---- who waits for a key or a channel ----

    async def touched(self, key: str, seconds: float) -> None:
        """Until somebody writes there, or so long; ConnectionError if the server goes."""
        self.reach(self.life)
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

    # ---- what happens to it ----

    def stop(self) -> None:
        """Every connection ends."""
        self.up, self.life = False, self.life + 1
        for all_waiting in self._waiting.values():
            for waiting in all_waiting:
                _settle(waiting, foreign.ConnectionError("Connection closed by server."))

    def start(self) -> None:
        """A restart after a kill: what was written to the file is there, fsynced or not."""
        self.up = True

    def cut_power(self) -> None:
        """The machine goes: what was not fsynced is lost."""
        self.stop()
        self._sync()
        self._go_back(self._disk)

    def fail_over(self) -> None:
        """The replica takes over; what it has not got is lost, also on the old one's disk."""
        self.stop()
        self._go_back(self._replica)

    def stall(self, stalled: bool) -> None:
        """The replica hears nothing, or hears it all."""
        self._stalled = stalled
        if not stalled:
            self._send(len(self.journal))

    def _go_back(self, copy: Copy) -> None:
        lost = self.journal[copy.steps :]
        del self.journal[copy.steps :]
        self.db = Keyspace(self.clock, copy.db.data)
        for one in (self._disk, self._replica):
            one.db, one.steps = Keyspace(self.clock, copy.db.data), copy.steps
        if lost:
            self.watcher.lost(lost)

    def _sync(self) -> None:
        """At `local` the disk is up to a second behind; else an answer waits for it."""
        if self.level != "local":
            self._disk.follow(self.journal, len(self.journal))
        elif self.clock() >= self._synced + EVERY:
            self._disk.follow(self.journal, len(self.journal))
            self._synced = self.clock()

    def _send(self, steps: int) -> None:
        """To the replica, as late as it is."""
        if lag := self.lag():
            asyncio.get_running_loop().call_later(lag, self._arrived, steps, self.life)
        else:
            self._arrived(steps, self.life)

    def _arrived(self, steps: int, life: int) -> None:
        if not self._stalled and life == self.life:
            self._replica.follow(self.journal, steps)


def _settle(waiting: "asyncio.Future[None]", error: Exception | None = None) -> None:
    if waiting.done():
        return
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)
