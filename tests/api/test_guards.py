"""Checks around every endpoint: API keys, methods, addresses, and the handling of bugs."""

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api import auth
from app.config import Settings
from app.errors import Unavailable
from app.main import create_app
from app.storage.embedded.server import EmbeddedServer
from tests.api.operations import GUARDED, OPEN, OPERATIONS, Operation
from tests.api.services import application, serving
from tests.servers import TIMEOUT, server, until

__all__ = ["server"]  # a fixture
PROBLEM = "application/problem+json"
HEAD_PATHS = ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/solar.js")
BOOKS = {"features": ["bm25", "price"]}
KEYS = {scope: auth.new_key(f"{scope}-only", scope) for scope in auth.SCOPES}
ENTRIES = ",".join(entry for _, entry in KEYS.values())


def names(operation: Operation) -> str:
    return str(operation)


def of_another_scope(operation: Operation) -> str:
    """Return a valid key without the scope of this operation."""
    return next(secret for scope, (secret, _) in KEYS.items() if scope != operation.scope)


@pytest.fixture(scope="module")
def client(server: EmbeddedServer) -> Iterator[TestClient]:
    """An application without keys."""
    with application(server.url) as made:
        assert made.put("/models/books", json=BOOKS).status_code == 201
        yield made


# ---- keys ----


@dataclass
class Answered:
    """An application's answer, and how often it read from the body."""

    status: int
    body: bytes
    reads: int


