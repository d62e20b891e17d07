"""A light load client for loopback: HTTP/1.1 on raw connections, on one core.

Requests are encoded in advance, and of an answer only status and length are parsed. So the client
needs a small part of the service's CPU time (`Load.own` holds it), and two cores suffice.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")
HOST = "127.0.0.1"
LENGTH = b"content-length: "


def post(path: str, body: bytes, media_type: str = "application/json") -> bytes:
    """Encode a request."""
    head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: {media_type}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def lasting(requests: Iterable[bytes], seconds: float) -> Iterator[bytes]:
    """Repeat the requests for this number of seconds."""
    end = perf_counter() + seconds
    return itertools.takewhile(lambda _: perf_counter() < end, itertools.cycle(requests))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a client to completion."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@dataclass(slots=True)
class Load:
    """The results of many requests: counts of answers and failures, and the time.

    `short` counts answers that lack a part of the request.
    """

    answered: int = 0
    short: int = 0
    failed: int = 0
    seconds: float = 0.0
    own: float = 0.0  # CPU seconds of this client
    bodies: list[bytes] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Complete answers per second."""
        return self.answered / self.seconds


class Caller(asyncio.Protocol):
    """A connection: one request at a time, with a callback for its answer."""

    def __init__(self, answered: Callable[["Caller", bytes], None]) -> None:
        self._answered = answered
        self._answer, self._missing = b"", 0
        self.intended = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; the connection is ready."""
        self._transport: Any = transport
        self.call = transport.write  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Handle a part of an answer, nearly always the whole."""
        self._answer = self._answer + data if self._answer else data
        if self._missing <= 0:
            end = self._answer.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self._answer.index(LENGTH) + len(LENGTH)
            length = int(self._answer[at : self._answer.index(b"\r", at)])
            self._missing = end + 4 + length
        if len(self._answer) >= self._missing:
            answer, self._answer, self._missing = self._answer, b"", 0
            self._answered(self, answer)

    def connection_lost(self, _: Exception | None) -> None:
        """End the run if the service closes the connection: that is a failure."""
        if not self._transport.is_closing():
            asyncio.get_running_loop().stop()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


async def callers(port: int, count: int, answered: Callable[[Caller, bytes], None]) -> list[Caller]:
    """Open `count` connections."""
    loop = asyncio.get_running_loop()
    return [
        (await loop.create_connection(lambda: Caller(answered), HOST, port))[1]
        for _ in range(count)
    ]


async def flood(
    port: int,
    requests: Iterable[bytes],
    connections: int,
    *,
    short: bytes = b"",
    keep: bool = False,
) -> Load:
    """Closed loop: each connection sends its next request after the previous answer.

    An answer that contains `short` is incomplete and does not count.
    """
    load, end, coming = Load(), asyncio.get_running_loop().create_future(), iter(requests)
    busy = 0

    def answered(caller: Caller, answer: bytes) -> None:
        nonlocal busy
        _note(load, answer, short)
        if keep:
            load.bodies.append(answer.partition(b"\r\n\r\n")[2])
        request = next(coming, None)
        if request is not None:
            caller.call(request)
            return
        busy -= 1
        if not busy:
            end.set_result(None)

    opened = await callers(port, connections, answered)
    began, used = perf_counter(), process_time()
    for caller, request in zip(opened, coming, strict=False):
        caller.call(request)
        busy += 1
    await end
    load.seconds, load.own = perf_counter() - began, process_time() - used
    for caller in opened:
        caller.close()
    return load


async def paced(
    port: int,
    requests: Iterable[bytes],
    rate: float,
    seconds: float,
    connections: int,
    *,
    short: bytes = b"",
) -> tuple[Load, list[float]]:
    """Open loop: requests at a constant rate; return the load and the latency of each request.

    Latency starts at the intended time of a request, so it includes waits for a free connection
    and delays of this client.
    """
    load, took, waiting = Load(), list[float](), deque[tuple[float, bytes]]()
    free, coming = deque[Caller](), iter(requests)

    def answered(caller: Caller, answer: bytes) -> None:
        took.append(perf_counter() - caller.intended)
        _note(load, answer, short)
        free.append(caller)
        send()

    def send() -> None:
        while waiting and free:
            caller = free.popleft()
            caller.intended, request = waiting.popleft()
            caller.call(request)

    opened = await callers(port, connections, answered)
    free.extend(opened)
    began, used = perf_counter(), process_time()
    for at in range(int(rate * seconds)):
        moment = began + at / rate
        while (early := moment - perf_counter()) > 0.0:
            await asyncio.sleep(max(early, 0.001))  # uvloop counts in milliseconds
        waiting.append((moment, next(coming)))
        send()
    while len(free) < connections:
        await asyncio.sleep(0.001)
    load.seconds, load.own = perf_counter() - began, process_time() - used
    for caller in opened:
        caller.close()
    return load, took


def _note(load: Load, answer: bytes, short: bytes) -> None:
    if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")):
        load.failed += 1
    elif short and short in answer:
        load.short += 1
    else:
        load.answered += 1
