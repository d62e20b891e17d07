"""What the store takes for redis-py: the way to the server and back, and all that can go wrong.

A request that was sent arrives, even if its sender is gone by then. A sender that hears nothing
sends again, as redis-py does: then the server may have done it twice, or does it once more later.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple, Self

from redis import exceptions as foreign

from tests.simulation.keyspace import Keyspace
from tests.simulation.scripts import SOURCES
from tests.simulation.server import Call, Server

#: As `app/store/wall.py` tells redis-py.
SENDS, TIMEOUT = 3, 5.0
#: Seconds until it is noticed that nothing comes back: the connection breaks, or it times out.
NOTICED = (0.001, 0.01, 0.05, 0.05, TIMEOUT)
#: Seconds that an append may wait for the replica.
WAIT = 1.0
#: What may arrive long after its sender has given up: a name is not created once more by chance.
MAY_BE_LATE = {"append", "commit", "lease", "release", "remember"}
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

    def register_script(self, source: str) -> Callable[[list[str], list[Any]], Any]:
        return partial(self.ask, SOURCES.get(source, "unknown"))

    def __getattr__(self, name: str) -> Any:
        if not hasattr(Keyspace, name):
            raise AttributeError(name)
        return partial(self.ask, name)

    async def xread(
        self, streams: dict[str, str], count: int, block: int | None = None
    ) -> list[Any]:
        """Waits at the server for the first, if it may."""
        [key], ends = streams, self._server.clock() + (block or 0) / 1000
        while True:
            found: list[Any] = await self.ask("xread", streams, count)
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

    async def ask(self, name: str, *given: Any) -> Any:
        """Send, and send again if nothing is heard."""
        call = Call(name, given)
        for left in reversed(range(SENDS)):
            try:
                return await self._send(call)
            except (foreign.ConnectionError, foreign.TimeoutError):
                if not left:
                    raise
            await asyncio.sleep(self._weather.rng.uniform(0.01, 0.2) if self._weather else 0.01)
        raise AssertionError

    async def _send(self, call: Call) -> Any:
        await self._alive()
        if self._weather is None:
            answer = self._server.execute(call)
        else:
            answer = await self._travel(call, self._weather.fate())
        if call.name == "append" and self._server.level == "replicated":
            await self._server.replicated(len(self._server.journal), WAIT)
        await self._alive()
        return answer

    async def _alive(self) -> None:
        await self._awake.wait()
        if self._dead:
            raise asyncio.CancelledError

    def _travel(self, call: Call, fate: Fate) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        answer, life = loop.create_future(), self._server.life
        if fate.lost:
            loop.call_later(fate.notice, _give, answer, None, _FAILED)
            if fate.late is not None and call.name in MAY_BE_LATE:
                loop.call_later(fate.late, self._arrive, call, fate, None, None)
        else:
            loop.call_later(fate.there, self._arrive, call, fate, answer, life)
        return answer

    def _arrive(
        self, call: Call, fate: Fate, answer: "asyncio.Future[Any] | None", life: int | None
    ) -> None:
        result: Any = None
        error: Exception | None = None
        try:
            self._server.reach(self._server.life if life is None else life)
            result = self._server.execute(call)
        except foreign.RedisError as raised:
            error = raised
        if answer is None:
            return
        loop = asyncio.get_running_loop()
        if fate.unheard:
            loop.call_later(fate.notice, _give, answer, None, _FAILED)
        else:
            loop.call_later(fate.back, self._back, answer, result, error, life)

    def _back(
        self, answer: "asyncio.Future[Any]", result: Any, error: Exception | None, life: int | None
    ) -> None:
        """The answer comes over a connection that may be gone by now."""
        try:
            self._server.reach(self._server.life if life is None else life)
        except foreign.ConnectionError as gone:
            error = gone
        _give(answer, result, error)


def _give(answer: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


class Pipeline:
    """Some commands in one round trip."""

    def __init__(self, client: Client) -> None:
        self._client, self._calls = client, list[tuple[str, Any]]()

    def get(self, key: str) -> None:
        self._calls.append(("get", (key,)))

    def hmget(self, key: str, fields: list[str]) -> None:
        self._calls.append(("hmget", (key, fields)))

    async def execute(self) -> list[Any]:
        found: list[Any] = await self._client.ask("together", self._calls)
        return found


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