async def ask(app: FastAPI, operation: Operation, secret: str | None) -> Answered:
    """Call an application as a server does, with a body that has not arrived."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
    if secret is not None:
        headers.append((b"authorization", f"Bearer {secret}".encode()))
    sent: list[Any] = []
    reads = 0

    async def receive() -> dict[str, Any]:
        nonlocal reads
        reads += 1
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": operation.method, "path": operation.at(), "query_string": b"",
        "headers": headers, "server": ("127.0.0.1", 8000), "http_version": "1.1",
    }  # fmt: skip
    await app(scope, receive, send)
    body = b"".join(one.get("body", b"") for one in sent)
    return Answered(sent[0]["status"] if sent else 0, body, reads)


def with_application(url: str, check: Callable[[FastAPI], Awaitable[None]]) -> None:
    """Run a check on an application that has a key for each scope."""

    async def run() -> None:
        app = create_app(Settings(learner=False, keys=ENTRIES), url)
        async with app.router.lifespan_context(app):
            await check(app)

    asyncio.run(run())


def test_every_guarded_operation_refuses_missing_and_wrong_keys_before_reading_the_body(
    server: EmbeddedServer,
) -> None:
    async def check(app: FastAPI) -> None:
        for one in GUARDED:
            for secret, status in ((None, 401), ("wrong", 401), (of_another_scope(one), 403)):
                answer = await ask(app, one, secret)
                assert (answer.status, answer.reads) == (status, 0), one
                assert json.loads(answer.body)["status"] == status

    with_application(server.url, check)


def test_the_documented_scope_is_accepted(server: EmbeddedServer) -> None:
    """With the key the body is read, or the answer is about the path."""

    async def check(app: FastAPI) -> None:
        for one in GUARDED:
            assert one.scope is not None
            answer = await ask(app, one, KEYS[one.scope][0])
            assert answer.reads > 0 or answer.status in (200, 404), one

    with_application(server.url, check)


#: The scope of every operation, by hand.
SCOPE_OF = {
    "POST /rank": "rank",
    "POST /feedback": "feedback",
    "GET /models": "read",
    "GET /models/{name}": "read",
    "PUT /models/{name}": "admin",
    "PATCH /models/{name}": "admin",
    "DELETE /models/{name}": "admin",
    "GET /models/{name}/followers": "read",
    "POST /models/{name}/followers": "admin",
    "GET /models/{name}/duel": "read",
    "PUT /models/{name}/duel": "admin",
    "DELETE /models/{name}/duel": "admin",
    "POST /models/{name}/duel/promote": "admin",
    "GET /models/{name}/versions": "read",
    "POST /models/{name}/versions": "admin",
    "DELETE /models/{name}/versions/{version}": "admin",
    "POST /models/{name}/rollback": "admin",
    "POST /models/{name}/warm-start": "admin",
    "POST /models/{name}/compare": "read",
    "POST /models/{name}/what-if": "read",
    "GET /models/{name}/versions/{a}/diff/{b}": "read",
    "GET /models/{name}/impressions": "admin",
    "GET /models/{name}/history": "read",
    "GET /models/{name}/stream": "read",
    "GET /status": "read",
    "GET /jobs": "read",
    "GET /jobs/{id}": "read",
    "DELETE /jobs/{id}": "admin",
    "POST /jobs/{id}/start": "admin",
}
#: The scopes that a key has by each scope in its entry.
INCLUDED = {scope: {scope} for scope in auth.SCOPES} | {"admin": {"admin", "read"}}


def test_every_operation_needs_the_scope_of_the_table() -> None:
    assert {str(one): one.scope for one in GUARDED} == SCOPE_OF


def test_every_operation_is_open_to_the_keys_that_have_its_scope_and_to_no_others(
    server: EmbeddedServer,
) -> None:
    async def check(app: FastAPI) -> None:
        for one in GUARDED:
            for scope, (secret, _) in KEYS.items():
                answer = await ask(app, one, secret)
                allowed = SCOPE_OF[str(one)] in INCLUDED[scope]
                assert (answer.status == 403) != allowed, (str(one), scope, answer.status)

    with_application(server.url, check)


def test_every_operation_but_health_metrics_and_beacons_lists_security() -> None:
    open_ones = {"GET /healthz", "GET /readyz", "GET /metrics", "POST /beacon"}
    assert {str(one) for one in OPEN} == open_ones
    assert {one.scope for one in GUARDED} == set(auth.SCOPES)


def test_over_a_socket_a_missing_or_wrong_key_is_refused_before_the_body_arrives() -> None:
    with serving(environ={"SOLAR_KEYS": ENTRIES}) as running:
        port = httpx.URL(running.url).port
        for one in GUARDED:
            for secret, status in ((None, 401), ("wrong", 401), (of_another_scope(one), 403)):
                key = f"Authorization: Bearer {secret}\r\n" if secret else ""
                head = f"{one.method} {one.at()} HTTP/1.1\r\nHost: x\r\n{key}"
                with socket.create_connection(("127.0.0.1", port or 0), TIMEOUT) as connection:
                    connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode())
                    assert connection.recv(12) == f"HTTP/1.1 {status}".encode(), one


# ---- paths and methods ----

ALLOWED: dict[str, set[str]] = {}
for _one in OPERATIONS:
    ALLOWED.setdefault(_one.path, set()).add(_one.method)
for _path in HEAD_PATHS:
    ALLOWED.setdefault(_path, {"GET"}).add("HEAD")
ALLOWED["/beacon"].add("OPTIONS")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")


@pytest.mark.parametrize("path", ALLOWED)
def test_an_unknown_method_is_405_and_allow_lists_the_methods(
    client: TestClient, path: str
) -> None:
    job = "books.01970000-0000-7000-8000-000000000000"
    existing = path.format(name="books", id=job, version="before-sale", a="0", b="current")
    for method in set(METHODS) - ALLOWED[path]:
        reply = client.request(method, existing)
        assert reply.status_code == 405, method
        assert set(reply.headers["allow"].split(", ")) == ALLOWED[path]
        assert reply.headers["content-type"] == PROBLEM
        assert len(reply.headers["x-request-id"]) == 16


@pytest.mark.parametrize("path", HEAD_PATHS)
def test_a_head_is_answered_as_a_get(client: TestClient, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert (got.status_code, head.status_code) == (200, 200)
    assert got.content
    assert head.headers["content-type"] == got.headers["content-type"]


UNKNOWN_PATHS = (
    "/", "/nowhere", "/rank/", "/feedback/", "/models/", "/models/books/", "/models//versions",
    "/models/books/nothing", "/jobs/", "/healthz/", "/openapi.json/", "/RANK", "//rank",
    "/redoc", "/metrics/x",
)  # fmt: skip


@pytest.mark.parametrize("path", UNKNOWN_PATHS)
@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_path_is_404_without_a_redirect(
    client: TestClient, path: str, method: str
) -> None:
    reply = client.request(method, f"http://testserver{path}", follow_redirects=False)
    assert (reply.status_code, reply.headers["content-type"]) == (404, PROBLEM)
    assert "location" not in reply.headers
    assert reply.headers["x-request-id"]


# ---- addresses ----

REMEDY = "set SOLAR_KEYS (`solar key NAME` makes one), or SOLAR_INSECURE=yes"
REMOTE = ("10.0.0.7", "192.0.2.1", "[2001:db8::1]", "0.0.0.0")  # noqa: S104  # all are refused
LOCAL = ("127.0.0.1", "127.8.8.8", "[::1]", "testserver", "localhost")


@pytest.mark.parametrize("address", REMOTE)
def test_without_keys_a_non_loopback_address_is_403_and_logged_once(
    server: EmbeddedServer, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with application(server.url, server=address) as client:
        for one in OPERATIONS:
            reply = client.request(one.method, one.at())
            assert (reply.status_code, reply.headers["content-type"]) == (403, PROBLEM), one
            assert REMEDY in reply.json()["detail"]
        assert client.get("/nowhere").status_code == 403
        assert client.post("/healthz").status_code == 403
    errors = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert REMEDY in errors[0].getMessage()


@pytest.mark.parametrize("address", LOCAL)
def test_a_loopback_address_is_served_without_keys(server: EmbeddedServer, address: str) -> None:
    with application(server.url, server=address) as client:
        assert client.get("/models").status_code == 200


def test_with_keys_or_insecure_a_non_loopback_address_is_served(server: EmbeddedServer) -> None:
    with application(server.url, server=REMOTE[0], insecure=True) as client:
        assert client.get("/models").status_code == 200
    with application(server.url, server=REMOTE[0], keys=ENTRIES) as client:
        assert client.get("/models").status_code == 401
        assert client.get("/healthz").status_code == 200


# ---- bugs ----

SECRET = "qzSECRETzq"  # noqa: S105  # in the message of an error
BUGS = (ValueError, RuntimeError, KeyError, AssertionError, TypeError, OSError)
#: A path of each kind of route, and the method of the store that it calls.
PLANTED = {
    "FastRoute": ("POST", "/feedback", "log", "load_small_impressions"),
    "AdminRoute": ("GET", "/models/books", "states", "load"),
    "AdminRoute with a body": ("PUT", "/models/new", "models", "create"),
}
BODIES: dict[str, Any] = {
    "/feedback": {"event_id": "e", "type": "clicks", "model": "books", "request_id": "r",
                  "clicked": []},
    "/models/new": BOOKS,
}  # fmt: skip


def plant(client: TestClient, part: str, method: str, bug: Exception) -> pytest.MonkeyPatch:
    """Make a method of the application's store raise an error, until the patch is undone."""

    async def raising(*_: object, **__: object) -> None:
        raise bug

    app: Any = client.app
    patch = pytest.MonkeyPatch()
    patch.setattr(type(getattr(app.state.service.store, part)), method, raising)
    return patch


