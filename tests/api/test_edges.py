"""Small things that must not stop the service: odd bodies, odd names, odd servers, full disks."""

import asyncio
import contextlib
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from app.config import Settings
from app.main import create_app
from tests.api.services import application, serving
from tests.servers import PATIENCE, server, until

__all__ = ["server"]  # a fixture

MEGABYTES = 9_000_000
WARM_START = "/models/books/warm-start"
HEADERS = {"content-type": "application/json"}
SECONDS = 0.4  # of CPU, client and all; Python objects of these bodies took 1.2 s and more


@pytest.fixture(scope="module")
def client(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with application(server.url, data_dir=tmp_path_factory.mktemp("data")) as made:
        made.put("/models/books", json={"features": ["bm25", "price"], "prior": 0})
        yield made


def repeated(start: bytes, part: bytes, end: bytes) -> bytes:
    return start + part * (MEGABYTES // len(part)) + end


LARGE = {
    "lists in a list": ("PUT", "/models/new", repeated(b'{"features":[', b"[],", b"[]]}")),
    "numbers as names": ("PUT", "/models/new", repeated(b'{"features":[', b"1.5,", b"1]}")),
    "too many names": ("PUT", "/models/new", repeated(b'{"features":[', b'"a",', b'"a"]}')),
    "unknown fields": ("PUT", "/models/new", repeated(b"{", b'"k":1,', b'"k":1}')),
    "lists as C": ("POST", "/models/books/warm-start", repeated(b'{"C":[', b"[],", b"[]]}")),
    "unknown options": ("POST", "/models/books/warm-start", repeated(b"{", b'"k":[],', b'"k":1}')),
}


@pytest.mark.parametrize("case", LARGE)
def test_a_large_body_that_cannot_be_is_refused_before_it_is_built(
    client: TestClient, case: str
) -> None:
    method, path, body = LARGE[case]
    took = []
    for _ in range(3):
        began = time.process_time()
        reply = client.request(method, path, content=body, headers=HEADERS)
        took.append(time.process_time() - began)
        assert (reply.status_code, len(reply.content) < 2000) == (422, True)
    assert min(took) < SECONDS


NAMES = ["a` - at `$." + 2000 * "\x01", 64 * "\\", 64 * '"', "x` - at `$.documents`", 500 * "é"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("events", [1, 40])
def test_an_answer_stays_small_whatever_an_unknown_field_is_called(
    client: TestClient, name: str, events: int
) -> None:
    event = {"event_id": "e", "type": "clicks", "request_id": "r", "clicked": [], name: 1}
    for path, body in (
        ("/rank", {"model": "books", "documents": [], name: 1}),
        ("/feedback", event),
        ("/feedback", {"events": events * [event]}),
        ("/models/new", {"features": 2, name: 1}),
    ):
        method = "PUT" if path.startswith("/models") else "POST"
        reply = client.request(method, path, json=body)
        assert reply.status_code == 422
        assert len(reply.content) < 2000
        assert b"\\u0001" not in reply.content


def test_a_name_with_a_backtick_is_repeated_as_a_whole(client: TestClient) -> None:
    said = client.post("/rank", json={"model": "books", "do`cs": []}).json()["detail"]
    assert said.startswith('unknown field "docs"; expected documents, ids')


SERVERS = [
    (("10.0.0.7", 80), 403), (("solar.example.com", 80), 403), (("0.0.0.0", 80), 403),  # noqa: S104
    (("::", 80), 403), (None, 403), (("127.0.0.1", 80), 200), (("::1", 80), 200),
    (("::ffff:127.0.0.1", 80), 200), (("localhost", 80), 200), (("testserver", 80), 200),
    (("/run/solar.sock", None), 200),
]  # fmt: skip


@pytest.mark.parametrize(("address", "status"), SERVERS, ids=str)
def test_without_keys_only_what_is_known_to_be_local_is_answered(
    client: TestClient, address: tuple[str, int | None] | None, status: int
) -> None:
    """By `scope["server"]`, which a server behind the test client rewrites here."""
    original = client.app

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        await original({**scope, "server": address}, receive, send)

    assert TestClient(elsewhere).get("/healthz").status_code == status


def test_a_websocket_is_closed(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/rank"):
        pass


def test_without_its_lifespan_an_application_says_so() -> None:
    bare = TestClient(create_app(Settings(redis_url="redis://localhost:1")))
    for path in ("/models", "/nowhere"):
        with pytest.raises(RuntimeError, match="with TestClient"):
            bare.get(path)


def test_the_document_names_the_path_below_which_it_is_served(client: TestClient) -> None:
    assert "servers" not in client.get("/openapi.json").json()
    below = TestClient(client.app, root_path="/solar")
    assert below.get("/solar/openapi.json").json()["servers"] == [{"url": "/solar"}]


def test_labels_of_documents_without_any_model_are_not_told_of_request_ids(
    client: TestClient,
) -> None:
    documents = [{"id": one, "features": [1, 2]} for one in "ab"]
    event = {"event_id": "e", "type": "labels", "labels": {"a": 1}, "documents": documents}
    said = client.post("/feedback", json=event)
    assert (said.status_code, "no model" in said.json()["detail"]) == (404, True)


def test_the_default_model_named_beside_events_changes_nothing_of_them(server: Any) -> None:
    documents = [{"id": one, "features": [1, 2]} for one in "ab"]
    event = {"event_id": "d1", "type": "labels", "labels": {"a": 1}, "documents": documents}
    with application(server.url, default_features="2") as client:
        first = client.post("/feedback", json=event).json()
        again = client.post("/feedback", json={"model": "default", "events": [event]}).json()
        client.delete("/models/default")
    assert (first["accepted"], again["duplicates"], again["seq"]) == (1, 1, first["seq"])


DOCUMENT, LINES = b'{"label":1,"features":[1,2]}', b"1 qid:1 1:1 2:2\n0 qid:1 1:0 2:1\n"
#: Bodies that take more than a megabyte as files.
JUDGED = {
    "application/json": b'{"C":1,"queries":[{"documents":['
    + b",".join(150_000 * [DOCUMENT])
    + b"]}]}",
    "text/plain": 50_000 * LINES,
}


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """No file of this process can grow beyond a megabyte, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("media_type", JUDGED)
@pytest.mark.parametrize("where", ["a full disk", "a path that is a file"])
@pytest.mark.usefixtures("client")  # which makes the model
def test_an_upload_that_cannot_be_kept_is_to_be_tried_again(
    server: Any, tmp_path: Path, media_type: str, where: str
) -> None:
    kept = tmp_path / "uploads"
    if where != "a full disk":
        kept.touch()
    with application(server.url, upload_dir=str(kept)) as client, small_files():
        reply = client.post(
            WARM_START + ("?C=1" if media_type == "text/plain" else ""),
            content=JUDGED[media_type],
            headers={"content-type": media_type},
        )
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1"), reply.text
    assert "disk" in reply.json()["detail"]
    assert where != "a full disk" or list(kept.iterdir()) == []


def test_a_click_that_comes_before_its_list_is_written_is_to_be_tried_again(server: Any) -> None:
    """The recall finds nothing, the append finds a list: it was written in between."""

    async def run() -> None:
        app = create_app(Settings(learner=False, remember_seconds=20.0), server.url)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as caller,
        ):
            await caller.put("/models/racing", json={"features": 2})
            documents = [{"id": one, "features": [1, 2]} for one in "ab"]
            statuses = set()
            for at in range(200):
                request = {"model": "racing", "request_id": f"q{at}"}
                click = {**request, "event_id": f"e{at}", "type": "clicks", "clicked": ["a"]}
                ranked, clicked = await asyncio.gather(
                    caller.post("/rank", json={**request, "documents": documents}),
                    caller.post("/feedback", json=click),
                )
                assert ranked.status_code == 200
                statuses.add(clicked.status_code)
                again = await caller.post("/feedback", json=click)
                assert (again.status_code, again.json()["seq"]) == (202, at + 1)
            assert statuses <= {202, 404, 503}
            await caller.delete("/models/racing")

    asyncio.run(run())


def test_a_request_that_outlasts_the_drain_is_to_be_tried_again(tmp_path: Path) -> None:
    with serving("--no-learner", data=tmp_path) as service, service.client() as caller:
        caller.put("/models/books", json={"features": 2})
        ranked = caller.post("/rank", json={"model": "books", "documents": [
            {"id": one, "features": [1, 2]} for one in "ab"]}).json()  # fmt: skip
        click = {
            "event_id": "e", "type": "clicks", "clicked": ["a"],
            "request_id": ranked["request_id"],
        }  # fmt: skip
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(
                caller.post, "/feedback", json=click, headers={"prefer": "wait=60"}
            )
            with service.client() as other:
                until(lambda: other.get("/models/books").json()["seq"] == 1)
            assert service.stop() == 0
            reply = waiting.result(PATIENCE)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert reply.headers["content-type"] == "application/problem+json"
        assert "Traceback" not in service.logged()
