"""What the store takes for redis-py: the way to the server and back, and all that can go wrong.

A request that was sent arrives, even if its sender is gone by then. A sender that hears nothing
sends again, as redis-py does: then the server may have done it twice, or does it once more later.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple, Self

from redis import exceptions as foreign

from tests.simulation.keyspace import Keyspace
from tests.simulation.server import Call, Server

#: As `app/storage/connection.py` tells redis-py.
SENDS, TIMEOUT = 3, 5.0
#: Seconds until it is noticed that nothing comes back: the connection breaks, or it times out.
NOTICED = (0.001, 0.01, 0.05, 0.05, TIMEOUT)
#: Seconds between two looks whether a replica has what WAIT waits for.
LOOK = 0.01
#: What may arrive long after its sender has given up: a name is not created once more by chance.
MAY_BE_LATE = {
    "append", "commit", "lease", "release", "remember", "present", "mark", "wait", "script load",
}  # fmt: skip
_FAILED = foreign.ConnectionError("Connection reset by peer")


class Fate(NamedTuple):
    """What becomes of a request: seconds there and back; whether it, or its answer, is lost."""

    there: float = 0.0
    back: float = 0.0
    lost: bool = False
    unheard: bool = False
    late: float | None = None  # a lost one that arrives after all
    notice: float = 0.0  # how long until the sender knows


@dataclass
class Weather:
    """How bad it is on the way, by chance of one seed."""

    rng: Random
    delay: float = 0.002
    lost: float = 0.0
    unheard: float = 0.0
    late: float = 0.0

    def fate(self) -> Fate:
        """Of the next request."""
        rng = self.rng
        there, back = (rng.expovariate(1 / self.delay) for _ in "ab")
        what, notice = rng.random(), rng.choice(NOTICED)
        late = rng.uniform(0.01, 8.0) if rng.random() < self.late else None
        lost = what < self.lost
        unheard = not lost and what < self.lost + self.unheard
        return Fate(there, back, lost, unheard, late, notice)

    def clear(self) -> None:
        """Nothing is lost from now on."""
        self.lost = self.unheard = self.late = 0.0


class Client:
    """One process's way to the server. It can be paused, and killed."""

    address = ""

    def __init__(self, server: Server, weather: Weather | None = None) -> None:
        self._server, self._weather = server, weather
        self._dead = False
        self._awake = asyncio.Event()
        self._awake.set()

    # ---- what happens to the process ----

    def kill(self) -> None:
        """What was sent arrives; whoever sends or hears anything after that ends there."""
        self._dead = True
        self._awake.set()

    def pause(self) -> None:
        self._awake.clear()

    def go_on(self) -> None:
        self._awake.set()

    # ---- redis-py's face ----

    def __getattr__(self, name: str) -> Any:
        if not hasattr(Keyspace, name):
            raise AttributeError(name)
        return partial(self._ask_one, name)

    async def _ask_one(self, name: str, *given: Any) -> Any:
        return (await self.ask([Call(name, given)]))[0]

    async def together(self, _key: str, *commands: Sequence[Any]) -> list[Any]:
        """The answers to commands that go over one connection; raises the first error."""
        return await self.ask([Call.of(command) for command in commands])

    async def execute_command(self, *command: Any) -> Any:
        """The answer to one command."""
        return (await self.ask([Call.of(command)]))[0]

    async def masters(self) -> list[Self]:
        """Itself."""
        return [self]

    async def xread(
        self, streams: dict[str, str], count: int, block: int | None = None
    ) -> list[Any]:
        """Waits at the server for the first, if it may."""
        [key], ends = streams, self._server.clock() + (block or 0) / 1000
        while True:
            found: list[Any] = await self._ask_one("xread", streams, count)
            left = ends - self._server.clock()
            if found or left <= 0:
                return found
            db = self._server.db
            db.blocked += 1
            try:
                await self._server.touched(key, left)
            except foreign.ConnectionError:
                await asyncio.sleep(0.01)
            finally:
                db.blocked -= 1

    def pipeline(self, transaction: bool) -> "Pipeline":
        assert not transaction
        return Pipeline(self)

    def pubsub(self) -> "Subscription":
        return Subscription(self._server)

    async def aclose(self) -> None:
        pass

    # ---- the way ----

    async def ask(self, calls: Sequence[Call]) -> list[Any]:
        """Send, and send all of it again if nothing is heard; raises the first error."""
        for left in reversed(range(SENDS)):
            try:
                answers = await self._send(calls)
            except (foreign.ConnectionError, foreign.TimeoutError):
                if not left:
                    raise
            else:
                return _whole(answers)
            await asyncio.sleep(self._weather.rng.uniform(0.01, 0.2) if self._weather else 0.01)
        raise AssertionError

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        await self._alive()
        answers: list[Any] = await self._travel(
            calls, self._weather.fate() if self._weather else Fate()
        )
        await self._alive()
        return answers

    async def _alive(self) -> None:
        await self._awake.wait()
        if self._dead:
            raise asyncio.CancelledError

    def _travel(self, calls: Sequence[Call], fate: Fate) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        way = Endpoint(self._server, calls, fate, loop.create_future(), self._server.life)
        if fate.lost:
            loop.call_later(fate.notice, way.give, None, _FAILED)
            if fate.late is not None and all(call.name in MAY_BE_LATE for call in calls):
                loop.call_later(fate.late, way.arrive_late)
        else:
            loop.call_later(fate.there, way.arrive)
        return way.answer


