"""What answers say: which field, what was probably meant, what is missing; names, never values."""

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
LARGEST_ANSWER = 2000  # bytes
VALUE = "qzVALUEzq"
MODEL_REQUIRED = "model: required with a request_id of your own"
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


def kept(store: Any) -> dict[bytes, Any]:
    """All that is stored; a hash by its fields, which a server may keep in any order."""
    names = sorted(store.keys("*"))
    hashes = {name for name in names if store.type(name) == b"hash"}
    return {name: store.hgetall(name) if name in hashes else store.dump(name) for name in names}


def refused(reply: Any, status: int = 422) -> str:
    """The detail of a refusal that is one as it should be."""
    assert (reply.status_code, reply.headers["content-type"]) == (
        status,
        "application/problem+json",
    ), reply.text
    assert len(reply.content) <= LARGEST_ANSWER
    assert VALUE not in reply.text
    said = reply.json()
    assert said["status"] == status
    return str(said["detail"])


# ---- what was probably meant ----

DOCUMENTS = [{"id": str(at), "features": {"bm25": 1}} for at in range(3)]
RANK_FIELDS = (
    "documents, ids, features, model, query_id, request_id, top_k, explore, pinned, explain, …"
)
EVENT = {"event_id": "e", "model": "books", "type": "labels", "labels": {}, "documents": DOCUMENTS}
JUDGED = [{"label": 1, "features": [1, 2]}]
SAID: list[tuple[str, str, Any, str]] = [
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
    ("method", "path", "body", "said"), SAID, ids=[one[3][:60] for one in SAID]
)
def test_an_answer_names_the_field_and_the_remedy(
    client: TestClient, method: str, path: str, body: Any, said: str
) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    headers = {"content-type": "application/json"}
    assert refused(client.request(method, path, content=text, headers=headers)) == said


def test_so_it_is_in_msgpack(client: TestClient) -> None:
    body = msgspec.msgpack.encode({"model": "books", "id": [VALUE], "features": b""})
    headers = {"content-type": "application/msgpack"}
    said = refused(client.post("/rank", content=body, headers=headers))
    assert said == 'unknown field "id"; did you mean "ids"?'


def test_the_events_of_a_post_are_told_the_same_each(client: TestClient) -> None:
    reply = client.post(
        "/feedback", json={"events": [{**EVENT, "lables": VALUE}, {**EVENT, "labels": 1}]}
    )
    refused(reply)
    assert [one["detail"] for one in reply.json()["errors"]] == [
        'unknown field "lables"; did you mean "labels"?', "labels: expected object, got int",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["x" * 10_000, "\U0001f4da" * 300, "\x07\u202e\n\"'\\" * 30])
@pytest.mark.parametrize("where", ["field", "feature"])
def test_of_a_name_64_printable_characters_are_repeated(
    client: TestClient, name: str, where: str
) -> None:
    document: Any = {"id": "a", "features": {name: 1}} if where == "feature" else {name: 1}
    said = refused(client.post("/rank", json={"model": "books", "documents": [document]}))
    start = said.index(f"unknown {where} ") + len(f"unknown {where} ")
    repeated = said[start : said.index("; ", start)]
    assert len(repeated) == 67  # with quotes and …
    assert repeated.isprintable()


def test_a_model_of_many_long_names_lists_ten_within_two_kilobytes(client: TestClient) -> None:
    names = [f"{at:04d}" + "\U0001f4da" * 120 for at in range(1500)]
    assert (
        client.put("/models/wide", json={"features": names, "covariance": "diagonal"}).status_code
        == 201
    )
    body = {"model": "wide", "documents": [{"id": "a", "features": {"price": 1}}]}
    said = refused(client.post("/rank", json=body))
    assert said.startswith('documents[0].features: unknown feature "price"; expected "0000')
    assert len(said) <= 400


# ---- a request_id of one's own ----


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


def own(client: TestClient) -> str:
    return ranked(client, request_id=fresh("page"))


