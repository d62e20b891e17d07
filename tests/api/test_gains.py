"""Gains, actions by name, examined positions and late purchases over HTTP."""

import contextlib
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest
import redis

from app.ingest.appender import MOST_GRADED_EVENTS
from app.storage.embedded.server import find
from tests.api.services import PLAIN, Running, serving
from tests.api.test_processes import WAIT_UNTIL_LEARNT
from tests.servers import until

EVENTS = count()
NAMES = "abcdef"
#: One feature a document: a weight tells what was learnt of it.
DOCUMENTS = [
    {"id": name, "features": [1.0 * (at == one) for one in range(len(NAMES))]}
    for at, name in enumerate(NAMES)
]
SHORT = {"SOLAR_IMPRESSION_SECONDS": "5", "SOLAR_CONVERSION_SECONDS": "60"}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client() as opened:
        yield opened


def create(client: httpx.Client, **settings: Any) -> str:
    name = f"m{next(EVENTS)}"
    answer = client.put(f"/models/{name}", json={"features": len(NAMES), **PLAIN, **settings})
    assert answer.status_code == 201, answer.text
    return name


def rank(client: httpx.Client, model: str, **more: Any) -> str:
    answer = client.post("/rank", json={"model": model, "documents": DOCUMENTS, **more})
    assert answer.json()["logged"], answer.text
    return str(answer.json()["request_id"])


def click(
    client: httpx.Client, model: str, request: str, clicked: str = "", event: str = "", **more: Any
) -> httpx.Response:
    """Post clicks, and wait until they are learnt."""
    body = {"event_id": event or f"e{next(EVENTS)}", "type": "clicks", "model": model,
            "request_id": request, "clicked": list(clicked), **more}  # fmt: skip
    return client.post("/feedback", json=body, headers=WAIT_UNTIL_LEARNT)


def measured(model: dict[str, Any]) -> dict[str, Any]:
    """What a model has measured."""
    names = ("queries", "abandoned_lists", "ndcg", "map", "baseline", "lead", "explored")
    return {name: model[name] for name in names}


def learnt(client: httpx.Client, model: str, *posts: dict[str, Any]) -> dict[str, Any]:
    """Return a model after posts on one list."""
    request = rank(client, model)
    for post in posts:
        answer = click(client, model, request, **post)
        assert answer.status_code == 200, answer.text
    return details(client, model)


def details(client: httpx.Client, model: str) -> dict[str, Any]:
    """GET /models/{model}."""
    found: dict[str, Any] = client.get(f"/models/{model}").json()
    return found


# ---- gains and actions ----


def test_a_gain_by_number_is_one_by_the_name_of_its_action(client: httpx.Client) -> None:
    """Without a table, add_to_cart is 2 and purchase is 4."""
    both = [
        learnt(client, create(client), {"clicked": "cf", "gains": gains})
        for gains in ({"c": 2, "f": 4}, {"c": "add_to_cart", "f": "purchase"})
    ]
    assert both[0]["weights"] == both[1]["weights"]
    assert measured(both[0]) == measured(both[1])


def test_gains_of_1_are_clicks(client: httpx.Client) -> None:
    both = [
        learnt(client, create(client), {"clicked": "cf", **gains})
        for gains in ({}, {"gains": {"c": 1, "f": "click"}})
    ]
    assert both[0]["weights"] == both[1]["weights"]


def test_a_bought_document_is_preferred_to_a_clicked_one(client: httpx.Client) -> None:
    model = create(client)
    learnt(client, model, {"clicked": "af", "gains": {"f": "purchase"}})
    ranked = client.post("/rank", json={"model": model, "documents": DOCUMENTS}).json()
    order = [one["id"] for one in ranked["documents"]]
    assert order[0] == "f"


