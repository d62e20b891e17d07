"""The memory of requests: charged before it is used, bounded for all requests together."""

import asyncio
import contextlib
import json
import select
import socket
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from fastapi.testclient import TestClient
from starlette.types import Message

from app.api.routers import feedback
from app.api.routing import PART, Reply
from app.errors import Overloaded
from app.ingest import appender
from app.storage.batching import Held, MemoryBudget
from tests.api.services import PLAIN, Running, application, serving
from tests.servers import TIMEOUT, server, until
from tests.test_decoded_memory import CLICKS, repeated

__all__ = ["server"]  # a fixture

WIDE = 100_000


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[TestClient]:
    with application(server.url) as made:
        wide = {"features": WIDE, "covariance": "diagonal", "prior": 0}
        assert made.put("/models/wide", json=wide).status_code == 201
        for name in ("books", "repeated"):
            assert made.put(f"/models/{name}", json={"features": 46, **PLAIN}).status_code == 201
        yield made


@pytest.fixture(autouse=True)
def _all_memory_is_freed(client: TestClient) -> Iterator[None]:
    cache = client.app.state.service.weight_cache  # type: ignore[attr-defined]
    until(lambda: cache.reachable)  # a measured test is slow: the check of the store timed out
    yield
    assert held(client) == 0


def held(client: TestClient) -> int:
    return int(client.app.state.service.memory.held)  # type: ignore[attr-defined]


def documents(count: int, features: Any) -> list[dict[str, Any]]:
    return [{"id": f"d{at}", "features": features} for at in range(count)]


def peak_bytes(client: TestClient, path: str, body: Any) -> tuple[Any, int]:
    """Post a body; return the answer and the peak of the memory meanwhile."""
    tracemalloc.start()
    try:
        answer = client.post(path, json=body)
        return answer, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_small_body_for_a_wide_model_is_refused_before_its_rows_are_built(
    client: TestClient,
) -> None:
    body = {"model": "wide", "documents": documents(1000, {})}
    answer, peak = peak_bytes(client, "/rank", body)
    assert answer.status_code == 413
    assert answer.json()["detail"] == (
        "documents: expected at most 4000000 feature values (SOLAR_NUMBERS), documents times "
        "features, got 100000000; send fewer documents"
    )
    assert peak < 10_000_000  # rows of float64 take 800 MB


def test_at_the_limit_of_feature_values_a_request_is_answered(client: TestClient) -> None:
    body = {"model": "wide", "documents": documents(40, {"f7": 1.0}), "log": False}
    answer, peak = peak_bytes(client, "/rank", body)
    assert answer.status_code == 200
    assert len(answer.json()["documents"]) == 40
    assert peak < 60_000_000  # one copy of 4 million float32 takes 16 MB
    body["documents"] = documents(41, {"f7": 1.0})
    assert client.post("/rank", json=body).status_code == 413


def test_rows_of_the_wrong_length_are_422_also_for_a_wide_model(client: TestClient) -> None:
    answer = client.post("/rank", json={"model": "wide", "documents": documents(1000, [1.0])})
    assert (answer.status_code, answer.json()["detail"]) == (
        422, f"documents[0].features: expected {WIDE} values, got 1",
    )  # fmt: skip


def test_a_rollback_holds_the_memory_of_its_state(client: TestClient) -> None:
    """A full covariance of 2,000 features takes 16 MB; 64 rollbacks at once took 2 GB."""
    memory = client.app.state.service.memory  # type: ignore[attr-defined]
    others, before = Held(memory), client.get("/models/wide").json()["seq"]
    others.keep(memory.limit - 1000)
    assert client.post("/models/wide/rollback", json={"version": 0}).status_code == 503
    others.keep(0)
    assert client.get("/models/wide").json()["seq"] == before
    assert client.post("/models/wide/rollback", json={"version": 0}).status_code == 202