@pytest.mark.parametrize("default", [False, True], ids=["no default model", "a default model"])
def test_an_own_request_id_needs_the_model_and_the_answer_says_so(
    client: TestClient, store: Any, default: bool
) -> None:
    if default:
        assert client.put("/models/default", json={"features": 2}).status_code == 201
    try:
        request = own(client)
        before = kept(store)
        assert refused(client.post("/feedback", json=clicks(request)), 404) == MODEL_REQUIRED
        reply = client.post("/feedback", json={"events": [clicks(request)]})
        if default:
            refused(reply)
            assert [one["detail"] for one in reply.json()["errors"]] == [MODEL_REQUIRED]
        else:
            assert refused(reply, 404) == MODEL_REQUIRED
        assert kept(store) == before
        assert client.post("/feedback", json=clicks(request, model="books")).status_code == 202
    finally:
        client.delete("/models/default")


def test_a_request_that_nobody_made_is_not_said_to_lack_a_model(client: TestClient) -> None:
    for event in (clicks("nobody", model="books"), clicks(f"books.{UUID7[:-1]}1")):
        said = refused(client.post("/feedback", json=event), 404 if "model" in event else 410)
        assert said.startswith("request_id: ")
    said = refused(client.post("/feedback", json=clicks(VALUE, model="nobody")), 404)
    assert said == "model: no model of this name; create it with PUT /models/{name}"


def test_one_model_beside_the_events_is_that_of_all(client: TestClient) -> None:
    events = [clicks(own(client)), clicks(own(client), model="books"), clicks(ranked(client))]
    reply = client.post("/feedback", json={"model": "books", "events": events})
    assert (reply.status_code, reply.json()["accepted"]) == (202, 3)


def test_events_of_another_model_than_the_one_beside_them_are_refused_with_all_others(
    client: TestClient, store: Any
) -> None:
    request, ours = own(client), ranked(client, "films")
    before = kept(store)
    for other in (clicks(request, model="films"), clicks(ours), clicks(ours, model="films")):
        for events in ([other], [clicks(request), other], [other, clicks(request)]):
            reply = client.post("/feedback", json={"model": "books", "events": events})
            assert "model" in refused(reply)
    assert kept(store) == before


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


#: Forms in which the event itself names no model; if the request_id is ours, that does.
OURS_NAMES_IT = ["bare", "in a post", "in a post with the model"]


@pytest.mark.parametrize(
    ("first", "second", "ours"),
    [(a, b, False) for a in NAMED for b in NAMED]
    + [(a, b, True) for a in OURS_NAMES_IT for b in OURS_NAMES_IT],
)
def test_an_event_posted_again_in_another_form_is_the_same_event(
    client: TestClient, store: Any, first: str, second: str, ours: bool
) -> None:
    """Whether it names its model is part of an event, as ever: digests outlive an upgrade."""
    event = clicks(ranked(client) if ours else own(client))
    said = client.post("/feedback", json=FORMS[first](event)).json()
    assert said["accepted"] == 1
    tail = store.get("solar:{books}:seq")
    again = client.post("/feedback", json=FORMS[second](event)).json()
    assert (again.get("duplicates"), again.get("seq")) == (1, said["seq"]), again
    assert store.get("solar:{books}:seq") == tail


# ---- a request_id that looks like another model's ----


def test_a_request_id_of_another_models_form_is_refused_at_rank(
    client: TestClient, store: Any
) -> None:
    before = kept(store)
    for other in ("other", "films", "Books", "b-o_oks"):
        said = refused(rank(client, request_id=f"{other}.{UUID7}"))
        assert said == "request_id: has the form of another model's; expected one of your own"
    assert kept(store) == before


@pytest.mark.parametrize(
    "request_id", [f"books.{UUID7}", "other.page-1", UUID7, f"other.{UUID7[:-1]}", f"a.b.{UUID7}"]
)
def test_all_other_request_ids_may_be_ones_own(client: TestClient, request_id: str) -> None:
    reply = rank(client, request_id=request_id)
    assert (reply.status_code, reply.json()["request_id"]) == (200, request_id)
