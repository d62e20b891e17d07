"""Request handling around FastAPI's routes: id, API key, limits, errors, metrics, log.

Two route classes share it. A `FastRoute` serves /rank and /feedback: it calls its endpoint with the
raw body, without FastAPI's work for a request. `AdminRoute` (admin_routing.py) serves the rest.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from app.api import browsers
from app.api.auth import ANONYMOUS, Key, authenticate, read_keys, received_locally
from app.api.errors import PROBLEM_MEDIA_TYPE, Problem, problem, too_large, too_slow
from app.config import Settings
from app.observability.logging import LineLimit
from app.observability.metrics import Metrics
from app.observability.tracing import read_traceparent, traceparent
from app.storage.batching import LARGE, SMALL, Held, MemoryBudget

log = logging.getLogger("solar.api")

JSON, MSGPACK, TEXT = "application/json", "application/msgpack", "text/plain"
Headers = Mapping[bytes, bytes]
#: Why requests to a non-loopback address are refused.
EXPOSED = (
    "a non-loopback address needs API keys; set SOLAR_KEYS (`solar key NAME` makes one), "
    "or SOLAR_INSECURE=yes"
)
#: The key of a request's memory in its scope.
HELD = "solar.held"
#: The API key of a request in its scope.
KEY = "solar.key"
#: The share of the memory budget for large bodies; the rest is left for decoding them.
BODIES = 0.5
#: Size of the parts of a large answer, in bytes: the next one waits until the client reads.
PART = 65_536
#: Statuses that are logged even without an access log.
LOGGED = (401, 403, 421, 429, 503, 507)


class Disconnected(Exception):
    """The client has closed the connection; no answer is possible."""


@dataclass(slots=True)
class Call:
    """A request to a FastRoute."""

    body: bytes
    key: Key
    headers: Headers
    held: Held
    address: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a FastRoute."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def refusal(problem: Problem, more: Mapping[str, Any] | None = None) -> Answer:
    """Convert a problem to an answer, with additional members."""
    return Answer(problem.status, problem.body(more or {}), PROBLEM_MEDIA_TYPE, problem.headers)


def media_type(headers: Headers) -> str:
    """Return the media type of a body, without parameters."""
    kind = headers.get(b"content-type", b"")
    return kind.partition(b";")[0].strip().lower().decode("latin-1")


def expect_json(headers: Headers) -> None:
    """Raise 415 unless the media type is JSON."""
    if media_type(headers) != JSON:
        raise Problem(415, f"content-type: expected {JSON}")


async def read_body(
    receive: Receive, headers: Headers, limits: Settings, held: Held, most: int | None = None
) -> bytes:
    """Read the complete body, or raise a Problem: too large (413), slow (408), compressed (415).

    `most` is a lower size limit. Overloaded if all requests together hold too much memory.
    """
    most = limits.body_bytes if most is None else min(most, limits.body_bytes)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Problem(415, "content-encoding: expected none")
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length[:20]) > most:
        raise too_large(most)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _gather(receive, most, held)
    except TimeoutError:
        raise too_slow(limits.body_seconds) from None


async def _gather(receive: Receive, most: int, held: Held) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > most:
            raise too_large(most)
        if size > SMALL:
            held.keep(size, BODIES if size > LARGE else 1.0)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def respond(send: Send, answer: Answer, identity: str) -> None:
    """Send an answer; `identity` is its id in the log."""
    headers = [
        (b"x-request-id", identity.encode()),
        *((name.encode(), value.encode()) for name, value in answer.headers.items()),
    ]
    if answer.status != 204:  # which has no content, and may have no length (RFC 9110, 8.6)
        length = b"%d" % len(answer.body)
        kind = answer.media_type.encode()
        headers += [(b"content-type", kind), (b"content-length", length)]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await _send_parts(send, answer.body)


async def _send_parts(send: Send, body: bytes) -> None:
    """Send the rest of an answer; its next part waits until the client reads."""
    for start in range(0, len(body) - PART, PART):
        part = body[start : start + PART]
        await send({"type": "http.response.body", "body": part, "more_body": True})
    rest = body[(len(body) - 1) // PART * PART :] if len(body) > PART else body
    await send({"type": "http.response.body", "body": rest})


class Reply:
    """The `send` of a request: records the status and adds the x-request-id header.

    A large answer holds its memory until the client has read it; Overloaded if none is left.
    `began` is the time at which an answer without a length has started: a stream.
    """

    __slots__ = ("_held", "_identity", "_send", "began", "status")

    def __init__(self, send: Send, identity: str, held: Held) -> None:
        self._send, self._identity, self._held, self.status = send, identity, held, 0
        self.began: float | None = None

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        if len(message.get("body", b"")) > PART and not message.get("more_body"):
            await _send_parts(self._send, message["body"])
            return
        if message["type"] == "http.response.start":
            length = dict(message["headers"]).get(b"content-length")
            if length is None:
                self.began = perf_counter()
            elif int(length) > LARGE:
                self._held.add(int(length))
            self.status = message["status"]
            request_id = (b"x-request-id", self._identity.encode())
            message["headers"] = [*message["headers"], request_id]
        await self._send(message)


#: The work of a route: returns its answer, or sends it itself and returns None.
Work = Callable[[Scope, Receive, Reply, Headers, Key], Awaitable[Answer | None]]


class Guard:
    """The steps around each request: id, Host and origin, API key, errors, metrics, log."""

    def __init__(self, settings: Settings, metrics: Metrics, memory: MemoryBudget) -> None:
        self.settings, self._metrics, self.memory = settings, metrics, memory
        self._keys = read_keys(settings.keys)
        self._hosts = browsers.read_hosts(settings.hosts)
        self._origins = browsers.read_origins(settings.cors)
        self._exposable = bool(self._keys) or settings.insecure
        self._warned = False
        self._lines = LineLimit(log)

    async def answer(
        self, route: str, needs: str | None, work: Work, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Do the work of a request and answer it, also after an error; then free its memory."""
        held = scope[HELD] = Held(self.memory)
        try:
            await self._answer(route, needs, work, scope, receive, send)
        finally:
            held.keep(0)

    async def _answer(
        self, route: str, needs: str | None, work: Work, scope: Scope, receive: Receive, send: Send
    ) -> None:
        started, identity, cause = perf_counter(), f"{random.getrandbits(64):016x}", ""
        reply = Reply(send, identity, scope[HELD])
        headers = dict(scope["headers"])  # of most repeated headers the last one counts
        given = headers.get(b"traceparent")
        traceparent.set(read_traceparent(given) if given else "")
        try:
            if len(headers) != len(scope["headers"]):
                browsers.check_repeated(scope["headers"])
            if not self._exposable:
                self._refuse_exposed(scope, headers)
            if b"origin" in headers or b"sec-fetch-site" in headers:
                self._refuse_foreign(route, scope, headers)
            key = authenticate(self._keys, headers, needs) if needs and self._keys else ANONYMOUS
            scope[KEY] = key
            answer = await work(scope, receive, reply, headers, key)
        except Disconnected:
            return
        except asyncio.CancelledError:  # SIGTERM, and the drain time has elapsed
            if reply.status:
                raise
            answer = refusal(Problem(503, "the service is stopping; retry after 1 second"))
        except Exception as error:  # noqa: BLE001  # every error gets an answer
            answer, cause = self._refused(error, route, identity)
            if reply.status:  # the server closes the connection and logs this error without values
                raise RuntimeError("error while an answer was being sent") from None
        if answer is not None:
            await respond(send, answer, identity)
        status = reply.status if answer is None else answer.status
        ended = perf_counter() if reply.began is None else reply.began
        self._note(route, scope["method"], status, ended - started, identity, cause)

    def _refuse_exposed(self, scope: Scope, headers: Headers) -> None:
        """Raise 403 for a request to a non-loopback address without API keys; log it once.

        On a loopback address, raise 421 for the Host header of another name.
        """
        server = scope.get("server")
        address = server and tuple(server)
        if received_locally(address):
            if not browsers.is_served(address, headers.get(b"host"), self._hosts):
                raise Problem(421, browsers.OTHER_HOST)
            return
        if not self._warned:
            log.error("refusing requests to %s: %s", server and server[0], EXPOSED)
            self._warned = True
        raise Problem(403, EXPOSED)

    def _refuse_foreign(self, route: str, scope: Scope, headers: Headers) -> None:
        """Raise 403 if a page of another origin calls something that may change data."""
        if scope["method"] in browsers.SAFE_METHODS or route in browsers.CROSS_SITE_PATHS:
            return
        if browsers.is_foreign(headers, scope.get("scheme", "http"), self._origins):
            raise Problem(403, browsers.FOREIGN)

    def _refused(self, error: Exception, route: str, identity: str) -> tuple[Answer, str]:
        """Return the answer to an error, and the cause of a 503 for the log."""
        found = problem(error)
        if found is None:
            about = {"route": route, "request_id": identity}
            log.error("internal error", exc_info=error, extra=about)
            bug = Problem(500, f"internal error; search the log for request_id {identity}")
            return refusal(bug, {"instance": identity}), ""
        if found.status == 503 and found is not error:
            return refusal(found), f"{type(error).__name__} at {_source(error)}"
        return refusal(found), ""

    def _note(
        self, route: str, method: str, status: int, seconds: float, identity: str, cause: str
    ) -> None:
        self._metrics.request(route, status, seconds)
        if not self.settings.access_log and status not in LOGGED:
            return
        level, kind = logging.WARNING if cause else logging.INFO, {"route": route, "status": status}
        if self.settings.access_log or self._lines.admits((route, status), level, "request", kind):
            about = {
                "route": route, "method": method, "status": status,
                "ms": round(seconds * 1e3, 2), "request_id": identity,
                **({"cause": cause} if cause else {}),
            }  # fmt: skip
            log.log(level, "request", extra=about)


