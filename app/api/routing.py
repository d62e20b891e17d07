"""The door: one ASGI application that checks, limits, times and always answers."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from secrets import token_hex
from time import perf_counter
from typing import Any

from app.api import openapi, schemas
from app.api.auth import ANYBODY, Key, holder, read_keys
from app.api.calls import (
    Answer,
    Call,
    Disconnected,
    Receive,
    Scope,
    Send,
    headers_of,
    read_body,
    refusal,
    respond,
)
from app.api.dependencies import Service
from app.api.errors import Problem, problem
from app.api.routers.health import HealthEndpoints
from app.api.routes import ROUTES, Route, match
from app.config import Settings
from app.observability.metrics import Metrics

log = logging.getLogger("solar.api")

Open = Callable[[], Awaitable[Answer]]


class HttpApplication:
    """Every request comes in here. Without a service only what needs no key is served."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        ops: HealthEndpoints,
        service: Service | None = None,
    ) -> None:
        self._settings, self._metrics, self._service = settings, metrics, service
        self._keys = read_keys(settings.keys)
        self._origins = {part.strip() for part in settings.cors.split(",") if part.strip()}
        self._open: dict[str, Open] = {
            "/healthz": ops.healthz,
            "/readyz": ops.readyz,
            "/metrics": ops.metrics,
        }
        self._routes: dict[str, dict[str, Route]] = {}
        if service is not None:
            self._open |= {"/docs": _docs, "/openapi.json": _openapi}
            for route in ROUTES:
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
        assert self._service is not None  # noqa: S101  # there are routes
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


async def _docs() -> Answer:
    return Answer(200, openapi.page(), "text/html; charset=utf-8")


async def _openapi() -> Answer:
    return Answer(200, schemas.encode(openapi.document()))


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
