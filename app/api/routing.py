"""Requests in, answers out: one ASGI application that checks, limits, times and always answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from secrets import token_hex
from time import perf_counter
from typing import Any, TypeAlias

from app.api.auth import ANYBODY, Key, holder, read_keys
from app.api.errors import PROBLEM_MEDIA_TYPE, Problem, problem, too_slow
from app.config import Settings
from app.observability.metrics import Metrics

log = logging.getLogger("solar.api")

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
    return Answer(problem.status, problem.body(more or {}), PROBLEM_MEDIA_TYPE, problem.headers)


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
        raise too_slow(seconds) from None


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


Handler: TypeAlias = Callable[[Any, Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path."""

    method: str
    path: str
    scope: str
    handler: Handler
    says: str
    statuses: tuple[int, ...]
    bodies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # media type → schemas
    example: Any = None
    answer: Any = None
    uploads: bool = False  # the handler takes the body in itself


def match(path: str) -> tuple[str, Mapping[str, str]]:
    """The pattern of a path, and what stands in its places.

    >>> match("/models/books/rollback")
    ('/models/{name}/rollback', {'name': 'books'})
    >>> match("/rank")
    ('/rank', {})
    """
    parts = path.split("/")
    place = {"models": "name", "jobs": "id"}.get(parts[1] if len(parts) in (3, 4) else "")
    if place and parts[2]:
        return "/".join(["", parts[1], f"{{{place}}}", *parts[3:]]), {place: parts[2]}
    return path, {}


OpenPath: TypeAlias = Callable[[], Awaitable[Answer]]


class HttpApplication:
    """Every request comes in here: `open_paths` need no key, the handlers of `routes` a service."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        open_paths: Mapping[str, OpenPath],
        routes: Iterable[Route] = (),
        service: Any = None,
    ) -> None:
        self._settings, self._metrics, self._service = settings, metrics, service
        self._open = open_paths
        self._keys = read_keys(settings.keys)
        self._origins = {part.strip() for part in settings.cors.split(",") if part.strip()}
        self._routes: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._routes.setdefault(route.path, {})[route.method] = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever it is."""
        if scope["type"] != "http":
            raise RuntimeError(f"expected http, got {scope['type']}")
        started, identity = perf_counter(), token_hex(8)
        pattern, places = match(scope["path"])
        headers = headers_of(scope)
        try:
            answer = await self._answer(scope, receive, pattern, places, headers)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets an answer
            answer = self._refused(error, pattern, identity)
        await respond(send, self._with_origin(answer, headers), identity)
        known = pattern in self._routes or pattern in self._open
        seconds = perf_counter() - started
        self._note(pattern if known else "other", scope["method"], answer, seconds, identity)

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        pattern: str,
        places: Mapping[str, str],
        headers: Mapping[bytes, bytes],
    ) -> Answer:
        method = scope["method"]
        if pattern in self._open:
            if method not in ("GET", "HEAD"):
                raise Problem(405, "expected GET", {"allow": "GET, HEAD"})
            answer = await self._open[pattern]()
            return _headless(answer) if method == "HEAD" else answer
        methods = self._routes.get(pattern)
        if methods is None:
            raise Problem(404, "path: expected one that is in /docs")
        if method == "OPTIONS" and self._origins:
            return Answer(204, b"", headers={"access-control-allow-methods": ", ".join(methods)})
        route = methods.get(method)
        if route is None:
            allowed = ", ".join(sorted(methods))
            raise Problem(405, f"expected {allowed}", {"allow": allowed})
        key = self._admit(headers, route.scope)
        limits, body = self._settings, b""
        if not route.uploads:
            body = await read_body(receive, headers, limits.body_bytes, limits.body_seconds)
        call = Call(body, key, headers, places, scope["query_string"], receive)
        return await route.handler(self._service, call)

    def _admit(self, headers: Mapping[bytes, bytes], scope: str) -> Key:
        """Whose key this is, or 401, or 403 if it may not."""
        if not self._keys:
            return ANYBODY
        kind, _, secret = headers.get(b"authorization", b"").partition(b" ")
        found = holder(self._keys, secret.strip()) if kind.lower() == b"bearer" else None
        if found is None:
            raise Problem(
                401, "authorization: expected Bearer and a key", {"www-authenticate": "Bearer"}
            )
        if scope not in found.scopes:
            raise Problem(403, f"expected a key with the scope {scope}")
        return found

    def _refused(self, error: Exception, pattern: str, identity: str) -> Answer:
        answer = problem(error)
        if answer.status == 503 and not isinstance(error, Problem):
            what = f"{type(error).__name__} at {_place(error)}"
            log.warning("%s", what, extra={"route": pattern[:40], "request_id": identity})
        return refusal(answer)

    def _with_origin(self, answer: Answer, headers: Mapping[bytes, bytes]) -> Answer:
        """Let browsers of the origins that are set read the answer; by default of none."""
        if not self._origins:
            return answer
        origin = headers.get(b"origin", b"").decode("latin-1")
        allowed = {"vary": "origin"}
        if origin in self._origins:
            allowed |= {
                "access-control-allow-origin": origin,
                "access-control-allow-headers": "authorization, content-type, prefer",
            }
        return Answer(answer.status, answer.body, answer.media_type, {**answer.headers, **allowed})

    def _note(self, route: str, method: str, answer: Answer, seconds: float, identity: str) -> None:
        self._metrics.request(route, answer.status, seconds)
        if self._settings.access_log or answer.status in (401, 403, 429, 503):
            log.info(
                "request",
                extra={
                    "route": route, "method": method, "status": answer.status,
                    "ms": round(seconds * 1e3, 2), "request_id": identity,
                },
            )  # fmt: skip


def _headless(answer: Answer) -> Answer:
    return Answer(answer.status, b"", answer.media_type, answer.headers)


def _place(error: BaseException) -> str:
    """Where an error came from: the file's name and the line, no more."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "?"
    return f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
