"""Every request: its id, its key, its limits, its errors and its metrics, around FastAPI's routes.

Two kinds of routes share these guards. An `AdminRoute` goes on to FastAPI: dependencies, pydantic,
response models. A `FastRoute` calls its endpoint with the raw body, for /rank and /feedback; what
FastAPI would do for it, `handle` does.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from app.api.auth import ANYBODY, Key, admit, came_in_locally, read_keys
from app.api.errors import (
    PROBLEM_MEDIA_TYPE,
    Problem,
    invalid,
    problem,
    too_large,
    too_slow,
    undecodable,
)
from app.api.schemas import object_decoder
from app.config import Settings
from app.observability.metrics import Metrics
from app.observability.tracing import read_traceparent, traceparent

log = logging.getLogger("solar.api")

JSON, MSGPACK, TEXT = "application/json", "application/msgpack", "text/plain"
Headers = Mapping[bytes, bytes]
#: Why requests to an address beyond loopback are refused.
EXPOSED = (
    "expected API keys for an address beyond loopback: set SOLAR_KEYS (`solar key NAME` makes "
    "one), or SOLAR_INSECURE=yes"
)
#: Answers that are logged even without an access log.
LOGGED = (401, 403, 429, 503)


class Disconnected(Exception):
    """The caller is gone; there is nobody to answer."""


@dataclass(slots=True)
class Call:
    """A request to a FastRoute."""

    body: bytes
    key: Key
    headers: Headers


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a FastRoute."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def refusal(problem: Problem, more: Mapping[str, Any] | None = None) -> Answer:
    """The answer that a problem is, with more members if there are any."""
    return Answer(problem.status, problem.body(more or {}), PROBLEM_MEDIA_TYPE, problem.headers)


def media_type(headers: Headers) -> str:
    """The media type of a body, without parameters."""
    kind = headers.get(b"content-type", b"")
    return kind.partition(b";")[0].strip().lower().decode("latin-1")


def expect_json(headers: Headers) -> None:
    """415 if a body says that it is something else."""
    if media_type(headers) != JSON:
        raise Problem(415, f"content-type: expected {JSON}")


async def read_body(receive: Receive, headers: Headers, limits: Settings) -> bytes:
    """The whole body, or a Problem: too large (413), too slow (408), compressed (415)."""
    most = limits.body_bytes
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Problem(415, "content-encoding: expected none")
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length[:20]) > most:
        raise too_large(most)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _gather(receive, most)
    except TimeoutError:
        raise too_slow(limits.body_seconds) from None


async def _gather(receive: Receive, most: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > most:
            raise too_large(most)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def respond(send: Send, answer: Answer, identity: str) -> None:
    """Send an answer whole; by its identity the log knows it."""
    headers = [
        (b"content-type", answer.media_type.encode()),
        (b"content-length", b"%d" % len(answer.body)),
        (b"x-request-id", identity.encode()),
        *((name.encode(), value.encode()) for name, value in answer.headers.items()),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class Reply:
    """The `send` of a request: it notes the status and adds the request's identity."""

    __slots__ = ("_identity", "_send", "status")

    def __init__(self, send: Send, identity: str) -> None:
        self._send, self._identity, self.status = send, identity, 0

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            numbered = (b"x-request-id", self._identity.encode())
            message["headers"] = [*message["headers"], numbered]
        await self._send(message)


#: What a route does: it gives its answer back, or sends it itself and gives nothing.
Work = Callable[[Scope, Receive, Reply, Headers, Key], Awaitable[Answer | None]]


class Guard:
    """What happens around each request: id, key, errors, metrics, log."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self._metrics = settings, metrics
        self._keys = read_keys(settings.keys)
        self._exposable = bool(self._keys) or settings.insecure
        self._warned = False

    async def answer(
        self, route: str, needs: str | None, work: Work, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Do the work of a request and answer it, whatever happens."""
        started, identity = perf_counter(), f"{random.getrandbits(64):016x}"
        reply = Reply(send, identity)
        headers = dict(scope["headers"])  # the last one of a name counts
        given = headers.get(b"traceparent")
        traceparent.set(read_traceparent(given) if given else "")
        try:
            if not self._exposable:
                self._refuse_exposed(scope)
            key = admit(self._keys, headers, needs) if needs and self._keys else ANYBODY
            answer = await work(scope, receive, reply, headers, key)
        except Disconnected:
            return
        except asyncio.CancelledError:  # SIGTERM, and the time to drain is over
            if reply.status:
                raise
            answer = refusal(Problem(503, "the service is stopping; try again"))
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets an answer
            answer = self._refused(error, route, identity)
            if reply.status:  # the server ends the connection, and logs this error, without values
                raise RuntimeError("an error in the middle of an answer") from None
        if answer is not None:
            await respond(send, answer, identity)
        status = reply.status if answer is None else answer.status
        self._note(route, scope["method"], status, perf_counter() - started, identity)

    def _refuse_exposed(self, scope: Scope) -> None:
        """403 if whoever reaches this machine could do anything; logged once."""
        server = scope.get("server")
        if came_in_locally(server and tuple(server)):
            return
        if not self._warned:
            log.error("refusing requests to %s: %s", server and server[0], EXPOSED)
            self._warned = True
        raise Problem(403, EXPOSED)

    def _refused(self, error: Exception, route: str, identity: str) -> Answer:
        found = problem(error)
        about = {"route": route, "request_id": identity}
        if found is None:
            log.error("internal error", exc_info=error, extra=about)
            bug = Problem(500, f"internal error; the log has it under request_id {identity}")
            return refusal(bug, {"instance": identity})
        if found.status == 503 and found is not error:
            log.warning("%s at %s", type(error).__name__, _place(error), extra=about)
        return refusal(found)

    def _note(self, route: str, method: str, status: int, seconds: float, identity: str) -> None:
        self._metrics.request(route, status, seconds)
        if self.settings.access_log or status in LOGGED:
            about = {
                "route": route, "method": method, "status": status,
                "ms": round(seconds * 1e3, 2), "request_id": identity,
            }  # fmt: skip
            log.info("request", extra=about)