def test_long_names_of_features_are_held_for(client: TestClient) -> None:
    """10 MB of names: 24 reads at once took 400 MB, 64 tunings or warm starts 1 GB."""
    names = [f"{at:0>100}" for at in range(10_000)]
    body = {"features": names, "covariance": "diagonal", "prior": 0}
    assert client.put("/models/names", json=body).status_code == 201
    assert client.get("/models/names").status_code == 200
    tracemalloc.start()
    try:
        assert client.patch("/models/names", json={"C": 1.0}).status_code == 202
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # the names are not read
        text = {"content-type": "text/html"}
        assert client.post("/models/names/warm-start", headers=text).status_code == 415
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    memory = client.app.state.service.memory  # type: ignore[attr-defined]
    others = Held(memory)
    others.keep(memory.limit - 3_000_000)
    shown = {"id": "a", "features": {}}
    explained = {"model": "names", "documents": [shown], "explain": True, "log": False}
    assert client.get("/models/names").status_code == 503
    assert client.post("/rank", json=explained).status_code == 503
    others.keep(0)
    assert client.post("/rank", json=explained).status_code == 200


def test_a_large_answer_holds_its_memory_and_is_sent_in_parts() -> None:
    """Twelve clients that read nothing of an answer of 30 MB took 350 MB of a worker."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def answer(budget: MemoryBudget) -> Reply:
        held = Held(budget)
        reply = Reply(send, "id", held)
        headers = [(b"content-length", b"%d" % (3 * PART + 1))]
        with contextlib.suppress(Overloaded):
            await reply({"type": "http.response.start", "status": 200, "headers": headers})
            await reply({"type": "http.response.body", "body": bytes(3 * PART + 1)})
        return reply

    async def run() -> None:
        budget = MemoryBudget(4 * PART)
        assert (await answer(budget)).status == 200
        assert budget.held == 3 * PART + 1
        assert [len(one.get("body", b"")) for one in sent] == [0, PART, PART, PART, 1]
        assert [one["more_body"] for one in sent[1:-1]] == 3 * [True]
        assert (await answer(budget)).status == 0  # the route then answers 503
        assert len(sent) == 5

    asyncio.run(run())


def labels(at: int, count: int) -> dict[str, Any]:
    event = {"type": "labels", "event_id": f"labels-{at}", "labels": {"d0": 1}}
    return {**event, "documents": documents(count, {})}


def test_the_documents_of_a_batch_are_counted_together_and_nothing_is_stored(
    client: TestClient,
) -> None:
    before = client.get("/models/wide").json()["seq"]
    body = {"model": "wide", "events": [labels(at, 3) for at in range(20)]}
    answer, peak = peak_bytes(client, "/feedback", body)
    assert answer.status_code == 413
    assert "got 6000000" in answer.json()["detail"]
    assert peak < 10_000_000
    assert client.get("/models/wide").json()["seq"] == before


def test_clicks_on_large_impressions_are_appended_in_parts_and_none_is_refused(
    client: TestClient,
) -> None:
    """The records of this batch take 73 MB together; 32 MB was the limit of a batch."""
    ids, rows = [f"d{at}" for at in range(1000)], [[0.5] * 46] * 1000
    requests = []
    for _ in range(4):
        ranked = client.post("/rank", json={"model": "books", "ids": ids, "features": rows})
        assert ranked.json()["logged"]
        requests.append(ranked.json()["request_id"])
    click = {"type": "clicks", "clicked": ["d1"]}
    events = [
        {**click, "event_id": f"click-{at}", "request_id": requests[at % 4]} for at in range(400)
    ]
    answer, peak = peak_bytes(client, "/feedback", {"events": events})
    assert (answer.status_code, answer.json()["accepted"]) == (202, 400)
    assert answer.json()["seq"] == client.get("/models/books").json()["seq"] == 400
    assert peak < 60_000_000
    again = client.post("/feedback", json={"events": events}).json()
    assert (again["accepted"], again["duplicates"], again["seq"]) == (0, 400, 400)


def test_a_click_on_a_small_impression_of_a_wide_model_needs_no_memory_of_the_largest_one(
    client: TestClient,
) -> None:
    """The largest impression of this model takes 16 MB: eight clicks at once took all memory."""
    made = client.put("/models/long", json={"features": 4000, "covariance": "diagonal", "prior": 0})
    assert made.status_code == 201
    ranked = client.post("/rank", json={"model": "long", "documents": documents(10, {"f1": 1.0})})
    click = {"type": "clicks", "event_id": "small", "clicked": ["d1"]}
    memory = client.app.state.service.memory  # type: ignore[attr-defined]
    others = Held(memory)
    others.keep(memory.limit - 1_000_000)
    try:
        answer = client.post("/feedback", json={**click, "request_id": ranked.json()["request_id"]})
    finally:
        others.keep(0)
    assert answer.status_code == 202, answer.text


def logged(client: TestClient, count: int) -> str:
    """Rank documents of the model `repeated`; return the request id."""
    body = {"model": "repeated", "documents": documents(count, [0.5] * 46)}
    return str(client.post("/rank", json=body).json()["request_id"])


def test_a_part_whose_records_are_too_large_is_refused_and_the_parts_before_it_count(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feedback, "PART_BYTES", 110_000)
    monkeypatch.setattr(appender, "MOST_BYTES", 150_000)
    request = logged(client, 100)
    clicks: list[dict[str, Any]] = [
        {"type": "clicks", "event_id": f"p-{at}", "request_id": request, "clicked": ["d1"]}
        for at in range(7)
    ]
    pairs = [[f"d{at}", f"d{at + 1}"] for at in range(99)] * 70
    clicks.insert(
        5, {"type": "triplets", "event_id": "q", "request_id": request, "triplets": pairs}
    )
    before = client.get("/models/repeated").json()["seq"]
    answer = client.post("/feedback", json={"events": clicks})
    assert (answer.status_code, answer.json().get("accepted")) == (202, 5), answer.text
    assert [one["index"] for one in answer.json()["errors"]] == [5, 6, 7]
    assert "bytes of records" in answer.json()["errors"][0]["detail"]
    assert client.get("/models/repeated").json()["seq"] == before + 5


def test_the_clicks_that_records_repeat_are_counted_in_their_memory(client: TestClient) -> None:
    """A body of 130 kB took 180 MB: each record carries all earlier clicks on its request."""
    shown = [f"d{at}" for at in range(100)]
    click = {"type": "clicks", "request_id": logged(client, 100), "clicked": shown}
    events = [{**click, "event_id": f"many-{at}"} for at in range(190)]
    answer, peak = peak_bytes(client, "/feedback", {"events": events})
    assert answer.status_code == 202, answer.text
    assert "has reached its feedback limit" in answer.json()["errors"][0]["detail"]
    assert peak < 60_000_000


def test_a_post_that_is_repeated_for_a_new_model_of_the_same_name_holds_its_memory_once(
    client: TestClient,
) -> None:
    wide = {"features": 4000, "covariance": "diagonal", "prior": 0}
    assert client.put("/models/again", json=wide).status_code == 201
    assert client.post("/rank", json={"model": "again", "ids": ["a"], "features": [[0] * 4000]})
    service = client.app.state.service  # type: ignore[attr-defined]
    served = service.weight_cache.serving["again"]
    service.weight_cache.serving["again"] = replace(served, epoch=served.epoch + 1)
    others = Held(service.memory)
    others.keep(service.memory.limit - 7_000_000)  # the documents take 4.8 MB
    try:
        answer = client.post("/feedback", json={"model": "again", **labels(7, 100)})
    finally:
        others.keep(0)
    assert (answer.status_code, answer.json().get("seq")) == (202, 1), answer.text


def test_an_explanation_with_too_many_contributions_is_refused(client: TestClient) -> None:
    binary = {
        "model": "wide", "ids": [f"d{at}" for at in range(11)], "explain": True,
        "features": np.ones((11, WIDE), np.float32).tobytes(),
    }  # fmt: skip
    kind = {"content-type": "application/msgpack"}
    answer = client.post("/rank", content=msgspec.msgpack.encode(binary), headers=kind)
    assert answer.status_code == 413
    assert answer.json()["detail"] == (
        "explain: expected at most 1000000 contributions, got 1100000; lower top_k or send fewer "
        "documents"
    )
    short = msgspec.msgpack.encode({**binary, "top_k": 1})
    explained = client.post("/rank", content=short, headers=kind).json()["documents"]
    assert len(explained) == 1


def test_the_answer_of_a_large_explanation_arrives_whole(client: TestClient) -> None:
    rows = [{"id": f"d{at}", "features": {f"f{k}": 0.5 for k in range(1, 2000)}} for at in range(9)]
    pairs = {"model": "wide", "triplets": [["d1", "d0"]], "event_id": "t", "type": "triplets"}
    assert client.post("/feedback", json={**pairs, "documents": rows}).status_code == 202
    answer = client.post("/rank", json={"model": "wide", "documents": rows, "explain": True})
    assert answer.status_code == 200
    assert all(set(one) >= {"contributions", "stddev"} for one in answer.json()["documents"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rank", repeated(b'{"model":"books","ids":[', b'"a",', b"]}")),
        ("/feedback", repeated(CLICKS, b'"a",', b"]}")),
        ("/models/new", repeated(b'{"features":[', b'"a",', b"]}")),
    ],
    ids=["rank", "feedback", "model"],
)
def test_a_body_whose_values_take_too_much_memory_is_refused(
    client: TestClient, path: str, body: bytes
) -> None:
    method = "PUT" if path.startswith("/models") else "POST"
    answer = client.request(
        method, path, content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413
    assert "SOLAR_INFLIGHT_BYTES times 0.5" in answer.json()["detail"]


# ---- all requests together, on a real service ----


@pytest.fixture(scope="module")
def limited() -> Iterator[Running]:
    with serving("--inflight-bytes", "1MB") as running:
        with running.client() as http:
            assert http.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
        yield running


def rank_body(size: int) -> bytes:
    body = {"model": "books", "documents": documents(2, [1.0, 2.0]), "query_id": ""}
    given = json.dumps(body).encode()
    return given + b" " * (size - len(given))


@contextlib.contextmanager
def occupying(limited: Running, http: httpx.Client, body: bytes) -> Iterator[socket.socket]:
    """Send a body without its last byte, so that it holds memory; yield its connection."""
    port = int(limited.url.rpartition(":")[2])
    head = "POST /rank HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    sent = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:-1]
    with contextlib.ExitStack() as stack:
        slow: list[socket.socket] = []

        def refused() -> bool:
            """Whether another body is refused; else the slow one may have been."""
            if not slow or select.select([slow[-1]], [], [], 0)[0]:
                slow.append(socket.create_connection(("127.0.0.1", port), TIMEOUT))
                stack.enter_context(slow[-1]).sendall(sent)
            return http.post("/rank", content=body).status_code == 503

        until(refused)
        yield slow[-1]


def test_above_the_limit_of_all_requests_a_large_body_is_503_and_a_small_one_served(
    limited: Running,
) -> None:
    body = rank_body(450_000)
    with (
        limited.client(headers={"content-type": "application/json"}) as http,
        occupying(limited, http, body) as slow,
    ):
        refused = http.post("/rank", content=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["detail"] == (
            "too many large requests (SOLAR_INFLIGHT_BYTES); retry after 1 second"
        )
        assert http.post("/rank", content=rank_body(1000)).status_code == 200
        slow.sendall(body[-1:])
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
        assert http.post("/rank", content=body).status_code == 200


def test_a_client_that_leaves_frees_its_memory(limited: Running) -> None:
    body = rank_body(450_000)
    with limited.client(headers={"content-type": "application/json"}) as http:
        for _ in range(3):
            with occupying(limited, http, body):
                pass
            until(lambda: http.post("/rank", content=body).status_code == 200)
