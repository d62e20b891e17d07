"""`rank`: documents of every kind, the fallback, the deadline, and closed connections."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from scripted_server import answers_with, hangs_up, ranks, scripted
from solar_client import (
    AsyncSolar,
    InvalidArgument,
    NotFound,
    Ranking,
    Solar,
    TimedOut,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)

DOCUMENTS = [{"id": "a", "features": [1.0]}, {"id": "b", "features": [2.0]}]
LONG = 20.0  # seconds, for calls that must succeed on a busy machine


def rank(url: str, *, asynchronous: bool, **options: Any) -> Ranking:
    """Rank with either client."""

    async def act() -> Ranking:
        async with AsyncSolar(url) as solar:
            return await solar.rank(DOCUMENTS, **options)

    if asynchronous:
        return asyncio.run(act())
    with Solar(url) as solar:
        return solar.rank(DOCUMENTS, **options)


both = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


# ---- documents ----


@dataclass
class Product:
    id: str
    features: dict[str, Any]
    title: str = ""


@pytest.mark.parametrize(
    "documents",
    [
        [{"id": "a", "features": {"price": 1.5}, "title": "one"}],
        [Product("a", {"price": 1.5}, "one")],
        [Product("a", {"price": np.float32(1.5)})],
        [{"id": "a", "features": {"price": np.float64(1.5)}}],
    ],
)
def test_documents_are_mappings_or_objects_of_which_only_id_and_features_are_sent(
    documents: list[Any],
) -> None:
    with scripted(ranks) as server, Solar(server.url, model="books") as solar:
        ranking = solar.rank(documents, top_k=1, timeout=LONG)
    assert ranking.ids == ["a"]
    assert json.loads(server.bodies[0]) == {
        "model": "books", "top_k": 1, "documents": [{"id": "a", "features": {"price": 1.5}}],
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["f8", "f4", ">f4", "i8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_numpy_matrix_is_sent_as_rows_of_float32(dtype: str, order: Any) -> None:
    matrix = np.array([[1, 2, 3], [4, 5, 6]], dtype=dtype, order=order)
    with scripted(answers_with(503)) as server, Solar(server.url) as solar:
        solar.rank(["a", "b"], matrix, query_id="q", timeout=LONG)
    assert "content-type: application/msgpack" in server.heads[0]
    sent = msgspec.msgpack.decode(server.bodies[0])
    assert np.frombuffer(sent["features"], "<f4").tolist() == [1, 2, 3, 4, 5, 6]
    assert (sent["ids"], sent["query_id"]) == (["a", "b"], "q")


@pytest.mark.parametrize(
    ("documents", "features", "message"),
    [
        ([{"id": "a"}], None, r"documents\[0\]: expected id and features"),
        (["a"], None, r"documents\[0\]: expected id and features"),
        ([{"id": "a", "features": object()}], None, "documents: expected numbers"),
        (["a"], np.ones((2, 3)), "features: expected a matrix with one row for each of 1 ids"),
        (["a"], np.ones(3), r"got the shape \(3,\)"),
    ],
)
def test_wrong_documents_are_refused_before_anything_is_sent(
    documents: Any, features: Any, message: str
) -> None:
    with Solar("http://127.0.0.1:9") as solar, pytest.raises(InvalidArgument, match=message):
        solar.rank(documents, features)


# ---- fallback ----


@both
@pytest.mark.parametrize(
    ("script", "error"),
    [
        (answers_with(503, b'{"detail": "store"}'), Unavailable),
        (answers_with(500), Unavailable),
        (answers_with(502, b"<html>"), Unavailable),
        (hangs_up, Unreachable),
        (answers_with(200, b"<html>"), UnexpectedAnswer),
        (answers_with(302, Location="/login"), UnexpectedAnswer),
    ],
)
def test_without_an_answer_the_ranking_is_the_submitted_order(
    script: Any, error: type[Exception], asynchronous: bool
) -> None:
    with scripted(script) as server:
        ranking = rank(server.url, asynchronous=asynchronous, top_k=1, timeout=LONG)
        assert (ranking.ids, ranking.degraded, ranking.request_id) == (["a"], True, None)
        assert ranking.reason
        assert len(server.bodies) == 1  # /rank is not retried
        with pytest.raises(error):
            rank(server.url, asynchronous=asynchronous, timeout=LONG, fallback=False)


@both
def test_an_unreachable_service_gives_the_submitted_order(asynchronous: bool) -> None:
    ranking = rank("http://127.0.0.1:9", asynchronous=asynchronous, timeout=LONG)
    assert (ranking.ids, ranking.degraded) == (["a", "b"], True)
    with pytest.raises(Unreachable):
        rank("http://127.0.0.1:9", asynchronous=asynchronous, timeout=LONG, fallback=False)


@both
def test_a_refusal_is_raised_with_its_details(asynchronous: bool) -> None:
    body = b'{"title": "Not Found", "status": 404, "detail": "model: no model of this name"}'
    with scripted(answers_with(404, body)) as server, pytest.raises(NotFound) as raised:
        rank(server.url, asynchronous=asynchronous, timeout=LONG)
    assert (raised.value.status, raised.value.title) == (404, "Not Found")
    assert str(raised.value) == "the service answered 404: model: no model of this name"


def test_clicks_on_a_degraded_ranking_are_ignored_and_counted() -> None:
    with Solar("http://127.0.0.1:9") as solar:
        ranking = solar.rank(DOCUMENTS)
        assert solar.click(ranking, "a") is None
        assert solar.click(ranking.request_id, "a") is None
        assert solar.click("", "a") is None
        found = solar.counters
    assert (found.ignored, found.queued, found.degraded) == (3, 0, 1)


def test_a_ranking_that_was_not_logged_has_no_request_id() -> None:
    def not_logged(handler: Any) -> None:
        body = {
            "request_id": "m.x", "query_id": "", "model": "m", "version": 3, "explored": False,
            "logged": False, "degraded": True, "documents": [],
        }  # fmt: skip
        handler.answer(200, json.dumps(body).encode())

    with scripted(not_logged) as server, Solar(server.url) as solar:
        ranking = solar.rank(DOCUMENTS, timeout=LONG)
    assert (ranking.request_id, ranking.degraded, ranking.version) == (None, True, 3)


# ---- the deadline ----


@contextmanager
def dripping(head: bytes, drop: bytes, pause: float = 0.02) -> Iterator[str]:
    """A server that answers each request with a head, and then with a drop now and then."""
    listener, done = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            try:
                connection.sendall(head)
                while not done.wait(pause):
                    connection.sendall(drop)
            except OSError:
                pass

    def listen() -> None:
        while not done.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"


@both
@pytest.mark.parametrize(
    ("head", "drop"),
    [(b"", b""), (b"", b"H"), (b"HTTP/1.1 200 OK\r\nx: ", b"x"), (HEAD, b" ")],
    ids=["silence", "status", "header", "body"],
)
def test_the_timeout_bounds_the_whole_call(head: bytes, drop: bytes, asynchronous: bool) -> None:
    with dripping(head, drop) as url:
        began = time.monotonic()
        with pytest.raises(TimedOut):
            rank(url, asynchronous=asynchronous, timeout=0.2, fallback=False)
        took = time.monotonic() - began
    assert 0.2 <= took < 1.5  # 0.2 on a quiet machine; without a deadline it never ends


def test_a_name_server_that_does_not_answer_does_not_stop_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, release = list[str](), threading.Event()

    def getaddrinfo(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        release.wait(LONG)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with Solar("http://ranking.invalid") as solar:
        began = time.monotonic()
        for _ in range(3):
            assert solar.rank(DOCUMENTS, timeout=0.05).degraded
        assert time.monotonic() - began < 1.5
        assert asked == ["ranking.invalid"]  # one lookup at a time
        release.set()


# ---- closed connections ----


def answers_then_closes(handler: Any) -> None:
    """Answer, and close the connection only when the next request has arrived."""
    ranks(handler)
    handler.rfile.readline()
    handler.close_connection = True


@both
def test_a_call_on_a_closed_kept_connection_is_sent_again_once(asynchronous: bool) -> None:
    async def act(url: str) -> list[Ranking]:
        async with AsyncSolar(url) as solar:
            return [await solar.rank(DOCUMENTS, timeout=LONG) for _ in range(2)]

    with scripted(answers_then_closes, ranks) as server:
        if asynchronous:
            found = asyncio.run(act(server.url))
        else:
            with Solar(server.url) as solar:
                found = [solar.rank(DOCUMENTS, timeout=LONG) for _ in range(2)]
    assert [one.ids for one in found] == [["b", "a"]] * 2
    assert (server.connections, len(server.bodies)) == (2, 2)


def test_a_second_closed_connection_is_not_retried() -> None:
    with scripted(answers_then_closes, hangs_up) as server, Solar(server.url) as solar:
        assert not solar.rank(DOCUMENTS, timeout=LONG).degraded
        assert solar.rank(DOCUMENTS, timeout=LONG).degraded
    assert server.connections == 2


def test_a_change_of_a_model_is_not_sent_again() -> None:
    with scripted(answers_then_closes, answers_with(202, b'{"seq": 1}')) as server:
        with Solar(server.url) as solar:
            solar.rank(DOCUMENTS, timeout=LONG)
            with pytest.raises(Unreachable):
                solar.rollback("m", 0)
        assert server.connections == 1