def guard_of(scope: Scope) -> Guard:
    """The guard of the application, which its lifespan has made."""
    try:
        guard: Guard = scope["app"].state.guard
    except AttributeError:
        raise RuntimeError(
            "the lifespan has not run: use `with TestClient(app)`, and no --lifespan off"
        ) from None
    return guard


class GuardedRoute(APIRoute):
    """A route behind the application's guard; its scope is that of its `Security` dependency."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answer = guard_of(scope).answer
        if scope["method"] in (self.methods or ()):
            await answer(self.path, self.needs, self.work, scope, receive, send)
        else:
            await answer(self.path, None, refuse_method, scope, receive, send)

    @cached_property
    def needs(self) -> str | None:
        """The scope that a key must have; None: no key is needed."""
        return next(
            (one for need in self.dependencies for one in getattr(need, "scopes", ())), None
        )

    async def work(
        self, scope: Scope, receive: Receive, reply: Reply, headers: Headers, key: Key, /
    ) -> Answer | None:
        """What the route itself does."""
        raise NotImplementedError


async def refuse_method(
    scope: Scope, _receive: Receive, _reply: Reply, _headers: Headers, _key: Key
) -> None:
    """405, with the methods that the path has."""
    path = scope["route"].path
    routes = [one for one in iter_route_contexts(scope["app"].routes) if one.path == path]
    allowed = ", ".join(sorted({method for one in routes for method in one.methods or ()}))
    raise Problem(405, f"method: expected {allowed}", {"allow": allowed})


async def refuse_path(scope: Scope, receive: Receive, send: Send) -> None:
    """404: no route has the path. A WebSocket is closed: there is no path for one."""

    async def refuse(*_: Any) -> None:
        raise Problem(404, "path: unknown; GET /docs lists all paths of the service")

    if scope["type"] == "http":
        await guard_of(scope).answer("other", None, refuse, scope, receive, send)
    else:
        await send({"type": "websocket.close"})


class FastRoute(GuardedRoute):
    """A route whose endpoint gets the service and the raw body, and gives bytes back."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Compare the path: these routes have no parameters, and a regex would take 3 µs."""
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
        service = scope["app"].state.service
        body = await read_body(receive, headers, service.settings)
        answer: Answer = await self.endpoint(service, Call(body, key, headers))
        return answer


class AdminRoute(GuardedRoute):
    """A route of FastAPI's, with a bounded body that is strict JSON."""

    async def work(
        self, scope: Scope, receive: Receive, reply: Reply, _headers: Headers, _key: Key, /
    ) -> None:
        """Let FastAPI do the rest."""
        await super(GuardedRoute, self).handle(scope, receive, reply)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Read the body before FastAPI would, without a limit."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler
        fields = tuple(self.body_field.field_info.annotation.model_fields)  # type: ignore[union-attr]
        decode = object_decoder(fields)

        async def with_body(request: Request) -> Response:
            headers = dict(request.scope["headers"])
            expect_json(headers)
            body = await read_body(request.receive, headers, guard_of(request.scope).settings)
            try:
                decoded = decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise undecodable(error, {"": fields}) from None
            return await handler(ReadRequest(request, body, decoded))

        return with_body


class ReadRequest(Request):
    """A request whose body has been read."""

    def __init__(self, request: Request, body: bytes, decoded: dict[str, Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._read, self._decoded = body, decoded

    async def body(self) -> bytes:
        """The body."""
        return self._read

    async def json(self) -> Any:
        """What it says."""
        return self._decoded


async def answer_problem(_: Request, error: Exception) -> Response:
    """The answer to errors of FastAPI's own: an invalid body, or an HTTPException."""
    if isinstance(error, RequestValidationError):
        found = invalid(error.errors())
    elif isinstance(error, HTTPException):
        found = Problem(error.status_code, str(error.detail), error.headers)
    else:
        raise error
    return Response(found.body({}), found.status, found.headers, PROBLEM_MEDIA_TYPE)


def _place(error: BaseException) -> str:
    """Where an error came from: the file's name and the line."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "?"
    return f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
