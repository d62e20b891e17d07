"""A double of redis-py: the network to the server and its faults.

A sent request arrives even if its sender has ended. A sender without an answer resends, like
redis-py, so the server may execute a request twice, or once more later.
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

#: The settings of `app/storage/connection.py`.
SENDS, TIMEOUT = 3, 5.0
#: Seconds until a sender notices a lost answer: the connection breaks or times out.
NOTICE_SECONDS = (0.001, 0.01, 0.05, 0.05, TIMEOUT)
#: Seconds between two checks of the replica for WAIT.
WAIT_CHECK_SECONDS = 0.01
#: Requests that may arrive long after the sender's timeout; not `create`.
MAY_BE_LATE = {
    "append", "commit", "lease", "release", "remember", "forget", "present", "mark", "wait",
    "script load",
}  # fmt: skip
_FAILED = foreign.ConnectionError("Connection reset by peer")


class Delivery(NamedTuple):
    """The delivery of a request: delays in seconds, and whether it or its answer is lost."""

    there: float = 0.0
    back: float = 0.0
    lost: bool = False
    unheard: bool = False
    late: float | None = None  # a lost request that arrives later
    notice: float = 0.0  # seconds until the sender notices


@dataclass
class NetworkFaults:
    """Random network faults from one seed."""

    rng: Random
    delay: float = 0.002
    lost: float = 0.0
    unheard: float = 0.0
    late: float = 0.0

    def next_delivery(self) -> Delivery:
        """Draw the delivery of the next request."""
        rng = self.rng
        there, back = (rng.expovariate(1 / self.delay) for _ in "ab")
        what, notice = rng.random(), rng.choice(NOTICE_SECONDS)
        late = rng.uniform(0.01, 8.0) if rng.random() < self.late else None
        lost = what < self.lost
        unheard = not lost and what < self.lost + self.unheard
        return Delivery(there, back, lost, unheard, late, notice)

    def clear(self) -> None:
        """Stop all faults."""
        self.lost = self.unheard = self.late = 0.0


class Client:
    """The client of one process, which can be paused and killed."""

    address = ""

    def __init__(self, server: Server, network: NetworkFaults | None = None) -> None:
        self._server, self._network = server, network
        self._dead = False
        self._awake = asyncio.Event()
        self._awake.set()

    # ---- faults of the process ----

    def kill(self) -> None:
        """Deliver sent requests; cancel tasks that send or receive afterwards."""
        self._dead = True
        self._awake.set()

    def pause(self) -> None:
        self._awake.clear()

    def resume(self) -> None:
        self._awake.set()

    # ---- redis-py's interface ----

    def __getattr__(self, name: str) -> Any:
        if not hasattr(Keyspace, name):
            raise AttributeError(name)
        return partial(self._ask_one, name)

    async def _ask_one(self, name: str, *given: Any) -> Any:
        return (await self.ask([Call(name, given)]))[0]

    async def together(self, _key: str, *commands: Sequence[Any]) -> list[Any]:
        """Send commands over one connection; return the answers or raise the first error."""
        return await self.ask([Call.of(command) for command in commands])

    async def execute_command(self, *command: Any) -> Any:
        """Send one command."""
        return (await self.ask([Call.of(command)]))[0]

    async def masters(self) -> list[Self]:
        """Return this client."""
        return [self]

    async def xread(
        self, streams: dict[str, str], count: int, block: int | None = None
    ) -> list[Any]:
        """Wait at the server for the first record, up to `block` milliseconds."""
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

    # ---- the network ----

    async def ask(self, calls: Sequence[Call]) -> list[Any]:
        """Send calls and resend all without an answer; raise the first error."""
        for left in reversed(range(SENDS)):
            try:
                answers = await self._send(calls)
            except (foreign.ConnectionError, foreign.TimeoutError):
                if not left:
                    raise
            else:
                return _raise_first_error(answers)
            await asyncio.sleep(self._network.rng.uniform(0.01, 0.2) if self._network else 0.01)
        raise AssertionError

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        await self._alive()
        answers: list[Any] = await self._travel(
            calls, self._network.next_delivery() if self._network else Delivery()
        )
        await self._alive()
        return answers

    async def _alive(self) -> None:
        await self._awake.wait()
        if self._dead:
            raise asyncio.CancelledError

    def _travel(self, calls: Sequence[Call], delivery: Delivery) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        endpoint = Endpoint(
            self._server, calls, delivery, loop.create_future(), self._server.incarnation
        )
        if delivery.lost:
            loop.call_later(delivery.notice, endpoint.give, None, _FAILED)
            if delivery.late is not None and all(call.name in MAY_BE_LATE for call in calls):
                loop.call_later(delivery.late, endpoint.arrive_late)
        else:
            loop.call_later(delivery.there, endpoint.arrive)
        return endpoint.answer


@dataclass
class Endpoint:
    """The delivery of calls sent together over one connection of one server incarnation."""

    server: Server
    calls: Sequence[Call]
    delivery: Delivery
    answer: "asyncio.Future[Any]"
    incarnation: int

    def arrive_late(self) -> None:
        """Execute the calls without an answer."""
        with suppress(foreign.ConnectionError):
            self.server.serve(self.calls)

    def arrive(self) -> None:
        try:
            self.server.reach(self.incarnation)
            answers, steps = self.server.serve(self.calls)
        except foreign.ConnectionError as error:
            self._return(None, error)
            return
        if self.calls[-1].name == "wait":
            _, milliseconds = self.calls[-1].given
            self._wait(answers, steps, self.server.clock() + milliseconds / 1000)
        else:
            self._return(answers, None)

    def _wait(self, answers: list[Any], steps: int, ends: float) -> None:
        """WAIT: return the number of replicas with the writes, at the latest at `ends`."""
        if self.incarnation != self.server.incarnation:
            self._return(None, _FAILED)
            return
        answers[-1] = self.server.copies(steps)
        if answers[-1] >= self.calls[-1].given[0] or self.server.clock() >= ends:
            self._return(answers, None)
        else:
            asyncio.get_running_loop().call_later(
                WAIT_CHECK_SECONDS, self._wait, answers, steps, ends
            )

    def _return(self, answers: list[Any] | None, error: Exception | None) -> None:
        loop = asyncio.get_running_loop()
        if self.delivery.unheard:
            loop.call_later(self.delivery.notice, self.give, None, _FAILED)
        else:
            loop.call_later(self.delivery.back, self._back, answers, error)

    def _back(self, answers: list[Any] | None, error: Exception | None) -> None:
        """Deliver the answer if the connection still exists."""
        try:
            self.server.reach(self.incarnation)
        except foreign.ConnectionError as lost:
            error = lost
        self.give(answers, error)

    def give(self, answers: list[Any] | None, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(answers)
        else:
            self.answer.set_exception(error)


def _raise_first_error(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


class Pipeline:
    """Commands in one round trip."""

    def __init__(self, client: Client) -> None:
        self._client, self._calls = client, list[Call]()

    def get(self, key: str) -> None:
        self._calls.append(Call("get", (key,)))

    def pttl(self, key: str) -> None:
        self._calls.append(Call("pttl", (key,)))

    def hmget(self, key: str, fields: list[str]) -> None:
        self._calls.append(Call("hmget", (key, fields)))

    def zrange(self, key: str, first: int, last: int) -> None:
        self._calls.append(Call("zrange", (key, first, last)))

    def lrange(self, key: str, first: int, last: int) -> None:
        self._calls.append(Call("lrange", (key, first, last)))

    def memory_usage(self, key: str, samples: int) -> None:  # noqa: ARG002
        self._calls.append(Call("memory_usage", (key,)))

    async def execute(self, *, raise_on_error: bool = True) -> list[Any]:  # noqa: ARG002
        return await self._client.ask(self._calls) if self._calls else []


class Subscription:
    """Messages of a channel while the server is up."""

    def __init__(self, server: Server) -> None:
        self._server, self._incarnation, self._channel = server, server.incarnation, ""
        self._heard = 0
        self._answers: list[dict[str, Any]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def subscribe(self, channel: str) -> None:
        self._server.reach(self._incarnation)
        self._channel = channel
        self._heard = len(self._published())
        self._answers.append({"type": "subscribe"})

    async def ping(self) -> None:
        self._server.reach(self._incarnation)
        self._answers.append({"type": "pong"})

    async def get_message(self, timeout: float) -> dict[str, Any] | None:
        self._server.reach(self._incarnation)
        if not self._answers and self._heard == len(self._published()):
            await self._server.touched(self._channel, timeout)
        if self._answers:
            return self._answers.pop(0)
        if self._heard == len(self._published()):
            return None
        self._heard += 1
        return {"type": "message", "data": self._published()[self._heard - 1].encode()}

    def _published(self) -> list[str]:
        return self._server.published.get(self._channel, [])
