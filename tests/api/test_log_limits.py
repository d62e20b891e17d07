"""Clients cannot fill the log: refused and invalid requests cause few lines, others are counted."""

import asyncio
import json
import logging
import socket
from collections import Counter
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app.api.auth import new_key
from app.errors import Unavailable
from app.observability.logging import MOST_LINES_OF_A_KIND, LineLimit, limited_server_lines
from app.storage.embedded.server import EmbeddedServer
from tests.api.services import Running, application, serving
from tests.servers import TIMEOUT, server, until

__all__ = ["server"]  # fixture

REQUESTS = 2 * MOST_LINES_OF_A_KIND + 5
GARBAGE = b"\x16\x03\x01 this is no HTTP\r\n\r\n"
UPGRADE = (
    b"GET /models HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
)


def answered(url: httpx.URL, junk: bytes) -> bool:
    """Send bytes on a new connection; return whether an answer came."""
    with socket.create_connection((url.host, url.port or 80), timeout=TIMEOUT) as connection:
        connection.sendall(junk)
        return connection.recv(1024).startswith(b"HTTP/1.1 4")


def lines(running: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in running.logged().splitlines()]


def test_junk_and_refused_requests_cause_at_most_ten_lines_of_a_kind() -> None:
    _, entry = new_key("web", "rank")
    with serving("--no-learner", environ={"SOLAR_KEYS": entry}) as running:
        before = len(lines(running))
        url = httpx.URL(running.url)
        for _ in range(REQUESTS):
            assert answered(url, GARBAGE)
            assert answered(url, UPGRADE)
        with running.client() as http:
            for _ in range(REQUESTS):
                assert http.post("/rank", json={}).status_code == 401
            assert http.post("/feedback", json={}).status_code == 401  # another kind
        assert running.stop() == 0
        found = Counter(
            (line["message"], line.get("route"), line.get("status"))
            for line in lines(running)[before:]
        )
    assert found["request", "/rank", 401] == MOST_LINES_OF_A_KIND
    assert found["request", "/feedback", 401] == 1
    assert (
        found["request", "/models", 401] == MOST_LINES_OF_A_KIND
    )  # of the upgrades, and no other line
    assert max(found.values()) <= MOST_LINES_OF_A_KIND
    assert sum(found.values()) <= 3 * MOST_LINES_OF_A_KIND + 1  # these and the garbage


def request_lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.name == "solar.api"]


def test_an_access_log_has_a_line_for_every_request(
    server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    _, entry = new_key("web", "rank")
    caplog.set_level(logging.INFO, "solar.api")
    with application(server.url, keys=entry, access_log=True) as client:
        for _ in range(REQUESTS):
            assert client.get("/models").status_code == 401
    assert len(request_lines(caplog)) == REQUESTS


def test_a_request_that_the_store_fails_causes_one_line_with_its_cause(
    server: EmbeddedServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: object, **__: object) -> None:
        raise Unavailable("secret")

    caplog.set_level(logging.INFO, "solar.api")
    with application(server.url) as client:
        assert client.put("/models/books", json={"features": 2}).status_code == 201
        plant(client, monkeypatch, unreachable)
        assert client.get("/models/books").status_code == 503
    [line] = request_lines(caplog)
    assert (line.levelname, line.getMessage()) == ("WARNING", "request")
    assert vars(line)["cause"].startswith("Unavailable at test_log_limits.py:")
    assert "secret" not in caplog.text


def plant(client: TestClient, monkeypatch: pytest.MonkeyPatch, method: Any) -> None:
    app: Any = client.app
    monkeypatch.setattr(type(app.state.service.store.states), "load", method)


def test_the_suppressed_lines_of_a_kind_are_counted_in_one_line_at_the_end_of_the_window(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "solar.test")

    async def flood() -> list[int]:
        limit = LineLimit(logging.getLogger("solar.test"), seconds=0.05)
        admitted = []
        for lines_ in (REQUESTS, 1):
            now = [limit.admits("kind", logging.INFO, "request", {"status": 401})
                   for _ in range(lines_)]  # fmt: skip
            admitted.append(sum(now))
            assert limit.admits("other", logging.INFO, "request", {})
            while not caplog.records:
                await asyncio.sleep(0.005)
        return admitted

    assert asyncio.run(asyncio.wait_for(flood(), TIMEOUT)) == [MOST_LINES_OF_A_KIND, 1]
    [line] = caplog.records
    more = REQUESTS - MOST_LINES_OF_A_KIND
    assert line.getMessage() == f"request: {more} more lines of this kind within 0.05 s"
    assert (vars(line)["suppressed"], vars(line)["status"]) == (more, 401)


def test_the_limit_on_lines_of_the_server_ends_with_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("uvicorn.error")
    with limited_server_lines():
        for _ in range(REQUESTS):
            logger.warning("Invalid HTTP request received.")
            logger.warning("Unsupported upgrade request.")
    assert len(caplog.records) == MOST_LINES_OF_A_KIND
    assert logger.filters == []
    logger.warning("Invalid HTTP request received.")
    until(lambda: len(caplog.records) == MOST_LINES_OF_A_KIND + 1)
