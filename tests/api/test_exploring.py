"""Over HTTP: lists that are varied, documents that are pinned, and what clicks on them teach."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from tests.api.services import PLAIN, Running, serving

IDS = [f"d{at}" for at in range(12)]
ROWS = [[at / 11, (at * 7 % 12) / 11] for at in range(12)]
LEARNT = {"Prefer": "wait=20"}
EVENTS = count()


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving(environ={"SOLAR_DEFAULT_FEATURES": "2"}) as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        kinds: dict[str, dict[str, Any]] = {
            "drawn": {},
            "fair": {"clicks": "fair-pairs"},
            "quiet": {"explore": False},
            "plain": PLAIN,
            "noisy": {**PLAIN, "explore": True},
            "begins": {"prior": 0},
        }
        for name, settings in kinds.items():
            made = client.put(f"/models/{name}", json={"features": 2, **settings})
            assert made.status_code == 201, made.text
        for name in ("plain", "noisy"):  # so that scores differ
            told = {"type": "triplets", "documents": documents(), "triplets": [["d11", "d0"]]}
            post(client, name, told)
        yield client


def documents() -> list[dict[str, Any]]:
    return [{"id": name, "features": row} for name, row in zip(IDS, ROWS, strict=True)]


def rank(http: httpx.Client, model: str, **asked: Any) -> dict[str, Any]:
    answer = http.post("/rank", json={"model": model, "documents": documents(), **asked})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def post(http: httpx.Client, model: str, event: dict[str, Any]) -> dict[str, Any]:
    body = {"event_id": f"e{next(EVENTS)}", "model": model, **event}
    answer = http.post("/feedback", json=body, headers=LEARNT)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(answer: dict[str, Any]) -> list[str]:
    return [one["id"] for one in answer["documents"]]


def orders(http: httpx.Client, model: str, **asked: Any) -> set[tuple[str, ...]]:
    return {tuple(ids(rank(http, model, **asked))) for _ in range(30)}


@pytest.mark.parametrize(
    ("model", "explores"),
    [("drawn", True), ("fair", True), ("noisy", True), ("quiet", False), ("plain", False)],
)
def test_a_model_explores_as_it_is_set_and_a_request_may_say_otherwise(
    http: httpx.Client, model: str, explores: bool
) -> None:
    assert http.get(f"/models/{model}").json()["explore"] is explores
    assert rank(http, model)["explored"] is explores
    assert (len(orders(http, model)) > 1) is explores
    assert not rank(http, model, explore=False)["explored"]
    assert len(orders(http, model, explore=False)) == 1
    assert rank(http, model, explore=True)["explored"]


@pytest.mark.parametrize("model", ["drawn", "fair"])
def test_the_same_request_gets_the_same_list(http: httpx.Client, model: str) -> None:
    first = rank(http, model, request_id="again", top_k=8)
    for _ in range(5):
        assert rank(http, model, request_id="again", top_k=8)["documents"] == first["documents"]
    assert len({tuple(ids(rank(http, model, request_id=f"r{at}"))) for at in range(10)}) > 1


def test_fair_pairs_differ_from_the_plain_list_by_neighbours_alone(http: httpx.Client) -> None:
    plain = ids(rank(http, "fair", explore=False))
    for shown in orders(http, "fair"):
        assert all(abs(shown.index(one) - plain.index(one)) <= 1 for one in plain)


@pytest.mark.parametrize("model", ["drawn", "fair", "plain"])
def test_pinned_documents_keep_their_place(http: httpx.Client, model: str) -> None:
    for at in range(10):
        shown = ids(rank(http, model, pinned=["d2", "d0", "d11"], request_id=f"p{at}", top_k=5))
        assert (shown[0], shown[2], len(shown)) == ("d0", "d2", 5)
        assert "d11" not in shown


def test_a_click_on_a_pinned_document_counts_but_teaches_nothing(http: httpx.Client) -> None:
    before = http.get("/models/drawn").json()
    answer = rank(http, "drawn", pinned=["d0"])
    post(http, "drawn", {"type": "clicks", "request_id": answer["request_id"], "clicked": ["d0"]})
    after = http.get("/models/drawn").json()
    assert after["weights"] == before["weights"]
    assert after["queries"] == before["queries"] + 1


def test_a_pinned_document_that_is_not_there_is_refused(http: httpx.Client) -> None:
    body = {"model": "drawn", "documents": documents(), "pinned": ["d1", "nobody"]}
    refused = http.post("/rank", json=body)
    assert refused.status_code == 422
    assert refused.json()["detail"] == "pinned[1]: expected the id of one of the documents"


@pytest.mark.parametrize("model", ["drawn", "fair"])
def test_clicks_on_explored_lists_are_learnt_and_judge(http: httpx.Client, model: str) -> None:
    before = http.get(f"/models/{model}").json()
    for _ in range(3):
        answer = rank(http, model, top_k=6)
        clicked = [ids(answer)[1], ids(answer)[4]]
        event = {"type": "clicks", "request_id": answer["request_id"], "clicked": clicked}
        post(http, model, event)
    after = http.get(f"/models/{model}").json()
    assert after["weights"] != before["weights"]
    assert after["explored"]["queries"] == before["explored"]["queries"] + 3
    assert after["debiased_wins"]["model"] > 0.0
    assert after["explored"]["ndcg"]["10"] > 0.0


def test_clicks_on_a_plain_list_of_a_debiased_model_teach_nothing(http: httpx.Client) -> None:
    before = http.get("/models/quiet").json()
    answer = rank(http, "quiet")
    post(http, "quiet", {"type": "clicks", "request_id": answer["request_id"], "clicked": ["d5"]})
    after = http.get("/models/quiet").json()
    assert after["weights"] == before["weights"]
    assert (after["queries"], after["explored"]["queries"]) == (before["queries"] + 1, 0)


def test_labels_teach_whatever_was_shown(http: httpx.Client) -> None:
    answer = rank(http, "quiet")
    post(http, "quiet", {"type": "labels", "request_id": answer["request_id"], "labels": {"d5": 2}})
    weights = http.get("/models/quiet").json()["weights"]
    assert weights["f1"] != 0.0


def test_without_a_prior_a_model_begins_to_learn_from_the_list_as_submitted(
    http: httpx.Client,
) -> None:
    answer = rank(http, "begins")
    assert (ids(answer), answer["explored"]) == (IDS, False)
    event = {"type": "clicks", "request_id": answer["request_id"], "clicked": ["d11"]}
    post(http, "begins", event)
    assert ids(rank(http, "begins", explore=False))[0] == "d11"
    assert rank(http, "begins")["explored"]


def test_the_default_model_is_a_new_one_like_any(http: httpx.Client) -> None:
    answer = http.post("/rank", json={"documents": documents()})
    assert answer.status_code == 200
    made = http.get("/models/default").json()
    assert (made["clicks"], made["prior"], made["explore"]) == ("debiased", 0.2, True)
    assert made["features"] == ["f1", "f2"]


def test_the_order_as_submitted_is_no_feature_that_can_be_given(http: httpx.Client) -> None:
    refused = http.put("/models/other", json={"features": ["a", "_order"]})
    assert refused.status_code == 422
    assert "expected names other than _order" in refused.json()["detail"]
    body = {"model": "drawn", "documents": [{"id": "a", "features": {"_order": 1}}]}
    assert http.post("/rank", json=body).status_code == 422
    wide = {"model": "drawn", "documents": [{"id": "a", "features": [1, 2, 3]}]}
    assert http.post("/rank", json=wide).status_code == 422


@pytest.mark.parametrize("prior", [-1, "1", True, 1e5])
def test_a_prior_that_cannot_be_is_refused(http: httpx.Client, prior: Any) -> None:
    refused = http.put("/models/other", json={"features": 2, "prior": prior})
    assert refused.status_code == 422


def test_exploration_is_tuned_by_a_patch(http: httpx.Client) -> None:
    made = http.put("/models/tuned", json={"features": 2})
    assert made.status_code == 201
    for explore in (False, True):
        seq = http.patch("/models/tuned", json={"explore": explore}).json()["seq"]
        assert rank(http, "tuned", min_seq=seq)["explored"] is explore


def test_an_explanation_tells_what_the_order_contributes(http: httpx.Client) -> None:
    http.put("/models/explained", json={"features": 2})
    answer = rank(http, "explained", explain=True, explore=False)
    assert answer["documents"][0]["contributions"] == {"_order": 0.2}
    assert answer["documents"][0]["stddev"] > 1.0
