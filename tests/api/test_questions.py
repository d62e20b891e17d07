"""Questions to a model over HTTP: compare two documents, and try feedback on a copy."""

import random
from collections.abc import Iterator
from itertools import count
from math import fsum, sqrt
from typing import Any

import httpx
import numpy as np
import pytest
import redis

from app.storage.embedded import server
from tests.api.services import Running, serving

PLAIN = {"clicks": "click-skip-above", "prior": 0, "forgetting": 0}
FEATURES = ["bm25", "price", "age"]
MODELS: dict[str, dict[str, Any]] = {
    "plain": {**PLAIN, "gamma": 3.0},
    "first-order": {**PLAIN, "algorithm": "solar-i", "C": 0.1},
    "diagonal": {"covariance": "diagonal", "gamma": 30.0, "normalization": "query-minmax"},
    "debiased": {"gamma": 30.0, "normalization": "query-minmax"},
    "fair": {"clicks": "fair-pairs", "gamma": 30.0},
    "silent": {"explore": False, "gamma": 30.0},
}
LEARNT = {"prefer": "wait=20"}
EVENTS = count()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    """A service whose models have learnt a little."""
    with running.client() as http:
        for name, settings in MODELS.items():
            made = http.put(f"/models/{name}", json={"features": FEATURES, **settings})
            assert made.status_code == 201
            for seed in range(20):
                learn(http, name, documents(5, seed))
        yield http


def documents(count: int, seed: int) -> list[dict[str, Any]]:
    drawn = random.Random(seed)  # noqa: S311  # documents, not secrets
    return [
        {"id": f"d{at}", "features": [round(drawn.uniform(-1, 1), 3) for _ in FEATURES]}
        for at in range(count)
    ]


def learn(http: httpx.Client, model: str, given: list[dict[str, Any]]) -> None:
    """Post that the last document is better than the others."""
    body = {"event_id": f"e{next(EVENTS)}", "type": "labels", "model": model,
            "documents": given, "labels": {given[-1]["id"]: 1}}  # fmt: skip
    assert http.post("/feedback", json=body, headers=LEARNT).status_code == 200


