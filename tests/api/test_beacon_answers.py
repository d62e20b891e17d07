"""The answers of `/beacon`: open to pages of all origins, also when something is wrong."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from app.api.auth import new_key
from app.ingest.clicked_lists import LIST_BYTES
from app.storage.embedded.server import EmbeddedServer
from app.storage.keys import KEPT_LISTS
from tests.api.services import PLAIN, application
from tests.api.test_beacon import KEYS, added, counts, post, ranked, seq, token
from tests.servers import until

MODELS = ("books", "songs")
BACKLOG = 2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    with EmbeddedServer.start(tmp_path) as started:
        yield started.url


@pytest.fixture
def client(store: str) -> Iterator[Any]:
    """An application without a learner: two records of a model may wait."""
    with application(store, token_keys=KEYS, backlog=BACKLOG) as opened:
        for name in MODELS:
            assert opened.put(f"/models/{name}", json={"features": 2, **PLAIN}).status_code == 201
        yield opened


def is_open(answer: httpx.Response) -> bool:
    """Whether a page of another origin may read the answer: the header is there once."""
    return answer.headers.get_list("access-control-allow-origin") == ["*"]


def test_a_full_model_does_not_cost_the_events_of_another_one(client: Any) -> None:
    """`solar.js` sends nothing again."""
    for _ in range(BACKLOG):
        assert post(client, {"token": ranked(client)["token"], "clicked": ["b"]}).status_code == 204
    before = counts(client)
    tokens = [ranked(client, name)["token"] for name in ("books", "songs", "books")]
    answer = post(client, *({"token": one, "clicked": ["b"]} for one in tokens))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert [seq(client, name) for name in MODELS] == [BACKLOG, 1]
    assert added(before, counts(client)) == {"accepted": 1, "refused": 2}


def test_the_answer_to_a_full_model_is_open(client: Any) -> None:
    event = {"token": ranked(client)["token"], "clicked": ["b"]}
    found = [post(client, {**event, "gains": {"b": at / 10}}) for at in range(BACKLOG + 1)]
    assert [one.status_code for one in found] == [204] * BACKLOG + [503]
    assert all(map(is_open, found))


def test_every_other_answer_is_open(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    answers: list[httpx.Response] = [
        client.request(method, "/beacon") for method in ("GET", "PUT", "OPTIONS")
    ]
    answers.append(client.post("/beacon", content=b"{}", headers={"content-type": "image/png"}))
    answers.append(post(client, *({} for _ in range(101))))
    monkeypatch.setattr(client.app.state.service.beacon_limits, "take", fail)
    answers.append(post(client, {}))
    assert [one.status_code for one in answers] == [405, 405, 204, 415, 413, 500]
    assert all(map(is_open, answers))


def test_without_keys_there_is_no_preflight(store: str) -> None:
    client: Any
    with application(store) as client:
        answers: list[httpx.Response] = [client.options("/beacon"), post(client, {})]
    assert [one.status_code for one in answers] == [404, 404]
    assert all(map(is_open, answers))


def test_an_answer_without_content_has_no_length_and_no_type(client: Any) -> None:
    for answer in (post(client), client.options("/beacon")):
        assert answer.status_code == 204
        assert {"content-length", "content-type"}.isdisjoint(answer.headers)


# ---- copies ----


class Seen:
    """The lists that a worker loads."""

    def __init__(self, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lists, log = set[str](), client.app.state.service.store.log
        self._load = log.load_small_impressions
        monkeypatch.setattr(log, "load_small_impressions", self._counted)

    async def _counted(self, model: str, epoch: int, requests: Any, most: int) -> Any:
        self.lists.update(requests)
        return await self._load(model, epoch, requests, most)


@pytest.mark.parametrize("tenants", [1, 2])
def test_copies_of_many_events_load_no_list_in_a_worker_that_has_not_seen_them(
    store: str, tenants: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several tenants the list tells whose event it is."""
    secret, web = new_key("web", "rank+feedback+read+admin")
    keys = ",".join([web, new_key("web@acme", "rank")[1]][:tenants])
    settings: dict[str, Any] = {"keys": keys, "token_keys": KEYS}
    client: Any
    with application(store, **settings) as client:
        client.headers["authorization"] = f"Bearer {secret}"
        assert client.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
        *events, new = ({"token": ranked(client)["token"], "clicked": ["b"]} for _ in range(31))
        post(client, *events)
        assert seq(client) == 30
    with application(store, **settings) as client:
        client.headers["authorization"] = f"Bearer {secret}"
        seen, before = Seen(client, monkeypatch), counts(client)
        post(client, *events, new, new)
        assert added(before, counts(client)) == {"accepted": 1, "duplicate": 31}
        assert seq(client) == 31
        assert len(seen.lists) == (1 if tenants == 1 else 31)