def guard_of(scope: Scope) -> Guard:
    """Return the guard of the application; its lifespan creates it."""
    try:
        guard: Guard = scope["app"].state.guard
    except AttributeError:
        raise RuntimeError(
            "the lifespan has not run: use `with TestClient(app)`, and omit --lifespan off"
        ) from None
    return guard


class GuardedRoute(APIRoute):
    """A route behind the application's guard; its `Security` dependency names the scope."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answer = guard_of(scope).answer
        if scope["method"] in (self.methods or ()):
            await answer(self.path, self.needs, self.work, scope, receive, send)
        else:
            await answer(self.path, None, refuse_method, scope, receive, send)

    @cached_property
    def needs(self) -> str | None:
        """The scope that a key must have; None if no key is needed."""
        return next(
            (one for need in self.dependencies for one in getattr(need, "scopes", ())), None
        )

    async def work(
        self, scope: Scope, receive: Receive, reply: Reply, headers: Headers, key: Key, /
    ) -> Answer | None:
        """Do the work of the route itself."""
        raise NotImplementedError


async def refuse_method(
    scope: Scope, _receive: Receive, _reply: Reply, _headers: Headers, _key: Key
) -> None:
    """Raise 405 with the methods of the path."""
    path = scope["route"].path
    routes = [one for one in iter_route_contexts(scope["app"].routes) if one.path == path]
    allowed = ", ".join(sorted({method for one in routes for method in one.methods or ()}))
    raise Problem(405, f"method: expected {allowed}", {"allow": allowed})


async def refuse_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 404 for an unknown path; close a WebSocket, as no path accepts one."""

    async def refuse(*_: Any) -> None:
        raise Problem(404, "path: unknown; GET /docs lists all paths")

    if scope["type"] == "http":
        await guard_of(scope).answer("other", None, refuse, scope, receive, send)
    else:
        await send({"type": "websocket.close"})


class FastRoute(GuardedRoute):
    """A route whose endpoint takes the service and the raw body, and returns bytes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Compare the path: these routes have no parameters, and a regex takes 3 µs."""
        if scope["type"] != "http" or scope.get("root_path"):
            return super().matches(scope)
        if scope["path"] != self.path:
            return Match.NONE, {}
        found = Match.FULL if scope["method"] in (self.methods or ()) else Match.PARTIAL
        return found, {"endpoint": self.endpoint, "path_params": {}, "route": self}

    async def work(
        self, scope: Scope, receive: Receive, _reply: Reply, headers: Headers, key: Key, /
    ) -> Answer:
        """Read the body and call the endpoint."""
        service, held = scope["app"].state.service, scope[HELD]
        call = Call(await read_body(receive, headers, service.settings, held), key, headers, held)
        if len(call.body) > LARGE:
            await service.memory.turn(len(call.body), body=True)
        answer: Answer = await self.endpoint(service, call)
        return answer


def _source(error: BaseException) -> str:
    """Return the file name and the line that raised an error."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "?"
    return f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