@dataclass
class Endpoint:
    """There and back, of what is sent in one go over a connection of one life of the server."""

    server: Server
    calls: Sequence[Call]
    fate: Fate
    answer: "asyncio.Future[Any]"
    life: int

    def arrive_late(self) -> None:
        """It is done, and nobody hears of it."""
        with suppress(foreign.ConnectionError):
            self.server.serve(self.calls)

    def arrive(self) -> None:
        try:
            self.server.reach(self.life)
            answers, steps = self.server.serve(self.calls)
        except foreign.ConnectionError as gone:
            self._return(None, gone)
            return
        if self.calls[-1].name == "wait":
            _, milliseconds = self.calls[-1].given
            self._wait(answers, steps, self.server.clock() + milliseconds / 1000)
        else:
            self._return(answers, None)

    def _wait(self, answers: list[Any], steps: int, ends: float) -> None:
        """WAIT: until so many replicas have it, or so long; then how many they are."""
        if self.life != self.server.life:
            self._return(None, _FAILED)
            return
        answers[-1] = self.server.copies(steps)
        if answers[-1] >= self.calls[-1].given[0] or self.server.clock() >= ends:
            self._return(answers, None)
        else:
            asyncio.get_running_loop().call_later(LOOK, self._wait, answers, steps, ends)

    def _return(self, answers: list[Any] | None, error: Exception | None) -> None:
        loop = asyncio.get_running_loop()
        if self.fate.unheard:
            loop.call_later(self.fate.notice, self.give, None, _FAILED)
        else:
            loop.call_later(self.fate.back, self._back, answers, error)

    def _back(self, answers: list[Any] | None, error: Exception | None) -> None:
        """The answer comes over a connection that may be gone by now."""
        try:
            self.server.reach(self.life)
        except foreign.ConnectionError as gone:
            error = gone
        self.give(answers, error)

    def give(self, answers: list[Any] | None, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(answers)
        else:
            self.answer.set_exception(error)


def _whole(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


class Pipeline:
    """Some commands in one round trip."""

    def __init__(self, client: Client) -> None:
        self._client, self._calls = client, list[Call]()

    def get(self, key: str) -> None:
        self._calls.append(Call("get", (key,)))

    def hmget(self, key: str, fields: list[str]) -> None:
        self._calls.append(Call("hmget", (key, fields)))

    async def execute(self) -> list[Any]:
        return await self._client.ask(self._calls) if self._calls else []


class Subscription:
    """Hints, as long as the server is there."""

    def __init__(self, server: Server) -> None:
        self._server, self._life, self._channel = server, server.life, ""
        self._heard = -1  # the answer to the subscription is a message too

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def subscribe(self, channel: str) -> None:
        self._server.reach(self._life)
        self._channel = channel

    async def get_message(self, timeout: float) -> None:
        self._server.reach(self._life)
        if self._heard == self._server.published[self._channel]:
            await self._server.touched(self._channel, timeout)
        self._heard = self._server.published[self._channel]