def test_a_model_has_its_own_actions(client: httpx.Client) -> None:
    model = create(client, actions={"click": 1, "listen": 3.5})
    assert client.get(f"/models/{model}").json()["actions"] == {"click": 1, "listen": 3.5}
    request = rank(client, model)
    answer = click(client, model, request, "f", gains={"f": "purchase"})
    assert answer.status_code == 422
    assert "click" in answer.text
    assert "listen" in answer.text
    assert click(client, model, request, "f", gains={"f": "listen"}).status_code == 200
    changed = client.patch(f"/models/{model}", json={"actions": {"purchase": 10}})
    assert changed.status_code in (200, 202)
    until(lambda: client.get(f"/models/{model}").json()["actions"] == {"purchase": 10})
    assert click(client, model, request, "f", gains={"f": "listen"}).status_code == 422
    assert click(client, model, request, "f", gains={"f": "purchase"}).status_code == 200


@pytest.mark.parametrize(
    "actions",
    [
        {}, {"buy": -1}, {"buy": 10.5}, {"buy": "much"}, {"buy": True}, {"buy": None},
        {"": 1}, {"with space": 1}, {"a\n": 1}, {"x" * 65: 1}, {f"a{at}": 1 for at in range(200)},
        [["buy", 1]], "buy",
    ],
)  # fmt: skip
def test_impossible_actions_are_refused(client: httpx.Client, actions: Any) -> None:
    body = {"features": 2, "actions": actions}
    put = client.put("/models/refused", json=body)
    assert put.status_code == 422, put.text
    assert len(put.content) < 2048
    assert client.get("/models/refused").status_code == 404
    model = create(client)
    assert client.patch(f"/models/{model}", json={"actions": actions}).status_code == 422


@pytest.mark.parametrize(
    "wrong",
    [
        {"gains": {"a": 1}}, {"gains": {"f": 10.5}}, {"gains": {"f": -1}}, {"gains": {"f": None}},
        {"gains": {"f": True}}, {"gains": {"f": [1]}}, {"gains": {"f": "steal"}},
        {"gains": {"f": ""}}, {"gains": {"f": "x" * 65}}, {"gains": [4]}, {"gains": 4},
        {"examined": -1}, {"examined": len(NAMES) + 1}, {"examined": 1.5}, {"examined": "2"},
        {"examined": True}, {"examined": None}, {"examined": 1 << 70},
    ],
)  # fmt: skip
def test_impossible_gains_are_refused_and_store_nothing(
    client: httpx.Client, wrong: dict[str, Any]
) -> None:
    model = create(client)
    request = rank(client, model)
    answer = click(client, model, request, "f", event="again", **wrong)
    assert answer.status_code == 422, answer.text
    assert len(answer.content) < 2048
    assert client.get(f"/models/{model}").json()["seq"] == 0
    assert click(client, model, request, "f", event="again").status_code == 200  # no dedupe entry


def test_gains_are_those_of_clicks_only(client: httpx.Client) -> None:
    model = create(client)
    body = {"event_id": "l", "type": "labels", "model": model, "request_id": rank(client, model),
            "labels": {"a": 1}, "gains": {"a": 1}}  # fmt: skip
    assert client.post("/feedback", json=body).status_code == 422


def test_many_gains_of_other_documents_are_refused_fast(client: httpx.Client) -> None:
    model = create(client)
    gains = {f"d{at}": 1 for at in range(50_000)}
    answer = click(client, model, rank(client, model), "abcdef", gains=gains)
    assert answer.status_code == 422
    assert answer.elapsed.total_seconds() < 5.0


def test_too_many_pairs_of_gains_are_refused(client: httpx.Client) -> None:
    """All documents are clicked: without gains these are no pairs, with them 499,500."""
    model = create(client, clicks="debiased")
    documents = [{"id": f"d{at}", "features": [0.0] * len(NAMES)} for at in range(1000)]
    request = rank(client, model, documents=documents)
    ids = [one["id"] for one in documents]
    body = {"event_id": "g", "type": "clicks", "model": model, "request_id": request,
            "clicked": ids, "gains": {name: at / 100 for at, name in enumerate(ids)}}  # fmt: skip
    assert client.post("/feedback", json=body).status_code == 422
    del body["gains"]
    assert client.post("/feedback", json=body).status_code == 202