def answered(client: TestClient, method: str, path: str) -> Any:
    """Send a request again after a 503: on a busy machine the store may seem unreachable."""
    replies: list[Any] = []

    def served() -> bool:
        replies.append(client.request(method, path, json=BODIES.get(path)))
        return bool(replies[-1].status_code != 503)

    until(served)
    return replies[-1]


@pytest.mark.parametrize(("route", "kind"), [(route, kind) for route in PLANTED for kind in BUGS])
def test_a_bug_is_500_with_an_id_in_the_log_and_without_its_message(
    client: TestClient, caplog: pytest.LogCaptureFixture, route: str, kind: type[Exception]
) -> None:
    method, path, part, called = PLANTED[route]
    patch = plant(client, part, called, kind(SECRET))
    try:
        reply = answered(client, method, path)
    finally:
        patch.undo()
    identity = reply.headers["x-request-id"]
    assert (reply.status_code, reply.headers["content-type"]) == (500, PROBLEM)
    assert reply.json() == {
        "type": "about:blank", "title": "Internal Server Error", "status": 500,
        "detail": f"internal error; search the log for request_id {identity}",
        "instance": identity,
    }  # fmt: skip
    assert SECRET not in str(reply.headers)
    (logged,) = (one for one in caplog.records if one.levelno >= logging.ERROR)
    assert logged.exc_info is not None
    assert logged.exc_info[0] is kind
    assert SECRET not in logged.getMessage()
    about = vars(logged)
    assert about["request_id"] == identity
    assert about["route"] == path.replace("books", "{name}").replace("new", "{name}")
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("route", PLANTED)
def test_an_unreachable_store_is_503_with_a_remedy(
    client: TestClient, caplog: pytest.LogCaptureFixture, route: str
) -> None:
    method, path, part, called = PLANTED[route]
    patch = plant(client, part, called, Unavailable(SECRET))
    try:
        reply = client.request(method, path, json=BODIES.get(path))
    finally:
        patch.undo()
    assert (reply.status_code, reply.headers["content-type"]) == (503, PROBLEM)
    assert reply.headers["retry-after"] == "1"
    assert reply.json()["detail"] == "the store is unreachable or not ready; retry after 1 second"
    assert SECRET not in reply.text + caplog.text
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize("operation", [OPERATIONS[0], *OPEN], ids=names)
def test_an_error_while_an_answer_is_sent_ends_the_connection_without_a_second_answer(
    server: EmbeddedServer, operation: Operation
) -> None:
    """The error reaches the server, which closes the connection."""
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        body = {"documents": [{"id": "a", "features": [1, 2]}]}
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            raise RuntimeError(SECRET)

    async def run() -> None:
        app = create_app(Settings(learner=False, default_features="2"), server.url)
        async with app.router.lifespan_context(app):
            scope = {
                "type": "http", "method": operation.method, "path": operation.path,
                "query_string": b"", "server": None,
                "headers": [(b"content-type", b"application/json")],
            }  # fmt: skip
            with pytest.raises(RuntimeError, match=SECRET):
                await app(scope, receive, send)

    asyncio.run(run())
    assert sent == ["http.response.start", "http.response.body"]
