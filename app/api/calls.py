"""A call and its answer, and how the one is read and the other sent: plain ASGI, bounded."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.api.auth import Key
from app.api.errors import MEDIA_TYPE, Problem

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON, MSGPACK, TEXT = "application/json", "application/msgpack", "text/plain"


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


@dataclass(slots=True)
class Call:
    """What a handler gets to see of a request."""

    body: bytes
    key: Key
    headers: Mapping[bytes, bytes]
    path: Mapping[str, str] = field(default_factory=dict)
    query: bytes = b""
    receive: Receive = field(default=_nothing)  # of a body that the handler takes in itself

    @property
    def media_type(self) -> str:
        """Of the body, without parameters."""
        kind = self.headers.get(b"content-type", b"")
        return kind.partition(b";")[0].strip().lower().decode("latin-1")

    def expect_json(self) -> None:
        """415 if the body says that it is something else."""
        if self.media_type != JSON:
            raise Problem(415, f"content-type: expected {JSON}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def refusal(problem: Problem, more: Mapping[str, Any] | None = None) -> Answer:
    """The answer that a problem is, with more members (RFC 9457) if there are any."""
    return Answer(problem.status, problem.body(more or {}), MEDIA_TYPE, problem.headers)


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """By name, in lower case; the last one of a name counts."""
    return dict(scope["headers"])


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], most: int, seconds: float
) -> bytes:
    """The whole body, or a Problem: too large (413), too slow (408), compressed (415)."""
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Problem(415, "content-encoding: expected none")
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length[:20]) > most:
        raise Problem(413, f"expected at most {most} bytes", {"connection": "close"})
    try:
        async with asyncio.timeout(seconds):
            return await _gather(receive, most)
    except TimeoutError:
        raise Problem(
            408, f"expected the whole body in {seconds:g} s", {"connection": "close"}
        ) from None


async def _gather(receive: Receive, most: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > most:
            raise Problem(413, f"expected at most {most} bytes", {"connection": "close"})
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Disconnected(Exception):
    """The caller is gone; there is nobody to answer."""


async def respond(send: Send, answer: Answer, identity: str) -> None:
    """Send an answer whole; by its identity the log knows it."""
    about = [
        (b"content-type", answer.media_type.encode()),
        (b"content-length", b"%d" % len(answer.body)),
    ]
    headers = [
        *(about if answer.status != 204 else ()),
        (b"x-request-id", identity.encode()),
        *((name.encode(), value.encode()) for name, value in answer.headers.items()),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
