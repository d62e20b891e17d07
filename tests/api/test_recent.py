"""Recent impressions, and the difference of two versions, over HTTP."""

from collections.abc import Callable, Iterator
from itertools import count
from time import time
from typing import Any

import httpx
import numpy as np
import pytest
import redis

from app.api import auth, recent_lists
from app.api.routers import recent
from app.domain.impressions import Impression
from app.serving.impression_writer import NOTE_SECONDS
from app.storage.embedded import server as embedded
from app.storage.keys import Keys
from tests.api.services import PLAIN, Running, application, serving
from tests.servers import client as redis_client
from tests.servers import server, url

__all__ = ["server", "url"]  # fixtures

FEATURES = ["bm25", "price"]
LEARNT = {"prefer": "wait=20"}
EVENTS = count()
NAMES = {"admin@a": "rank+feedback+admin", "admin@b": "rank+feedback+admin", "looks@a": "read",
         "admin": "rank+feedback+admin"}  # fmt: skip
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client() as http:
        yield http


@pytest.fixture
def ask(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Send a request with the key of a name; every request is noted."""
    monkeypatch.setattr("app.serving.impression_writer.NOTE_SECONDS", 0.0)
    keys = {name: auth.new_key(name, scopes) for name, scopes in NAMES.items()}
    with application(url, keys=",".join(entry for _, entry in keys.values())) as http:

        def send(name: str, method: str, path: str, body: Any = None) -> Any:
            headers = {"authorization": f"Bearer {keys[name][0]}"}
            return http.request(method, path, json=body, headers=headers)

        made = send("admin", "PUT", "/models/books", {"features": FEATURES, **PLAIN})
        assert made.status_code == 201
        yield send


def documents(count: int) -> list[dict[str, Any]]:
    return [{"id": f"d{at}", "features": [at, -at]} for at in range(count)]


def rank(ask: Ask, name: str, request: str | None, given: Any = None, **more: Any) -> Any:
    body = {"model": "books", "request_id": request, "documents": given or documents(3), **more}
    answer = ask(name, "POST", "/rank", body)
    assert answer.json()["logged"], answer.text
    return answer.json()


def recent_of(ask: Ask, name: str = "admin", limit: int = 100) -> Any:
    answer = ask(name, "GET", f"/models/books/impressions?limit={limit}")
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---- impressions ----


def test_a_list_is_returned_as_it_was_scored_and_shown(client: httpx.Client) -> None:
    settings = {"features": FEATURES, "normalization": "query-minmax", "gamma": 10.0}
    assert client.put("/models/shown", json=settings).status_code == 201
    given, start = documents(4), int(time() * 1000)
    answer = client.post("/rank", json={"model": "shown", "documents": given}).json()
    ids = [one["id"] for one in answer["documents"]]
    clicked = {"event_id": "e", "type": "clicks", "request_id": answer["request_id"],
               "clicked": [ids[2], ids[0]]}  # fmt: skip
    assert client.post("/feedback", json=clicked).status_code == 202
    found = client.get("/models/shown/impressions").json()
    assert found["features"] == [*FEATURES, "_order"]
    [one] = found["impressions"]
    assert one["request"] == answer["request_id"]
    assert start <= one["time"] <= time() * 1000
    assert [document["id"] for document in one["documents"]] == ids
    assert one["documents_shown"] == 4
    assert one["submitted"] == [int(name[1:]) for name in ids]
    assert (one["clicked"], one["explored"]) == ([2, 0], True)
    third = np.float32(1 / 3)
    scaled: dict[str, Any] = {
        "d0": [0.0, 1.0],
        "d1": [third, 1 - third],
        "d2": [1 - third, third],
        "d3": [1.0, 0.0],
    }
    for document in one["documents"]:
        expected = [*scaled[document["id"]], 1 - int(document["id"][1:]) / 3]
        assert document["features"] == pytest.approx(expected, abs=1e-7)


def test_a_returned_list_can_be_compared_as_scored_with_the_scores_of_rank(
    client: httpx.Client,
) -> None:
    settings = {"features": FEATURES, "normalization": "query-minmax"}
    assert client.put("/models/again", json=settings).status_code == 201
    answer = client.post("/rank", json={"model": "again", "documents": documents(4)}).json()
    [one] = client.get("/models/again/impressions").json()["impressions"]
    scores = {document["id"]: document["score"] for document in answer["documents"]}
    body = {"documents": one["documents"], "first": "d3", "second": "d0", "scored": True}
    found = client.post("/models/again/compare", json=body).json()
    assert (found["first"]["score"], found["second"]["score"]) == (scores["d3"], scores["d0"])
    tried = {"documents": one["documents"], "clicks": ["d2"], "scored": True}
    assert client.post("/models/again/what-if", json=tried).json()["weights"]


def test_a_worker_notes_one_request_a_second(client: httpx.Client) -> None:
    assert client.put("/models/busy", json={"features": FEATURES, **PLAIN}).status_code == 201
    for at in range(20):
        body = {"model": "busy", "documents": documents(2), "request_id": f"r{at}"}
        assert client.post("/rank", json=body).json()["logged"]
    found = client.get("/models/busy/impressions").json()["impressions"]
    assert 1 <= len(found) <= 1 + 20 * NOTE_SECONDS
    assert found[-1]["request"] == "r0"
    assert found[-1]["time"] is None  # of an id of the caller's own


def test_lists_are_newest_first_up_to_the_limit_and_each_once(ask: Ask) -> None:
    for at in (0, 1, 2, 3, 1):
        rank(ask, "admin", f"r{at}")
    names = [one["request"] for one in recent_of(ask)["impressions"]]
    assert names == ["r1", "r3", "r2", "r0"]
    assert [one["request"] for one in recent_of(ask, limit=2)["impressions"]] == ["r1", "r3"]
    for wrong in (0, 101, -1, "x"):
        path = f"/models/books/impressions?limit={wrong}"
        assert ask("admin", "GET", path).status_code == 422


def test_a_tenant_sees_its_own_lists_only(ask: Ask) -> None:
    rank(ask, "admin@a", "of-a")
    rank(ask, "admin@b", "of-b")
    rank(ask, "admin", "of-none")
    for name, seen in {"admin@a": "of-a", "admin@b": "of-b", "admin": "of-none"}.items():
        assert [one["request"] for one in recent_of(ask, name)["impressions"]] == [seen]
        lists = ask(name, "GET", "/models/books/versions/0/diff/current").json()["lists"]
        assert [one["request"] for one in lists] == [seen]
    assert ask("looks@a", "GET", "/models/books/impressions").status_code == 403
    diff = ask("looks@a", "GET", "/models/books/versions/0/diff/current")
    assert (diff.status_code, diff.json()["lists"]) == (200, None)


def test_expired_and_damaged_lists_are_left_out(ask: Ask, url: str) -> None:
    keys = Keys("books")
    other = Impression(("a",), np.zeros((1, 9), np.float32), np.arange(1)).dump()
    bad = {"cut": b"SLR\1", "empty": b"", "gone": None, "shape": other}
    for name in (*bad, "fine"):
        rank(ask, "admin", name)
    with redis_client(url) as connection:
        for name, blob in bad.items():
            if blob is None:
                connection.delete(keys.impression(1, name))
            else:
                connection.hset(keys.impression(1, name), "i", blob)
        rank(ask, "admin", "feedback")
        connection.hset(keys.impression(1, "feedback"), "a", b"damaged")
    assert [one["request"] for one in recent_of(ask)["impressions"]] == ["fine"]
    lists = ask("admin", "GET", "/models/books/versions/0/diff/current").json()["lists"]
    assert [one["request"] for one in lists] == ["fine"]


def test_of_a_long_list_the_first_50_documents_are_returned(ask: Ask) -> None:
    rank(ask, "admin", "long", documents(60))
    [one] = recent_of(ask)["impressions"]
    assert (len(one["documents"]), len(one["submitted"]), one["documents_shown"]) == (50, 50, 60)


def test_answers_are_bounded_by_fewer_lists_and_fewer_documents(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(6):
        rank(ask, "admin", f"r{at}", documents(10))
    monkeypatch.setattr(recent, "MOST_VALUES", 45)  # two lists of ten documents of two features
    assert [len(one["documents"]) for one in recent_of(ask)["impressions"]] == [10, 10]
    monkeypatch.setattr(recent, "MOST_VALUES", 7)
    assert [len(one["documents"]) for one in recent_of(ask)["impressions"]] == [3]
    monkeypatch.setattr(recent, "MOST_VALUES", 1)
    assert [len(one["documents"]) for one in recent_of(ask)["impressions"]] == [1]
    monkeypatch.setattr(recent_lists, "RECENT_BYTES", 1500)  # of the store: two or three lists
    assert len(recent_of(ask)["impressions"]) == 1
    monkeypatch.setattr(recent, "MOST_VALUES", 250_000)
    assert 1 <= len(recent_of(ask)["impressions"]) <= 3


def test_a_model_without_recent_lists_has_none_and_an_unknown_model_is_404(ask: Ask) -> None:
    assert recent_of(ask)["impressions"] == []
    assert ask("admin", "GET", "/models/missing/impressions").status_code == 404
    assert ask("admin", "GET", "/models/no.name/impressions").status_code == 404


# ---- difference of versions ----


def test_a_difference_has_the_weights_of_both_versions(client: httpx.Client) -> None:
    assert client.put("/models/diff", json={"features": FEATURES, **PLAIN}).status_code == 201
    first = learnt(client, "diff", {"d0": 1})
    assert client.post("/models/diff/versions", json={"name": "one"}).status_code == 201
    second = learnt(client, "diff", {"d2": 1})
    found = client.get("/models/diff/versions/one/diff/current").json()
    assert (found["a"], found["b"]) == ({"version": 1, "name": "one"}, {"version": 2, "name": None})
    assert {one["feature"]: (one["a"], one["b"]) for one in found["weights"]} == {
        name: (first[name], second[name]) for name in FEATURES
    }
    for one in found["weights"]:
        assert one["change"] == one["b"] - one["a"]
    sizes = [abs(one["change"]) for one in found["weights"]]
    assert sizes == sorted(sizes, reverse=True)
    assert found["rest"] == {"features": 0, "largest_change": 0.0}
    back = client.get("/models/diff/versions/current/diff/0").json()
    assert back["b"] == {"version": 0, "name": None}
    assert [one["b"] for one in back["weights"]] == [0.0, 0.0]
    same = client.get("/models/diff/versions/0/diff/0").json()
    assert (same["weights"], same["lists"]) == ([], [])
    for wrong in ("9", "missing", "a..b", "%20", "9" * 64, "%C2%B2", "."):
        assert client.get(f"/models/diff/versions/{wrong}/diff/0").status_code == 404
        assert client.get(f"/models/diff/versions/0/diff/{wrong}").status_code == 404
    assert client.get("/models/missing/versions/0/diff/0").status_code == 404


def learnt(client: httpx.Client, model: str, labels: dict[str, int]) -> Any:
    """Post labels; return the weights after them."""
    body = {"event_id": f"e{next(EVENTS)}", "type": "labels", "model": model,
            "documents": documents(3), "labels": labels}  # fmt: skip
    assert client.post("/feedback", json=body, headers=LEARNT).status_code == 200
    return client.get(f"/models/{model}").json()["weights"]


def test_recent_lists_show_what_changes_among_the_documents_shown(client: httpx.Client) -> None:
    assert client.put("/models/lists", json={"features": FEATURES, **PLAIN}).status_code == 201
    learnt(client, "lists", {"d0": 1})  # fewer is better
    given = documents(12)
    body = {"model": "lists", "documents": given[::-1], "request_id": "r", "top_k": 11}
    shown = [one["id"] for one in client.post("/rank", json=body).json()["documents"]]
    assert shown == [f"d{at}" for at in range(11)]
    [one] = client.get("/models/lists/versions/0/diff/current").json()["lists"]
    assert (one["request"], one["documents"], one["moved"]) == ("r", 11, 10)  # not the middle one
    assert one["a"] == [f"d{at}" for at in range(10, 0, -1)]  # all scores are 0: as submitted
    assert one["b"] == [f"d{at}" for at in range(10)]
    [same] = client.get("/models/lists/versions/current/diff/current").json()["lists"]
    assert (same["moved"], same["a"]) == (0, same["b"])


def test_of_many_differences_200_are_listed(client: httpx.Client) -> None:
    wide = {"features": 300, "covariance": "diagonal", **PLAIN}
    assert client.put("/models/broad", json=wide).status_code == 201
    rows = [{"id": f"d{at}", "features": [at * (k + 1) for k in range(300)]} for at in range(2)]
    body = {"event_id": f"e{next(EVENTS)}", "type": "labels", "model": "broad",
            "documents": rows, "labels": {"d1": 1}}  # fmt: skip
    assert client.post("/feedback", json=body, headers=LEARNT).status_code == 200
    found = client.get("/models/broad/versions/0/diff/current").json()
    assert (len(found["weights"]), found["rest"]["features"]) == (200, 100)
    assert found["rest"]["largest_change"] == pytest.approx(
        found["weights"][-1]["change"] * 100 / 101
    )


def test_a_damaged_version_answers_503(client: httpx.Client, running: Running) -> None:
    assert client.put("/models/hurt", json={"features": FEATURES, **PLAIN}).status_code == 201
    assert client.post("/models/hurt/versions", json={"name": "kept"}).status_code == 201
    found = embedded.find(running.data)
    assert found is not None
    with redis.Redis.from_url(found) as store:
        store.hset(Keys("hurt").named(1, "kept"), "w", b"damaged")
    assert client.get("/models/hurt/versions/kept/diff/0").status_code == 503