def test_a_list_with_gains_has_a_limited_number_of_events(client: httpx.Client) -> None:
    model = create(client)
    request = rank(client, model)
    events = [
        {"event_id": f"n{at}", "type": "clicks", "request_id": request, "clicked": ["f"],
         "examined": 1}
        for at in range(MOST_GRADED_EVENTS + 5)
    ]  # fmt: skip
    answer = client.post("/feedback", json={"model": model, "events": events})
    assert (answer.json()["accepted"], answer.json()["rejected"]) == (MOST_GRADED_EVENTS, 5)
    assert "feedback limit" in answer.json()["errors"][0]["detail"]
    assert click(client, model, request, "e", event="new").status_code == 422
    again = client.post("/feedback", json={"model": model, "events": events[:3]})
    assert again.json()["duplicates"] == 3


# ---- examined positions ----


def test_examined_positions_reach_below_the_last_click(client: httpx.Client) -> None:
    """Debiased clicks of a sampled ranking: documents that were seen and not clicked lose."""
    model = create(client, clicks="debiased", explore=True)
    request = rank(client, model, request_id="examined-r")
    shown = client.post("/rank", json={"model": model, "documents": DOCUMENTS,
                                       "request_id": request}).json()  # fmt: skip
    order = [one["id"] for one in shown["documents"]]
    assert click(client, model, request, order[0]).status_code == 200
    before = details(client, model)["weights"]
    assert click(client, model, request, order[0], examined=len(NAMES)).status_code == 200
    after = details(client, model)["weights"]
    last = f"f{NAMES.index(order[-1]) + 1}"
    assert before.get(last, 0.0) == 0.0
    assert after[last] < 0.0


def test_a_list_without_a_click_is_abandoned_however_far_it_was_examined(
    client: httpx.Client,
) -> None:
    found = learnt(client, create(client), {"examined": 6}, {"examined": 3})
    assert not any(found["weights"].values())
    assert (found["abandoned_lists"], found["queries"]) == (1, 0)


# ---- late purchases ----


@pytest.fixture(scope="module")
def short() -> Iterator[tuple[Running, httpx.Client]]:
    """A service that forgets lists after 5 s, and clicked ones after a minute."""
    with serving(environ=SHORT) as started, started.client() as opened:
        yield started, opened


def expire(running: Running, request: str, seconds: float) -> None:
    """Let time pass for an impression: its TTL, and the end of its first lifetime."""
    with store(running) as redis_store:
        [key] = redis_store.keys(f"*:imp:*:{request}")
        left = redis_store.pttl(key) - int(1000 * seconds)
        redis_store.pexpire(key, max(1, left))
        ends = redis_store.hget(key, "u")
        if ends:
            redis_store.hset(key, "u", int(ends) - int(1000 * seconds))


@contextlib.contextmanager
def store(running: Running) -> Iterator[redis.Redis]:
    url = find(running.data)
    assert url is not None
    with contextlib.closing(redis.Redis.from_url(url)) as opened:
        yield opened


def test_a_clicked_list_takes_a_late_purchase_and_others_do_not(
    short: tuple[Running, httpx.Client],
) -> None:
    running, client = short
    model = create(client)
    clicked, examined, own = rank(client, model), rank(client, model), "own-request"
    rank(client, model, request_id=own)
    assert click(client, model, clicked, "f").status_code == 200
    assert click(client, model, examined, examined=3).status_code == 200
    for request in (clicked, examined, own):
        expire(running, request, 5.1)
    until(lambda: _keys(running, f"{{{model}}}:imp") == 1)
    bought: dict[str, Any] = {"gains": {"f": "purchase"}}
    assert click(client, model, clicked, "f", **bought).status_code == 200
    assert click(client, model, own, "f", **bought).status_code == 404
    until(lambda: click(client, model, examined, "f", **bought).status_code == 410)


def _keys(running: Running, kind: str) -> int:
    """Count the keys of this kind, such as `{model}:imp`."""
    with store(running) as redis_store:
        return sum(f"{kind}:".encode() in key for key in redis_store.keys("*"))


