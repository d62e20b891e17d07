"""Exploration over HTTP: randomised rankings, pinned documents, and learning from their clicks."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from tests.api.services import PLAIN, Running, serving

IDS = [f"d{at}" for at in range(12)]
ROWS = [[at / 11, (at * 7 % 12) / 11] for at in range(12)]
WAIT_UNTIL_LEARNT = {"Prefer": "wait=20"}
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
            "unexplored": {"explore": False},
            "plain": PLAIN,
            "explored": {**PLAIN, "explore": True},
            "no-prior": {"prior": 0},
        }
        for name, settings in kinds.items():
            made = client.put(f"/models/{name}", json={"features": 2, **settings})
            assert made.status_code == 201, made.text
        for name in ("plain", "explored"):  # their scores must differ
            event = {"type": "triplets", "documents": documents(), "triplets": [["d11", "d0"]]}
            post(client, name, event)
        yield client


def documents() -> list[dict[str, Any]]:
    return [{"id": name, "features": row} for name, row in zip(IDS, ROWS, strict=True)]


def rank(http: httpx.Client, model: str, **options: Any) -> dict[str, Any]:
    answer = http.post("/rank", json={"model": model, "documents": documents(), **options})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def post(http: httpx.Client, model: str, event: dict[str, Any]) -> dict[str, Any]:
    body = {"event_id": f"e{next(EVENTS)}", "model": model, **event}
    answer = http.post("/feedback", json=body, headers=WAIT_UNTIL_LEARNT)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(answer: dict[str, Any]) -> list[str]:
    return [one["id"] for one in answer["documents"]]


def orders(http: httpx.Client, model: str, **options: Any) -> set[tuple[str, ...]]:
    return {tuple(ids(rank(http, model, **options))) for _ in range(30)}


@pytest.mark.parametrize(
    ("model", "explores"),
    [("drawn", True), ("fair", True), ("explored", True), ("unexplored", False), ("plain", False)],
)
def test_exploration_follows_the_model_setting_and_a_request_can_override_it(
    http: httpx.Client, model: str, explores: bool
) -> None:
    assert http.get(f"/models/{model}").json()["explore"] is explores
    assert rank(http, model)["explored"] is explores
    assert (len(orders(http, model)) > 1) is explores
    assert not rank(http, model, explore=False)["explored"]
    assert len(orders(http, model, explore=False)) == 1
    assert rank(http, model, explore=True)["explored"]


@pytest.mark.parametrize("model", ["drawn", "fair"])
def test_the_same_request_id_gets_the_same_ranking(http: httpx.Client, model: str) -> None:
    first = rank(http, model, request_id="again", top_k=8)
    for _ in range(5):
        assert rank(http, model, request_id="again", top_k=8)["documents"] == first["documents"]
    assert len({tuple(ids(rank(http, model, request_id=f"r{at}"))) for at in range(10)}) > 1


def test_fair_pairs_swaps_neighbours_of_the_model_order_only(http: httpx.Client) -> None:
    plain = ids(rank(http, "fair", explore=False))
    for shown in orders(http, "fair"):
        assert all(abs(shown.index(one) - plain.index(one)) <= 1 for one in plain)


@pytest.mark.parametrize("model", ["drawn", "fair", "plain"])
def test_pinned_documents_keep_their_positions(http: httpx.Client, model: str) -> None:
    for at in range(10):
        shown = ids(rank(http, model, pinned=["d2", "d0", "d11"], request_id=f"p{at}", top_k=5))
        assert (shown[0], shown[2], len(shown)) == ("d0", "d2", 5)
        assert "d11" not in shown


def test_a_click_on_a_pinned_document_counts_but_is_not_learnt(http: httpx.Client) -> None:
    before = http.get("/models/drawn").json()
    answer = rank(http, "drawn", pinned=["d0"])
    post(http, "drawn", {"type": "clicks", "request_id": answer["request_id"], "clicked": ["d0"]})
    after = http.get("/models/drawn").json()
    assert after["weights"] == before["weights"]
    assert after["queries"] == before["queries"] + 1


def test_an_unknown_pinned_document_is_refused(http: httpx.Client) -> None:
    body = {"model": "drawn", "documents": documents(), "pinned": ["d1", "missing"]}
    refused = http.post("/rank", json=body)
    assert refused.status_code == 422
    assert refused.json()["detail"] == "pinned[1]: expected the id of a submitted document"


@pytest.mark.parametrize("model", ["drawn", "fair"])
def test_clicks_on_randomised_rankings_are_learnt_and_measured(
    http: httpx.Client, model: str
) -> None:
    before = http.get(f"/models/{model}").json()
    for at in range(6):  # fixed ids: with random ones, clicks can favour neither order
        answer = rank(http, model, top_k=6, request_id=f"clicked-{at}")
        clicked = [ids(answer)[1], ids(answer)[4]]
        event = {"type": "clicks", "request_id": answer["request_id"], "clicked": clicked}
        post(http, model, event)
    after = http.get(f"/models/{model}").json()
    assert after["weights"] != before["weights"]
    assert after["explored"]["queries"] == before["explored"]["queries"] + 6
    assert after["debiased_wins"]["model"] > 0.0
    assert after["explored"]["ndcg"]["10"] > 0.0


def test_a_debiased_model_does_not_learn_from_clicks_on_its_model_order(http: httpx.Client) -> None:
    before = http.get("/models/unexplored").json()
    answer = rank(http, "unexplored")
    post(
        http,
        "unexplored",
        {"type": "clicks", "request_id": answer["request_id"], "clicked": ["d5"]},
    )
    after = http.get("/models/unexplored").json()
    assert after["weights"] == before["weights"]
    assert (after["queries"], after["explored"]["queries"]) == (before["queries"] + 1, 0)


def test_labels_are_learnt_without_exploration(http: httpx.Client) -> None:
    answer = rank(http, "unexplored")
    post(
        http,
        "unexplored",
        {"type": "labels", "request_id": answer["request_id"], "labels": {"d5": 2}},
    )
    weights = http.get("/models/unexplored").json()["weights"]
    assert weights["f1"] != 0.0


def test_without_a_prior_the_first_rankings_reach_every_document(http: httpx.Client) -> None:
    """A model that knows nothing finds what is submitted last, and learns from its first click."""
    first = {ids(rank(http, "no-prior", top_k=3, request_id=f"n{at}"))[0] for at in range(80)}
    assert first == set(IDS)
    answer = rank(http, "no-prior", request_id="n")
    assert answer["explored"]
    event = {"type": "clicks", "request_id": answer["request_id"], "clicked": ["d11"]}
    post(http, "no-prior", event)
    assert ids(rank(http, "no-prior", explore=False))[0] == "d11"
    assert http.get("/models/no-prior").json()["explored"]["queries"] == 1


def test_more_exploration_moves_documents_further(http: httpx.Client) -> None:
    """The same requests at four amounts: 0 is the model order, 100 nearly random."""
    http.put("/models/amount", json={"features": 2, "prior": 0})
    labels = {"type": "labels", "documents": documents(), "labels": {"d11": 2, "d10": 1}}
    for _ in range(30):
        post(http, "amount", labels)
    plain, moved = ids(rank(http, "amount", explore=False)), []
    for amount in (0, 1, 10, 100):
        seq = http.patch("/models/amount", json={"exploration": amount}).json()["seq"]
        shown = [ids(rank(http, "amount", min_seq=seq, request_id=f"a{at}")) for at in range(40)]
        moved.append(sum(abs(one.index(d) - plain.index(d)) for one in shown for d in IDS))
    assert moved[0] == 0 < moved[1] < moved[2] < moved[3]
    assert http.get("/models/amount").json()["explore"] is True
    seq = http.patch("/models/amount", json={"exploration": 0}).json()["seq"]
    assert not rank(http, "amount", explore=True, min_seq=seq)["explored"]
    assert http.get("/models/amount").json()["explore"] is False


@pytest.mark.parametrize(
    ("name", "value"),
    [("exploration", -1), ("exploration", 101), ("exploration", "1"), ("exploration", None),
     ("forgetting", -1e-9), ("forgetting", 0.2), ("forgetting", True), ("forgetting", None)],
)  # fmt: skip
def test_an_impossible_amount_is_refused(http: httpx.Client, name: str, value: Any) -> None:
    refused = http.put("/models/other", json={"features": 2, name: value})
    assert refused.status_code == 422
    assert name in refused.json()["detail"]
    refused = http.patch("/models/drawn", json={name: value})
    assert refused.status_code == 422
    assert name in refused.json()["detail"]


def test_solar_i_refuses_to_forget(http: httpx.Client) -> None:
    first = {"features": 2, "algorithm": "solar-i"}
    refused = http.put("/models/first", json={**first, "forgetting": 1e-4})
    assert refused.status_code == 422
    assert "forgetting: expected 0 for solar-i" in refused.json()["detail"]
    assert http.put("/models/first", json=first).json()["forgetting"] == 0.0
    assert http.patch("/models/first", json={"forgetting": 1e-4}).status_code == 422


def test_the_default_model_has_the_default_settings(http: httpx.Client) -> None:
    answer = http.post("/rank", json={"documents": documents()})
    assert answer.status_code == 200
    made = http.get("/models/default").json()
    assert (made["clicks"], made["prior"], made["explore"]) == ("debiased", 0.045, True)
    assert made["features"] == ["f1", "f2"]


def test_the_reserved_feature_name_of_the_submitted_order_is_refused(http: httpx.Client) -> None:
    refused = http.put("/models/other", json={"features": ["a", "_order"]})
    assert refused.status_code == 422
    assert "expected names other than _order" in refused.json()["detail"]
    body = {"model": "drawn", "documents": [{"id": "a", "features": {"_order": 1}}]}
    assert http.post("/rank", json=body).status_code == 422
    wide = {"model": "drawn", "documents": [{"id": "a", "features": [1, 2, 3]}]}
    assert http.post("/rank", json=wide).status_code == 422


@pytest.mark.parametrize("prior", [-1, "1", True, 1e5])
def test_an_invalid_prior_is_refused(http: httpx.Client, prior: Any) -> None:
    refused = http.put("/models/other", json={"features": 2, "prior": prior})
    assert refused.status_code == 422


def test_a_patch_switches_exploration_on_and_off(http: httpx.Client) -> None:
    made = http.put("/models/tuned", json={"features": 2})
    assert made.status_code == 201
    for explore in (False, True):
        seq = http.patch("/models/tuned", json={"explore": explore}).json()["seq"]
        assert rank(http, "tuned", min_seq=seq)["explored"] is explore


def test_an_explanation_includes_the_contribution_of_the_submitted_order(
    http: httpx.Client,
) -> None:
    http.put("/models/explained", json={"features": 2})
    answer = rank(http, "explained", explain=True, explore=False)
    assert answer["documents"][0]["contributions"] == {"_order": 0.045}
    assert answer["documents"][0]["stddev"] > 1.0
