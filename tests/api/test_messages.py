"""Messages of problems: the field, a suggestion, the remedy; names but never values."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest
import redis
from fastapi.testclient import TestClient

from app.storage.embedded.server import EmbeddedServer
from tests.api.services import PLAIN, application
from tests.servers import server

__all__ = ["server"]  # a fixture
MAX_ANSWER_BYTES = 2000
VALUE = "qzVALUEzq"
MODEL_REQUIRED = "model: required with your own request_id"
UUID7 = "01970000-0000-7000-8000-000000000000"
numbers = count()


def fresh(what: str) -> str:
    return f"{what}-{next(numbers)}"


@pytest.fixture(scope="module")
def client(server: EmbeddedServer) -> Iterator[TestClient]:
    with application(server.url) as made:
        for name in ("books", "films"):
            body = {**PLAIN, "features": ["bm25", "price"]}
            assert made.put(f"/models/{name}", json=body).status_code == 201
        yield made


@pytest.fixture
def store(server: EmbeddedServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as found:
        yield found


def stored(store: Any) -> dict[bytes, Any]:
    """Return everything in the store but a count; a hash by its fields, whose order may differ."""
    names = sorted(name for name in store.keys("*") if name != b"solar:kept")
    hashes = {name for name in names if store.type(name) == b"hash"}
    return {name: store.hgetall(name) if name in hashes else store.dump(name) for name in names}


def refused(reply: Any, status: int = 422) -> str:
    """Check that an answer is a problem with this status; return its detail."""
    assert (reply.status_code, reply.headers["content-type"]) == (
        status,
        "application/problem+json",
    ), reply.text
    assert len(reply.content) <= MAX_ANSWER_BYTES
    assert VALUE not in reply.text
    problem = reply.json()
    assert problem["status"] == status
    return str(problem["detail"])


# ---- unknown and missing fields ----

DOCUMENTS = [{"id": str(at), "features": {"bm25": 1}} for at in range(3)]
RANK_FIELDS = (
    "documents, ids, features, model, query_id, request_id, top_k, explore, pinned, explain, …"
)
EVENT = {"event_id": "e", "model": "books", "type": "labels", "labels": {}, "documents": DOCUMENTS}
JUDGED = [{"label": 1, "features": [1, 2]}]
CASES: list[tuple[str, str, Any, str]] = [
    ("POST", "/rank",
     {"model": "books", "documents": [*DOCUMENTS, {"id": VALUE, "features": {"prise": 7.25}}]},
     'documents[3].features: unknown feature "prise"; did you mean "price"?'),
    ("POST", "/rank", {"model": "books", "documents": [{"id": VALUE, "features": {"colour": 7}}]},
     'documents[0].features: unknown feature "colour"; expected bm25, price'),
    ("POST", "/rank", {"docs": [VALUE]}, f'unknown field "docs"; expected {RANK_FIELDS}'),
    ("POST", "/rank", {"document": [VALUE]}, 'unknown field "document"; did you mean "documents"?'),
    ("POST", "/rank", {"documents": [{"id": VALUE, "feature": [1]}]},
     'documents[0]: unknown field "feature"; did you mean "features"?'),
    ("POST", "/rank", {"documents": [{"features": [1]}]}, "documents[0]: missing field id"),
    ("POST", "/rank", {"model": "books", "documents": [{"id": "a", "features": [1, VALUE]}]},
     "documents[0].features[1]: expected float, got str"),
    ("POST", "/feedback", {**EVENT, "lables": VALUE},
     'unknown field "lables"; did you mean "labels"?'),
    ("POST", "/feedback", {**EVENT, "type": VALUE}, "type: expected clicks, triplets, labels"),
    ("POST", "/feedback", {**EVENT, "documents": [{"id": "a", "features": {"prise": 1}}]},
     'documents[0].features: unknown feature "prise"; did you mean "price"?'),
    ("POST", "/feedback", {"events": [EVENT], "modell": VALUE},
     'unknown field "modell"; did you mean "model"?'),
    ("PUT", "/models/new", {"feature": [VALUE]},
     'unknown field "feature"; did you mean "features"?'),
    ("PUT", "/models/new", {"algorithm": "solar-i"}, "features: required"),
    ("PUT", "/models/new", {"features": 2, "gamma": VALUE}, "gamma: expected a valid number"),
    ("PUT", "/models/new", {"features": 2, "gamma": "1"}, "gamma: expected a valid number"),
    ("PUT", "/models/new", {"features": 2, "gamma": True}, "gamma: expected a valid number"),
    ("PUT", "/models/new", '{"features": 2, "gamma": 1e400}', "gamma: number out of range"),
    ("PUT", "/models/new", {"features": ["a", 3]}, "features[1]: expected str, got int"),
    ("PATCH", "/models/books", {"gama": 77}, 'unknown field "gama"; did you mean "gamma"?'),
    ("POST", "/models/books/rollback", {"versoin": 77},
     'unknown field "versoin"; did you mean "version"?'),
    ("POST", "/models/books/warm-start", {"queries": [{"documents": JUDGED}], "los": VALUE},
     'unknown field "los"; did you mean "loss"?'),
    ("POST", "/models/books/warm-start", {"queries": [{"document": JUDGED}]},
     'queries[0]: unknown field "document"; did you mean "documents"?'),
    ("POST", "/models/books/warm-start",
     {"queries": [{"documents": [*JUDGED, {"label": 0, "features": {"prise": 1}}]}]},
     'queries[0].documents[1].features: unknown feature "prise"; did you mean "price"?'),
    ("POST", "/models/books/warm-start", {"C": 1}, "queries: required"),
    ("POST", "/models/books/warm-start", [VALUE], "expected object, got array"),
    ("POST", "/models/books/warm-start", '{"queries": [], "C": 1e400}',
     "C: number out of range"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "detail"), CASES, ids=[one[3][:60] for one in CASES]
)
def test_a_message_names_the_field_and_the_remedy(
    client: TestClient, method: str, path: str, body: Any, detail: str
) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    headers = {"content-type": "application/json"}
    assert refused(client.request(method, path, content=text, headers=headers)) == detail


def test_a_message_about_msgpack_suggests_the_field(client: TestClient) -> None:
    body = msgspec.msgpack.encode({"model": "books", "id": [VALUE], "features": b""})
    headers = {"content-type": "application/msgpack"}
    detail = refused(client.post("/rank", content=body, headers=headers))
    assert detail == 'unknown field "id"; did you mean "ids"?'


def test_each_event_of_a_batch_gets_its_own_message(client: TestClient) -> None:
    reply = client.post(
        "/feedback", json={"events": [{**EVENT, "lables": VALUE}, {**EVENT, "labels": 1}]}
    )
    refused(reply)
    assert [one["detail"] for one in reply.json()["errors"]] == [
        'unknown field "lables"; did you mean "labels"?', "labels: expected object, got int",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["x" * 10_000, "\U0001f4da" * 300, "\x07\u202e\n\"'\\" * 30])
@pytest.mark.parametrize("where", ["field", "feature"])
def test_a_message_repeats_64_printable_characters_of_a_name(
    client: TestClient, name: str, where: str
) -> None:
    document: Any = {"id": "a", "features": {name: 1}} if where == "feature" else {name: 1}
    detail = refused(client.post("/rank", json={"model": "books", "documents": [document]}))
    start = detail.index(f"unknown {where} ") + len(f"unknown {where} ")
    repeated = detail[start : detail.index("; ", start)]
    assert len(repeated) == 67  # with quotes and …
    assert repeated.isprintable()


def test_a_message_about_many_long_feature_names_stays_below_two_kilobytes(
    client: TestClient,
) -> None:
    names = [f"{at:04d}" + "\U0001f4da" * 120 for at in range(1500)]
    assert (
        client.put("/models/wide", json={"features": names, "covariance": "diagonal"}).status_code
        == 201
    )
    body = {"model": "wide", "documents": [{"id": "a", "features": {"price": 1}}]}
    detail = refused(client.post("/rank", json=body))
    assert detail.startswith('documents[0].features: unknown feature "price"; expected "0000')
    assert len(detail) <= 400


# ---- your own request_id ----


def rank(client: TestClient, model: str = "books", **more: Any) -> Any:
    body = {"model": model, "documents": [{"id": "a", "features": [1, 2]}], **more}
    return client.post("/rank", json=body)


def clicks(request_id: str, **more: Any) -> dict[str, Any]:
    return {"event_id": fresh("e"), "type": "clicks", "request_id": request_id, "clicked": ["a"],
            **more}  # fmt: skip


def ranked(client: TestClient, model: str = "books", **more: Any) -> str:
    reply = rank(client, model, **more)
    assert reply.json()["logged"]
    return str(reply.json()["request_id"])


def own_request_id(client: TestClient) -> str:
    return ranked(client, request_id=fresh("page"))


@pytest.mark.parametrize("default", [False, True], ids=["no default model", "a default model"])
def test_your_own_request_id_without_the_model_is_404_and_the_message_says_so(
    client: TestClient, store: Any, default: bool
) -> None:
    if default:
        assert client.put("/models/default", json={"features": 2}).status_code == 201
    try:
        request = own_request_id(client)
        before = stored(store)
        assert refused(client.post("/feedback", json=clicks(request)), 404) == MODEL_REQUIRED
        reply = client.post("/feedback", json={"events": [clicks(request)]})
        if default:
            refused(reply)
            assert [one["detail"] for one in reply.json()["errors"]] == [MODEL_REQUIRED]
        else:
            assert refused(reply, 404) == MODEL_REQUIRED
        assert stored(store) == before
        assert client.post("/feedback", json=clicks(request, model="books")).status_code == 202
    finally:
        client.delete("/models/default")


def test_an_unknown_request_id_gets_a_message_about_the_request_id(client: TestClient) -> None:
    for event in (clicks("unknown", model="books"), clicks(f"books.{UUID7[:-1]}1")):
        detail = refused(client.post("/feedback", json=event), 404 if "model" in event else 410)
        assert detail.startswith("request_id: ")
    detail = refused(client.post("/feedback", json=clicks(VALUE, model="unknown")), 404)
    assert detail == "model: no model of this name; create it with PUT /models/{name}"


def test_the_model_of_a_batch_applies_to_all_its_events(client: TestClient) -> None:
    events = [
        clicks(own_request_id(client)),
        clicks(own_request_id(client), model="books"),
        clicks(ranked(client)),
    ]
    reply = client.post("/feedback", json={"model": "books", "events": events})
    assert (reply.status_code, reply.json()["accepted"]) == (202, 3)


def test_a_batch_with_an_event_of_another_model_is_refused_whole(
    client: TestClient, store: Any
) -> None:
    request, generated = own_request_id(client), ranked(client, "films")
    before = stored(store)
    for other in (
        clicks(request, model="films"),
        clicks(generated),
        clicks(generated, model="films"),
    ):
        for events in ([other], [clicks(request), other], [other, clicks(request)]):
            reply = client.post("/feedback", json={"model": "books", "events": events})
            assert "model" in refused(reply)
    assert stored(store) == before


FORMS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "bare": lambda event: event,
    "with its model": lambda event: {**event, "model": "books"},
    "in a post": lambda event: {"events": [event]},
    "in a post with its model": lambda event: {"events": [{**event, "model": "books"}]},
    "in a post with the model": lambda event: {"events": [event], "model": "books"},
    "in a post with both": lambda event: {"events": [{**event, "model": "books"}],
                                          "model": "books"},
}  # fmt: skip
NAMED = [form for form in FORMS if form not in ("bare", "in a post")]


#: Forms in which the event names no model; a generated request_id names it.
UNNAMED = ["bare", "in a post", "in a post with the model"]


@pytest.mark.parametrize(
    ("first", "second", "generated"),
    [(a, b, False) for a in NAMED for b in NAMED]
    + [(a, b, True) for a in UNNAMED for b in UNNAMED],
)
def test_an_event_repeated_in_another_form_is_a_duplicate(
    client: TestClient, store: Any, first: str, second: str, generated: bool
) -> None:
    """An event's digest covers whether it names its model; digests must outlive an upgrade."""
    event = clicks(ranked(client) if generated else own_request_id(client))
    posted = client.post("/feedback", json=FORMS[first](event)).json()
    assert posted["accepted"] == 1
    tail = store.get("solar:{books}:seq")
    again = client.post("/feedback", json=FORMS[second](event)).json()
    assert (again.get("duplicates"), again.get("seq")) == (1, posted["seq"]), again
    assert store.get("solar:{books}:seq") == tail


# ---- a request_id in the form of another model's ----


def test_rank_refuses_a_request_id_in_the_form_of_another_models(
    client: TestClient, store: Any
) -> None:
    before = stored(store)
    for other in ("other", "films", "Books", "b-o_oks"):
        detail = refused(rank(client, request_id=f"{other}.{UUID7}"))
        assert detail == "request_id: has the form of another model's id; choose a different id"
    assert stored(store) == before


@pytest.mark.parametrize(
    "request_id", [f"books.{UUID7}", "other.page-1", UUID7, f"other.{UUID7[:-1]}", f"a.b.{UUID7}"]
)
def test_rank_accepts_any_other_request_id(client: TestClient, request_id: str) -> None:
    reply = rank(client, request_id=request_id)
    assert (reply.status_code, reply.json()["request_id"]) == (200, request_id)
