"""What every request meets before its endpoint: keys, methods, addresses; and bugs behind it."""

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
from tests.servers import PATIENCE, server

__all__ = ["server"]  # a fixture
PROBLEM = "application/problem+json"
HEADS = ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json")
BOOKS = {"features": ["bm25", "price"]}
KEYS = {scope: auth.new_key(f"{scope}-only", scope) for scope in auth.SCOPES}
ENTRIES = ",".join(entry for _, entry in KEYS.values())


def names(operation: Operation) -> str:
    return str(operation)


def of_another_scope(operation: Operation) -> str:
    """A valid key that this operation is not for."""
    return next(secret for scope, (secret, _) in KEYS.items() if scope != operation.scope)


@pytest.fixture(scope="module")
def client(server: EmbeddedServer) -> Iterator[TestClient]:
    """An application without keys."""
    with application(server.url) as made:
        assert made.put("/models/books", json=BOOKS).status_code == 201
        yield made


# ---- keys ----


@dataclass
class Asked:
    """What an application answered, and how much of the body it wanted to read."""

    status: int
    body: bytes
    reads: int


async def ask(app: FastAPI, operation: Operation, secret: str | None) -> Asked:
    """Call an application as a server does, with a body that is still to come."""
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
    return Asked(sent[0]["status"] if sent else 0, body, reads)


def within(url: str, act: Callable[[FastAPI], Awaitable[None]]) -> None:
    """Do something with an application that has a key for each scope."""

    async def run() -> None:
        app = create_app(Settings(learner=False, keys=ENTRIES), url)
        async with app.router.lifespan_context(app):
            await act(app)

    asyncio.run(run())


def test_every_operation_that_lists_security_refuses_strangers_before_it_reads_the_body(
    server: EmbeddedServer,
) -> None:
    async def act(app: FastAPI) -> None:
        for one in GUARDED:
            for secret, status in ((None, 401), ("wrong", 401), (of_another_scope(one), 403)):
                asked = await ask(app, one, secret)
                assert (asked.status, asked.reads) == (status, 0), one
                assert json.loads(asked.body)["status"] == status

    within(server.url, act)


def test_the_key_that_an_operation_documents_opens_it(server: EmbeddedServer) -> None:
    """Whoever has it gets past the key: the body is read, or the answer is about the path."""

    async def act(app: FastAPI) -> None:
        for one in GUARDED:
            assert one.scope is not None
            asked = await ask(app, one, KEYS[one.scope][0])
            assert asked.reads > 0 or asked.status in (200, 404), one

    within(server.url, act)


def test_every_operation_but_health_and_metrics_lists_security() -> None:
    assert {str(one) for one in OPEN} == {"GET /healthz", "GET /readyz", "GET /metrics"}
    assert {one.scope for one in GUARDED} == set(auth.SCOPES)


def test_over_a_socket_strangers_are_answered_while_their_body_is_still_to_come() -> None:
    with serving(environ={"SOLAR_KEYS": ENTRIES}) as running:
        port = httpx.URL(running.url).port
        for one in GUARDED:
            for secret, status in ((None, 401), ("wrong", 401), (of_another_scope(one), 403)):
                key = f"Authorization: Bearer {secret}\r\n" if secret else ""
                head = f"{one.method} {one.at()} HTTP/1.1\r\nHost: x\r\n{key}"
                with socket.create_connection(("127.0.0.1", port or 0), PATIENCE) as wire:
                    wire.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode())
                    assert wire.recv(12) == f"HTTP/1.1 {status}".encode(), one


# ---- paths and methods ----

ALLOWED: dict[str, set[str]] = {}
for _one in OPERATIONS:
    ALLOWED.setdefault(_one.path, set()).add(_one.method)
for _path in HEADS:
    ALLOWED.setdefault(_path, {"GET"}).add("HEAD")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")


@pytest.mark.parametrize("path", ALLOWED)
def test_another_method_is_405_and_allow_names_those_that_there_are(
    client: TestClient, path: str
) -> None:
    asked = path.format(name="books", id="books.01970000-0000-7000-8000-000000000000")
    for method in set(METHODS) - ALLOWED[path]:
        reply = client.request(method, asked)
        assert reply.status_code == 405, method
        assert set(reply.headers["allow"].split(", ")) == ALLOWED[path]
        assert reply.headers["content-type"] == PROBLEM
        assert len(reply.headers["x-request-id"]) == 16


