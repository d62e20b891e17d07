"""A primary, its replica and its disk: what each has, and what is lost when one is gone.

level        power cut loses             failover loses
local        what was not fsynced yet    what the replica has not got yet
fsync        nothing                     what the replica has not got yet
replicated   nothing                     nothing acknowledged: the store sends WAIT, and heeds it
"""

import asyncio
from collections import Counter
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
EVERY = 1.0
#: Commands that a full server refuses.
NEED_ROOM = {"sadd", *scripts.ALL} - scripts.WITHOUT_ROOM


class Call(NamedTuple):
    """What a client asks for: a script (with keys and arguments), or a plain command."""

    name: str
    given: tuple[Any, ...]
    digest: str = ""  # of a script

    @classmethod
    def of(cls, command: Sequence[Any]) -> "Call":
        """A command as it goes over the wire."""
        word, *words = command
        if word != "EVALSHA":
            return cls(str(word).lower(), tuple(words))
        digest, count, *rest = words
        name = scripts.BY_DIGEST.get(digest, "unknown")
        return cls(name, (rest[:count], rest[count:]), digest)

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
        self._loaded: set[str] = set()

    # ---- what clients do ----

    def serve(self, calls: Sequence[Call]) -> tuple[list[Any], int]:
        """All that came in one go, whatever becomes of each: the answers, errors among them.

        Also how many steps a replica must have to have what was written here; 0 if nothing was,
        as on a connection that has written nothing before.
        """
        before, answers = len(self.journal), list[Any]()
        for call in calls:
            try:
                answers.append(self.execute(call))
            except foreign.ResponseError as error:
                answers.append(error)
        return answers, len(self.journal) if len(self.journal) > before else 0

    def copies(self, steps: int) -> int:
        """How many replicas have so many steps."""
        return int(self._replica.steps >= steps)

    def execute(self, call: Call) -> Any:
        """One call, whole or not at all."""
        self.reach(self.life)
        if call.name == "script load":
            self._loaded.add(sha1(call.given[0], usedforsecurity=False).hexdigest())
            return None
        if call.name == "wait":
            return 0  # the client waits for it, see `client.py`
        if call.digest and call.digest not in self._loaded:
            raise foreign.NoScriptError("No matching script. Please use EVAL.")
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
        """Every connection ends, and no script is known any more."""
        self.up, self.life = False, self.life + 1
        self._loaded.clear()
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