def ask(http: httpx.Client, path: str, **body: Any) -> Any:
    answer = http.post(f"/models/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ranked(http: httpx.Client, model: str, given: Any, **more: Any) -> Any:
    body = {"model": model, "documents": given, "log": False, "explore": False, **more}
    answer = http.post("/rank", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def stored(running: Running) -> dict[bytes, bytes]:
    """Return all of the store but leases, the registry of learners, and what workers count."""
    url = server.find(running.data)
    assert url is not None
    with redis.Redis.from_url(url) as store:
        other = (b":lease", b":fence", b"solar:kept")
        names = [name for name in store.keys("*") if not name.endswith(other)]
        return {name: store.dump(name) for name in sorted(names) if b"learners" not in name}


# ---- compare ----


@pytest.mark.parametrize("model", MODELS)
def test_a_comparison_agrees_with_the_explanation_of_rank(client: httpx.Client, model: str) -> None:
    given = documents(6, 77)
    explained = {one["id"]: one for one in ranked(client, model, given, explain=True)["documents"]}
    found = ask(client, f"{model}/compare", documents=given, first="d4", second="d1")
    a, b = explained["d4"], explained["d1"]
    assert found["first"] == {"id": "d4", "score": a["score"]}
    assert found["second"] == {"id": "d1", "score": b["score"]}
    assert found["gap"] == a["score"] - b["score"]
    parts = {one["feature"]: one["contribution"] for one in found["contributions"]}
    names = {*a["contributions"], *b["contributions"]}
    assert names >= set(parts)
    for name in names:
        expected = a["contributions"].get(name, 0.0) - b["contributions"].get(name, 0.0)
        assert parts.get(name, 0.0) == pytest.approx(expected, abs=1e-12)
    assert fsum(parts.values()) == pytest.approx(found["gap"], abs=1e-12)
    assert found["rest"] == {"features": 0, "contribution": 0.0}
    values = [abs(one["contribution"]) for one in found["contributions"]]
    assert values == sorted(values, reverse=True)
    assert found["version"] == client.get(f"/models/{model}").json()["version"]


def test_each_contribution_is_the_weight_times_the_difference_of_the_values(
    client: httpx.Client,
) -> None:
    weights = client.get("/models/debiased").json()["weights"]
    found = ask(client, "debiased/compare", documents=documents(4, 3), first="d0", second="d3")
    assert {one["feature"] for one in found["contributions"]} == {*FEATURES, "_order"}
    for one in found["contributions"]:
        assert one["weight"] == weights[one["feature"]]
        assert one["contribution"] == one["weight"] * (one["first"] - one["second"])


def test_the_deviation_of_a_diagonal_model_is_that_of_its_weights(client: httpx.Client) -> None:
    about = client.get("/models/diagonal").json()
    found = ask(client, "diagonal/compare", documents=documents(4, 3), first="d0", second="d3")
    parts = {one["feature"]: one["first"] - one["second"] for one in found["contributions"]}
    expected = sqrt(sum((parts[name] * about["stddev"][name]) ** 2 for name in parts))
    assert found["stddev"] == pytest.approx(expected, rel=1e-12)
    assert found["stderr"] == pytest.approx(expected / sqrt(about["gamma"]), rel=1e-12)


def test_the_deviation_of_a_full_model_is_that_of_rank_for_a_document_of_the_difference(
    client: httpx.Client,
) -> None:
    a, b = [0.5, 0.25, -1.0], [0.25, -0.5, 0.125]
    difference = [{"id": "x", "features": [one - other for one, other in zip(a, b, strict=True)]}]
    found = ask(
        client, "plain/compare", first="a", second="b",
        documents=[{"id": "a", "features": a}, {"id": "b", "features": b}],
    )  # fmt: skip
    [explained] = ranked(client, "plain", difference, explain=True)["documents"]
    assert found["stddev"] == pytest.approx(explained["stddev"], rel=1e-12)
    assert found["gap"] == pytest.approx(explained["score"], rel=1e-12)


def test_solar_i_has_no_deviation_and_a_model_without_exploration_no_exchange(
    client: httpx.Client,
) -> None:
    chances = {
        model: ask(client, f"{model}/compare", documents=documents(3, 1), first="d0", second="d1")
        for model in MODELS
    }
    assert chances["first-order"]["stddev"] is chances["first-order"]["stderr"] is None
    assert {model for model, one in chances.items() if one["exchange_probability"] is None} == {
        "plain", "first-order", "silent",
    }  # fmt: skip


def test_two_documents_are_exchanged_as_often_as_rank_exchanges_them(client: httpx.Client) -> None:
    given = documents(4, 5)
    for model in ("debiased", "fair"):
        order = [one["id"] for one in ranked(client, model, given)["documents"]]
        for first, second in ((0, 1), (1, 0), (1, 2)):
            chance = ask(
                client, f"{model}/compare", documents=given, first=order[first],
                second=order[second],
            )["exchange_probability"]  # fmt: skip
            upper, lower = order[min(first, second)], order[max(first, second)]
            drawn, draws = 0, 400
            for at in range(draws):
                more = {"explore": True, "request_id": f"draw-{at}"}
                shown = ranked(client, model, given, **more)["documents"]
                ids = [one["id"] for one in shown]
                drawn += ids.index(lower) < ids.index(upper)
            error = sqrt(max(chance * (1 - chance), 1e-4) / draws)
            assert drawn / draws == pytest.approx(chance, abs=4.5 * error)


def test_documents_as_scored_are_used_as_they_are(client: httpx.Client) -> None:
    given = documents(5, 8)
    plain = ask(client, "debiased/compare", documents=given, first="d4", second="d1")
    rows = np.array([one["features"] for one in given], np.float32).astype(np.float64)
    scaled = (rows - rows.min(0)) / (rows.max(0) - rows.min(0))
    scored = [
        {"id": one["id"], "features": [*map(float, row.astype(np.float32)), 1 - at / 4]}
        for at, (one, row) in enumerate(zip(given, scaled, strict=True))
    ]
    both = scored[::-1]  # the order as submitted is a feature, and not the order of the rows
    found = ask(client, "debiased/compare", documents=both, first="d4", second="d1", scored=True)
    assert found == plain
    two = [scored[1], scored[4]]  # a part of the list is not scaled again
    part = ask(client, "debiased/compare", documents=two, first="d4", second="d1", scored=True)
    assert (part["gap"], part["contributions"]) == (plain["gap"], plain["contributions"])
    named = [
        {
            "id": one["id"],
            "features": dict(zip([*FEATURES, "_order"], one["features"], strict=True)),
        }
        for one in scored
    ]
    assert plain == ask(
        client, "debiased/compare", documents=named, first="d4", second="d1", scored=True
    )


def test_of_many_features_200_are_listed_and_the_rest_is_summed(client: httpx.Client) -> None:
    wide = {**PLAIN, "features": 300, "covariance": "diagonal", "gamma": 1.0}
    assert client.put("/models/wide", json=wide).status_code == 201
    rows = [[1.0 + at * k for k in range(300)] for at in range(2)]
    given = [{"id": f"d{at}", "features": row} for at, row in enumerate(rows)]
    learn(client, "wide", given)
    found = ask(client, "wide/compare", documents=given, first="d1", second="d0")
    assert len(found["contributions"]) == 200
    assert found["rest"]["features"] == 99  # the first feature is equal
    smallest = abs(found["contributions"][-1]["contribution"])
    assert 0.0 < found["rest"]["contribution"] / 99 < smallest
    total = fsum([one["contribution"] for one in found["contributions"]])
    assert total + found["rest"]["contribution"] == pytest.approx(found["gap"], rel=1e-12)


# ---- what-if ----


def shown_unmoved(client: httpx.Client, model: str, given: Any, order: list[str]) -> str:
    """Rank until exploration leaves the order of the scores unchanged; return the request."""
    for at in range(1000):
        body = {"model": model, "documents": given, "request_id": f"{model}-{at}"}
        answer = client.post("/rank", json=body).json()
        explores = model in ("debiased", "diagonal", "fair")
        if [one["id"] for one in answer["documents"]] == order and answer["explored"] == explores:
            assert answer["logged"]
            return str(answer["request_id"])
    raise AssertionError("exploration never left the order unchanged")


@pytest.mark.parametrize("model", MODELS)
def test_the_weights_after_a_trial_are_those_after_the_same_feedback_to_the_bit(
    client: httpx.Client, model: str
) -> None:
    given = documents(2 if model == "fair" else 4, 21)  # of two, neighbours are swapped or not
    order = [one["id"] for one in ranked(client, model, given)["documents"]]
    found = ask(client, f"{model}/what-if", documents=given, clicks=order[1:2])
    assert found["shown"] == found["order_before"] == order
    before = client.get(f"/models/{model}").json()
    request = shown_unmoved(client, model, given, order)
    event = {"event_id": f"e{next(EVENTS)}", "type": "clicks", "model": model,
             "request_id": request, "clicked": order[1:2]}  # fmt: skip
    assert client.post("/feedback", json=event, headers=LEARNT).status_code == 200
    after = client.get(f"/models/{model}").json()
    changed = {
        name for name in after["weights"] if after["weights"][name] != before["weights"][name]
    }
    assert {one["feature"] for one in found["weights"]} == changed
    assert bool(changed) == (model != "silent")  # which learns from randomised rankings only
    for one in found["weights"]:
        name = one["feature"]
        assert (one["before"], one["after"]) == (before["weights"][name], after["weights"][name])
        assert one["stddev_before"] == before.get("stddev", {}).get(name)
        assert one["stddev_after"] == after.get("stddev", {}).get(name)
    outcomes = [one["outcome"] for one in found["pairs"]]
    for name in ("stepped", "passive", "refused"):
        assert after["pairs"][name] - before["pairs"][name] == outcomes.count(name)
    assert found["order_after"] == [one["id"] for one in ranked(client, model, given)["documents"]]
    assert (found["more_pairs"], found["more_weights"]) == (0, 0)


def test_a_pair_has_the_gap_of_its_documents_as_margin(client: httpx.Client) -> None:
    given = documents(3, 30)
    order = [one["id"] for one in ranked(client, "plain", given)["documents"]]
    found = ask(client, "plain/what-if", documents=given, clicks=[order[2]])
    assert [(one["preferred"], one["other"]) for one in found["pairs"]] == [
        (order[2], order[0]), (order[2], order[1]),
    ]  # fmt: skip
    gap = ask(client, "plain/compare", documents=given, first=order[2], second=order[0])["gap"]
    assert found["pairs"][0]["margin"] == pytest.approx(gap, rel=1e-12)
    assert found["pairs"][0]["weight"] == 1.0


def test_a_trial_without_clicks_changes_nothing(client: httpx.Client) -> None:
    found = ask(client, "debiased/what-if", documents=documents(3, 30), clicks=[])
    assert (found["pairs"], found["weights"]) == ([], [])
    assert found["order_after"] == found["order_before"]


def test_of_many_pairs_100_are_listed(client: httpx.Client) -> None:
    given = documents(120, 31)
    order = [one["id"] for one in ranked(client, "plain", given)["documents"]]
    found = ask(client, "plain/what-if", documents=given, clicks=[order[-1]])
    assert (len(found["pairs"]), found["more_pairs"]) == (100, 19)


def test_a_trial_of_documents_as_scored_uses_them_as_they_are(client: httpx.Client) -> None:
    given = documents(3, 32)
    plain = ask(client, "silent/what-if", documents=given, clicks=["d1"])
    scored = [
        {"id": one["id"], "features": [*one["features"], 1 - at / 2]}
        for at, one in enumerate(given)
    ]
    assert ask(client, "silent/what-if", documents=scored, clicks=["d1"], scored=True) == plain


def test_questions_store_nothing(running: Running, client: httpx.Client) -> None:
    before = stored(running)
    for model in MODELS:
        ask(client, f"{model}/compare", documents=documents(3, 1), first="d0", second="d1")
        ask(client, f"{model}/what-if", documents=documents(3, 1), clicks=["d2"])
        ask(client, f"{model}/what-if", documents=documents(3, 1), clicks=[])
    assert stored(running) == before


# ---- invalid questions ----

GIVEN = documents(3, 1)
WRONG: list[tuple[str, int, dict[str, Any]]] = [
    ("compare", 422, {"documents": GIVEN, "first": "d0", "second": "d0"}),
    ("compare", 422, {"documents": GIVEN, "first": "d0", "second": "d9"}),
    ("compare", 422, {"documents": GIVEN, "first": "d9", "second": "d0"}),
    ("compare", 422, {"documents": GIVEN, "first": "", "second": "d0"}),
    ("compare", 422, {"documents": GIVEN, "first": "d0"}),
    ("compare", 422, {"documents": [], "first": "d0", "second": "d1"}),
    ("compare", 422, {"documents": [GIVEN[0], GIVEN[0]], "first": "d0", "second": "d1"}),
    ("compare", 422, {"documents": GIVEN, "first": "d0", "second": "d1", "more": 1}),
    ("compare", 422, {"documents": GIVEN, "first": "d0", "second": "d1", "scored": 1}),
    ("compare", 422, {"documents": GIVEN, "first": "d0", "second": "d1", "scored": True,
                      "documents ": []}),
    ("compare", 422, {"documents": [{"id": "d0", "features": [1]}, *GIVEN[1:]], "first": "d0",
                      "second": "d1"}),
    ("compare", 422, {"documents": [{"id": "d0", "features": [1, 2, 1e300]}, *GIVEN[1:]],
                      "first": "d0", "second": "d1"}),
    ("compare", 422, {"documents": [{"id": "d0", "features": {"x": 1}}, *GIVEN[1:]],
                      "first": "d0", "second": "d1"}),
    ("compare", 422, {"documents": [{"id": f"d{at}", "features": {}} for at in range(1001)],
                      "first": "d0", "second": "d1"}),
    ("what-if", 422, {"documents": GIVEN, "clicks": ["d9"]}),
    ("what-if", 422, {"documents": GIVEN, "clicks": ["d0", "d1", "d2", "d0"]}),
    ("what-if", 422, {"documents": GIVEN, "clicks": "d0"}),
    ("what-if", 422, {"documents": GIVEN}),
    ("what-if", 422, {"documents": [], "clicks": []}),
    ("what-if", 422, {"documents": GIVEN, "clicks": [], "more": 1}),
    ("what-if", 422, {"documents": [{"id": "d0", "features": [1, 2]}], "clicks": []}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "status", "body"), WRONG)
def test_an_invalid_question_is_refused(
    running: Running, client: httpx.Client, path: str, status: int, body: dict[str, Any]
) -> None:
    before = stored(running)
    answer = client.post(f"/models/plain/{path}", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (
        status, "application/problem+json",
    )  # fmt: skip
    assert len(answer.content) < 2000
    assert stored(running) == before


@pytest.mark.parametrize("path", ["compare", "what-if"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b""),
        (400, b"{"),
        (400, b'{"documents": [{"id": "a", "features": [NaN, 1, 2]}]}'),
        (422, b'{"documents": [{"id": "a", "features": [1e400, 1, 2]}]}'),
        (422, b"[]"),
        (422, b"null"),
        (400, b"\xff"),
        (422, b'{"documents": null}'),
    ],
)
def test_a_body_that_is_no_question_is_refused(
    client: httpx.Client, path: str, status: int, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post(f"/models/plain/{path}", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize("path", ["compare", "what-if"])
def test_a_question_needs_json_and_a_model(client: httpx.Client, path: str) -> None:
    assert client.post(f"/models/plain/{path}", content=b"{}").status_code == 415
    valid = {
        "compare": WRONG[0][2] | {"second": "d1"},
        "what-if": {"documents": GIVEN, "clicks": []},
    }
    for missing in ("missing", "no.name"):
        assert client.post(f"/models/{missing}/{path}", json=valid[path]).status_code == 404
    assert client.get("/models/missing").status_code == 404


def test_questions_have_the_limits_of_rank() -> None:
    limits = {"SOLAR_NUMBERS": "100", "SOLAR_BODY_BYTES": "100000", "SOLAR_PAIRS": "10"}
    with serving(environ=limits) as running, running.client() as http:
        http.put("/models/books", json={"features": 50, **PLAIN})
        given = [{"id": f"d{at}", "features": [0.0] * 50} for at in range(3)]
        compared = {"documents": given, "first": "d0", "second": "d1"}
        many = {"documents": given * 900, "clicks": []}
        assert http.post("/models/books/compare", json=compared).status_code == 200  # 150 are few
        wide = [{"id": f"d{at}", "features": [0.0] * 50} for at in range(80)]
        answer = http.post("/models/books/compare", json={**compared, "documents": wide})
        assert answer.status_code == 413
        assert "SOLAR_NUMBERS" in answer.json()["detail"]
        assert http.post("/models/books/what-if", json=many).status_code == 413
        few = [{"id": f"d{at}", "features": {}} for at in range(12)]
        refused = http.post("/models/books/what-if", json={"documents": few, "clicks": ["d11"]})
        assert refused.status_code == 422
        assert "at most 10 pairs" in refused.json()["detail"]


def test_a_damaged_model_answers_503(client: httpx.Client, running: Running) -> None:
    assert client.put("/models/broken", json={"features": FEATURES, **PLAIN}).status_code == 201
    url = server.find(running.data)
    assert url is not None
    with redis.Redis.from_url(url) as store:
        store.hset("solar:{broken}:state", "spread", b"damaged")
        body = {"documents": GIVEN, "first": "d0", "second": "d1"}
        assert client.post("/models/broken/compare", json=body).status_code in (200, 503)
        store.delete("solar:{broken}:state")
        refused = client.post("/models/broken/what-if", json={"documents": GIVEN, "clicks": []})
        assert refused.status_code in (404, 503)
    client.delete("/models/broken")