@pytest.mark.parametrize("path", HEADS)
def test_a_head_is_answered_as_a_get(client: TestClient, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert (got.status_code, head.status_code) == (200, 200)
    assert got.content
    assert head.headers["content-type"] == got.headers["content-type"]


NOWHERE = (
    "/", "/nowhere", "/rank/", "/feedback/", "/models/", "/models/books/", "/models//versions",
    "/models/books/nothing", "/jobs", "/jobs/", "/healthz/", "/openapi.json/", "/RANK", "//rank",
    "/redoc", "/metrics/x",
)  # fmt: skip


@pytest.mark.parametrize("path", NOWHERE)
@pytest.mark.parametrize("method", METHODS)
def test_a_path_that_there_is_not_is_404_and_leads_nowhere_else(
    client: TestClient, path: str, method: str
) -> None:
    reply = client.request(method, f"http://testserver{path}", follow_redirects=False)
    assert (reply.status_code, reply.headers["content-type"]) == (404, PROBLEM)
    assert "location" not in reply.headers
    assert reply.headers["x-request-id"]


# ---- addresses ----

REMEDY = "set SOLAR_KEYS (`solar key NAME` makes one), or SOLAR_INSECURE=yes"
FOREIGN = ("10.0.0.7", "192.0.2.1", "[2001:db8::1]", "0.0.0.0")  # noqa: S104  # to be refused
HERE = ("127.0.0.1", "127.8.8.8", "[::1]", "testserver", "localhost")


@pytest.mark.parametrize("address", FOREIGN)
def test_without_keys_nobody_from_beyond_this_machine_is_served_and_the_log_says_so_once(
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


@pytest.mark.parametrize("address", HERE)
def test_this_machine_is_served_without_keys(server: EmbeddedServer, address: str) -> None:
    with application(server.url, server=address) as client:
        assert client.get("/models").status_code == 200


def test_keys_or_insecure_open_the_service_to_other_machines(server: EmbeddedServer) -> None:
    with application(server.url, server=FOREIGN[0], insecure=True) as client:
        assert client.get("/models").status_code == 200
    with application(server.url, server=FOREIGN[0], keys=ENTRIES) as client:
        assert client.get("/models").status_code == 401
        assert client.get("/healthz").status_code == 200


# ---- bugs ----

SECRET = "qzSECRETzq"  # noqa: S105  # in the message of an error
BUGS = (ValueError, RuntimeError, KeyError, AssertionError, TypeError, OSError)
#: A path of each kind of route, and the method of the store that it calls.
PLANTED = {
    "FastRoute": ("POST", "/feedback", "log", "recall"),
    "AdminRoute": ("GET", "/models/books", "states", "load"),
    "AdminRoute with a body": ("PUT", "/models/new", "models", "create"),
}
BODIES: dict[str, Any] = {
    "/feedback": {"event_id": "e", "type": "clicks", "model": "books", "request_id": "r",
                  "clicked": []},
    "/models/new": BOOKS,
}  # fmt: skip


def plant(client: TestClient, part: str, method: str, bug: Exception) -> pytest.MonkeyPatch:
    """Let a method of the application's store raise a bug, until it is undone."""

    async def raising(*_: object, **__: object) -> None:
        raise bug

    app: Any = client.app
    patch = pytest.MonkeyPatch()
    patch.setattr(type(getattr(app.state.service.store, part)), method, raising)
    return patch


@pytest.mark.parametrize(("route", "kind"), [(route, kind) for route in PLANTED for kind in BUGS])
def test_a_bug_is_500_with_an_id_that_the_log_has_and_its_message_stays_inside(
    client: TestClient, caplog: pytest.LogCaptureFixture, route: str, kind: type[Exception]
) -> None:
    method, path, part, called = PLANTED[route]
    patch = plant(client, part, called, kind(SECRET))
    try:
        reply = client.request(method, path, json=BODIES.get(path))
    finally:
        patch.undo()
    identity = reply.headers["x-request-id"]
    assert (reply.status_code, reply.headers["content-type"]) == (500, PROBLEM)
    assert reply.json() == {
        "type": "about:blank", "title": "Internal Server Error", "status": 500,
        "detail": f"internal error; the log has it under request_id {identity}",
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
def test_a_store_that_is_gone_is_503_and_no_bug(
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
    assert SECRET not in reply.text + caplog.text
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize("operation", [OPERATIONS[0], *OPEN], ids=names)
def test_a_bug_while_the_answer_is_sent_ends_the_connection_and_sends_no_second_answer(
    server: EmbeddedServer, operation: Operation
) -> None:
    """The server closes the connection: the error reaches it, after one start of an answer."""
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