def test_ranking_a_clicked_request_again_keeps_its_longer_life(
    short: tuple[Running, httpx.Client],
) -> None:
    running, client = short
    model = create(client)
    request = rank(client, model, request_id="again", explore=False)
    assert click(client, model, request, "f", event="c").status_code == 200
    other = [*DOCUMENTS, {"id": "g", "features": [0.5] * len(NAMES)}]
    with store(running) as redis_store:
        [key] = redis_store.keys("*:imp:*:again")
        life = redis_store.pttl(key)
        assert life > 50_000
        until(lambda: client.get(f"/models/{model}").json()["seq"] == 1)
        rank(client, model, request_id="again", documents=other)
        assert redis_store.pttl(key) <= 5_000  # another list: nothing has come of it
        rank(client, model, request_id="again", documents=other)
        assert redis_store.pttl(key) <= 5_000
        assert click(client, model, request, "g").status_code == 200
        rank(client, model, request_id="same", explore=False, documents=other[-1:])
        assert click(client, model, "same", "g").status_code == 200
        rank(client, model, request_id="same", explore=False, documents=other[-1:])
        [same] = redis_store.keys("*:imp:*:same")
        assert redis_store.pttl(same) > 50_000


def test_a_copy_after_the_dedupe_window_finds_its_clicks_and_learns_nothing(
    short: tuple[Running, httpx.Client],
) -> None:
    running, client = short
    model = create(client)
    request = rank(client, model)
    posts: list[dict[str, Any]] = [
        {"clicked": "d", "event": "first"},
        {"clicked": "fb", "event": "bought", "gains": {"f": "purchase"}, "examined": 6},
    ]
    for one in posts:
        assert click(client, model, request, **one).status_code == 200
    before, measures = details(client, model)["weights"], measured(details(client, model))
    forget_events(running, model)
    for seq, one in enumerate(posts, start=3):
        answer = click(client, model, request, **one)
        assert (answer.json()["accepted"], answer.json()["seq"]) == (1, seq)
    assert details(client, model)["weights"] == before
    assert measured(details(client, model)) == measures


def forget_events(running: Running, model: str) -> None:
    """Do what the TTL of the dedupe entries does after SOLAR_DEDUPE_SECONDS."""
    with store(running) as redis_store:
        buckets = redis_store.keys(f"solar:{{{model}}}:e:*")
        assert buckets
        redis_store.delete(*buckets)


#: Events that what has come of a list does not remember.
JUDGED: dict[str, dict[str, Any]] = {
    "labels": {"labels": {"b": 2}},
    "triplets": {"triplets": [["b", "a"]]},
}


def judge(
    client: httpx.Client, model: str, request: str, kind: str, event: str = ""
) -> httpx.Response:
    """Post labels or triplets, and wait until they are learnt."""
    body = {"event_id": event or f"e{next(EVENTS)}", "type": kind, "model": model,
            "request_id": request, **JUDGED[kind]}  # fmt: skip
    return client.post("/feedback", json=body, headers=WAIT_UNTIL_LEARNT)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("kind", JUDGED)
def test_labels_and_triplets_have_the_lifetime_of_a_list_without_a_click(
    running: Running, client: httpx.Client, kind: str, own: bool
) -> None:
    """Nothing in the list tells a copy of them once deduplication has forgotten it."""
    model = create(client)
    request = rank(client, model, **({"request_id": f"own-{model}"} if own else {}))
    assert click(client, model, request, "f").status_code == 200
    assert judge(client, model, request, kind, "once").json()["accepted"] == 1
    before = details(client, model)
    expire(running, request, 1800.0)
    assert judge(client, model, request, kind, "once").json()["duplicates"] == 1
    forget_events(running, model)
    for event in ("once", "new"):
        answer = judge(client, model, request, kind, event)
        assert (answer.status_code, "only clicks" in answer.text) == (410, True), answer.text
    assert details(client, model) == before
    assert click(client, model, request, "f", gains={"f": 4}).json()["accepted"] == 1


@pytest.mark.parametrize("kind", JUDGED)
def test_a_clicked_list_that_is_ranked_again_takes_labels_again(
    running: Running, client: httpx.Client, kind: str
) -> None:
    model = create(client)
    request = rank(client, model, request_id=f"twice-{model}", explore=False)
    assert click(client, model, request, "f").status_code == 200
    expire(running, request, 1800.0)
    assert judge(client, model, request, kind).status_code == 410
    rank(client, model, request_id=request, explore=False)
    assert judge(client, model, request, kind).status_code == 200