def test_many_events_on_a_model_that_was_created_again_are_its_own(store: str) -> None:
    client: Any
    other: Any
    with application(store, token_keys=KEYS) as client, application(store) as other:
        assert client.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
        post(client, {"token": ranked(client)["token"], "clicked": ["b"]})
        assert other.delete("/models/books").status_code in (200, 202, 204)
        assert other.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
        requests = [ranked(other, request_id=f"r{at}")["request_id"] for at in range(30)]
        tokens = [token("books", one) for one in requests]
        assert (
            post(client, *({"token": one, "clicked": ["b"]} for one in tokens)).status_code == 204
        )
        assert seq(other) == 30


# ---- how long ----


def test_a_token_is_good_while_its_list_is_remembered(store: str) -> None:
    """Also if a list without a click is remembered longer than SOLAR_CONVERSION_SECONDS."""
    settings: dict[str, Any] = {"impression_seconds": 7_200.0, "conversion_seconds": 60.0}
    client: Any
    with application(store, token_keys=KEYS, **settings) as client:
        assert client.put("/models/books", json={"features": 2, **PLAIN}).status_code == 201
        end = int(ranked(client)["token"].split(".")[2], 36)
    assert time.time() + 7_000 < end <= time.time() + 7_200


def test_the_memory_of_clicked_lists_includes_what_has_come_of_them(
    client: Any, store: str
) -> None:
    """A worker writes the sum within seconds; the test waits for it."""
    found = ranked(client)
    events: tuple[dict[str, Any], ...] = ({"clicked": []}, {"clicked": ["b"], "gains": {"b": 4}})
    for event in events:
        post(client, {"token": found["token"], "examined": 2, **event})
    with contextlib.closing(redis.Redis.from_url(store)) as opened:
        [key] = opened.keys(f"*:imp:*:{found['request_id']}")
        size = opened.hstrlen(key, "i") + opened.hstrlen(key, "a") + LIST_BYTES
        until(lambda: [int(one) for one in opened.hvals(KEPT_LISTS)] == [size])


# ---- pairs ----

SHOWN, PAIRS = 100, 1_000
#: Events that show all documents below 30 clicked ones to be seen: 2,040 new pairs and more.
LAST: dict[str, Any] = {
    "a depth": {"clicked": [], "examined": SHOWN},
    "a click": {"clicked": [SHOWN - 1]},
    "a gain": {"clicked": [SHOWN - 1], "gain": 4},
}


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An application whose events may give 1,000 pairs."""
    with (
        EmbeddedServer.start(tmp_path_factory.mktemp("store")) as started,
        application(started.url, token_keys=KEYS, pairs=PAIRS) as opened,
    ):
        yield opened


def clicked_30(client: Any, name: str, **settings: Any) -> tuple[dict[str, Any], list[str]]:
    """Rank with a new model, click the first 30 documents in three events."""
    body = {"features": 2, "prior": 0, **settings}
    assert client.put(f"/models/{name}", json=body).status_code == 201
    documents = [{"id": f"d{at}", "features": [at / SHOWN, 0.5]} for at in range(SHOWN)]
    body = {"model": name, "documents": documents}
    found: dict[str, Any] = client.post("/rank", json=body).json()
    ids = [one["id"] for one in found["documents"]]
    for at in range(3):
        post(client, {"token": found["token"], "clicked": ids[10 * at : 10 * at + 10]})
    assert seq(client, name) == 3
    return found, ids


def event_of(kind: str, ids: list[str]) -> dict[str, Any]:
    event = dict(LAST[kind])
    gain, event["clicked"] = event.pop("gain", None), [ids[at] for at in event["clicked"]]
    return {**event, **({"gains": dict.fromkeys(event["clicked"], gain)} if gain else {})}


@pytest.mark.parametrize("kind", LAST)
def test_an_event_gives_no_more_pairs_than_the_limit_with_what_came_before(
    bounded: Any, kind: str
) -> None:
    """The pairs of the record count, not those of the event alone; nothing is stored."""
    name = f"debiased-{kind[2:]}"
    found, ids = clicked_30(bounded, name, clicks="debiased")
    before, event = counts(bounded), event_of(kind, ids)
    assert post(bounded, {"token": found["token"], **event}).status_code == 204
    assert added(before, counts(bounded)) == {"invalid": 1}
    body = {"event_id": "e", "type": "clicks", "request_id": found["request_id"], **event}
    answer = bounded.post("/feedback", json=body)
    assert (answer.status_code, "SOLAR_PAIRS" in answer.text) == (422, True), answer.text
    assert seq(bounded, name) == 3
    again = {"event_id": "e", "type": "clicks", "request_id": found["request_id"]}
    assert bounded.post("/feedback", json={**again, "clicked": ids[:1]}).status_code == 202


@pytest.mark.parametrize("kind", LAST)
def test_pairs_of_earlier_events_do_not_count_again(bounded: Any, kind: str) -> None:
    """Only what the event adds is limited: here the 70 or fewer pairs of one click."""
    name = f"above-{kind[2:]}"
    found, ids = clicked_30(bounded, name, clicks="click-skip-above")
    post(bounded, {"token": found["token"], **event_of(kind, ids)})
    assert seq(bounded, name) == 4
