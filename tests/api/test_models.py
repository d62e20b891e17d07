"""`/models` over HTTP, and the options of a request: versions, waiting, explanations."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from app.domain import codec
from app.domain.model import ModelState, initial_state
from app.domain.model_config import COUNTING_RULES, new_model_config
from app.domain.records import Feedback, Record, Replace, Retune
from app.storage.embedded import server
from app.storage.states import StoredState
from app.storage.store import Store
from tests.api.services import PLAIN, Running, serving
from tests.servers import TIMEOUT, until, with_store

WAIT_UNTIL_LEARNT = {"Prefer": f"wait={TIMEOUT:g}"}
NO_NDCG = {"1": None, "5": None, "10": None, "all": None}
NO_QUALITY = {"ndcg": NO_NDCG, "ndcg_stderr": NO_NDCG, "map": None, "map_stderr": None}
NEW = {
    "name": "m",
    "algorithm": "solar-ii",
    "covariance": "full",
    "C": 1e-5,
    "gamma": 1e4,
    "normalization": "none",
    "clicks": "debiased",
    "explore": True,
    "prior": 0.045,
    "pair_bound": 12.0,
    "exploration": 1.0,
    "forgetting": 3e-5,
    "actions": {"click": 1.0, "add_to_cart": 2.0, "purchase": 4.0},
    "version": 0,
    "seq": 0,
    "features": ["bm25", "price"],
    "weights": {"bm25": 0.0, "price": 0.0, "_order": 0.045},
    "stddev": {"bm25": 1.0, "price": 1.0, "_order": math.sqrt(1e4 / 500)},
    "queries": 0,
    "feedback": 0,
    "rejected": 0,
    "pairs": {"stepped": 0, "passive": 0, "refused": 0, "bounded": 0},
    **NO_QUALITY,
    "abandoned_lists": 0,
    "baseline": NO_QUALITY,
    "lead": NO_QUALITY,
    "explored": {"queries": 0, **NO_QUALITY},
    "debiased_wins": {"model": None, "submitted": None, "lead": None},
    "debiased_wins_stderr": {"model": None, "submitted": None, "lead": None},
    "explored_share": None,
    "drift": 0.0,
}
EVENTS = count()
NAMES = count()


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="module")
def ready(http: httpx.Client) -> list[str]:
    """Models that the learner follows already, so that no test waits a second for that."""
    names = [f"ready-{at}" for at in range(16)]
    for name in names:
        settings = {**PLAIN, "features": ["bm25", "price"], "gamma": 10.0}
        assert http.put(f"/models/{name}", json=settings).status_code == 201
    for name in names:
        learn(http, name)
    return names


@pytest.fixture
def model(ready: list[str]) -> str:
    """A model of two features that has learnt one query."""
    return ready.pop()


def learn(http: httpx.Client, model: str, best: str = "a", **settings: Any) -> dict[str, Any]:
    """Post one judged query with its documents, wait until it is learnt, return the answer."""
    documents = [{"id": "a", "features": [1.0, 0.25]}, {"id": "b", "features": [0.5, 1.0]}]
    event = {
        "event_id": f"e{next(EVENTS)}",
        "type": "labels",
        "model": model,
        "documents": documents,
        "labels": {best: 1},
        **settings,
    }
    answered = http.post("/feedback", json=event, headers=WAIT_UNTIL_LEARNT)
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = answered.json()
    return found


def rank(http: httpx.Client, model: str, **options: Any) -> dict[str, Any]:
    answered = ask(http, model, **options)
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = answered.json()
    return found


def ask(http: httpx.Client, model: str, **options: Any) -> httpx.Response:
    columns = {"ids": ["a", "b", "c"], "features": [[1.0, 0.25], [0.5, 1.0], [-2.0, 0.5]]}
    return http.post("/rank", json={"model": model, **columns, **options})


def stored(service: Running, model: str) -> StoredState:
    return with_store(url(service), lambda store: store.states.load(model))


def url(service: Running) -> str:
    found = server.find(service.data)
    assert found is not None
    return found


def records(service: Running, model: str) -> list[Record]:
    async def read(store: Store) -> list[Record]:
        return [codec.load_record(one.record) for one in await store.log.read(model, 0, 1000)]

    return with_store(url(service), read)


# ---- create, read, list, delete ----


def test_creating_a_model_again_with_the_same_settings_is_200(http: httpx.Client) -> None:
    settings = {"features": ["bm25", "price"]}
    created = http.put("/models/m", json=settings)
    assert (created.status_code, created.json()) == (201, NEW)
    again = http.put("/models/m", json={**settings, "gamma": 10000, "covariance": "full"})
    assert (again.status_code, again.json()) == (200, NEW)
    assert http.get("/models/m").json() == NEW


@pytest.mark.parametrize("rule", [None, *COUNTING_RULES])
def test_creating_a_model_again_is_200_by_whatever_rule_it_counts(
    service: Running, http: httpx.Client, rule: int | None
) -> None:
    name, config = f"counts-{rule}", new_model_config(("bm25", "price"))
    state = initial_state(replace(config, counting=rule))
    with_store(url(service), lambda store: store.models.create(name, state))
    assert http.put(f"/models/{name}", json={"features": ["bm25", "price"]}).status_code == 200
    other = http.put(f"/models/{name}", json={"features": ["bm25", "price"], "gamma": 9.0})
    assert other.status_code == 409


@pytest.mark.parametrize(
    "other",
    [
        {"features": ["price", "bm25"]},
        {"features": ["bm25"]},
        {"features": 2},
        {"gamma": 9.0},
        {"algorithm": "solar-i"},
        {"covariance": "diagonal"},
        {"normalization": "query-minmax"},
        {"clicks": "click-skip-previous"},
        {"explore": False},
        {"prior": 0.0},
        {"pair_bound": 59.0},
        {"exploration": 0.5},
        {"forgetting": 0},
    ],
)
def test_other_settings_for_an_existing_name_are_refused(
    http: httpx.Client, other: dict[str, Any]
) -> None:
    settings = {"features": ["bm25", "price"]}
    http.put("/models/taken", json=settings)
    refused = http.put("/models/taken", json={**settings, **other})
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert http.get("/models/taken").json()["gamma"] == 1e4


def test_a_feature_count_gives_numbered_names(http: httpx.Client) -> None:
    settings = {"features": 3, "algorithm": "solar-i", "prior": 0}
    created = http.put("/models/counted", json=settings).json()
    assert created["features"] == ["f1", "f2", "f3"]
    assert created["weights"] == {"f1": 0.0, "f2": 0.0, "f3": 0.0}
    assert "stddev" not in created


def test_the_list_of_models_summarises_each(http: httpx.Client, model: str) -> None:
    listed = {one["name"]: one for one in http.get("/models").json()["models"]}
    assert listed[model] == {
        "name": model, "algorithm": "solar-ii", "features": 2, "version": 1, "seq": 1,
    }  # fmt: skip
    assert list(listed) == sorted(listed)


@pytest.mark.parametrize(
    "settings",
    [
        {"features": 2_001},
        {"features": [f"n{k}" for k in range(2_001)]},
        {"features": 100_001, "covariance": "diagonal"},
        {"features": 100_001, "algorithm": "solar-i"},
        {"features": [f"n{k}" for k in range(100_001)], "covariance": "diagonal"},
        {"features": 0},
        {"features": []},
        {"features": ["a", "a"]},
        {"features": [""]},
        {"features": 2, "gamma": 0.0},
        {"features": 2, "C": -1.0},
        {"features": 2, "algorithm": "solar-iii"},
        {"features": 2, "clicks": "all"},
        {"features": 2, "gama": 1.0},
    ],
)
def test_invalid_settings_are_refused_and_create_no_model(
    http: httpx.Client, settings: dict[str, Any]
) -> None:
    refused = http.put("/models/impossible", json=settings)
    assert refused.status_code == 422
    assert len(refused.content) <= 2_000
    assert http.get("/models/impossible").status_code == 404


@pytest.mark.parametrize(
    "settings",
    [{"covariance": "diagonal"}, {"algorithm": "solar-i"}],
    ids=["diagonal", "solar-i"],
)
def test_a_hundred_thousand_features_are_accepted_without_a_full_covariance(
    http: httpx.Client, settings: dict[str, Any]
) -> None:
    name, made = f"wide-{next(NAMES)}", {**PLAIN, "features": 100_000, **settings}
    assert http.put(f"/models/{name}", json=made).status_code == 201
    rows = np.zeros((2, 100_000), "<f4")
    rows[1, -1] = 1.0
    body = {"model": name, "ids": ["a", "b"], "features": rows.tobytes()}
    packed, kind = msgspec.msgpack.encode(body), {"content-type": "application/msgpack"}
    answered = http.post("/rank", content=packed, headers=kind).json()
    event = {
        "event_id": "e", "type": "labels", "request_id": answered["request_id"],
        "labels": {"b": 1},
    }  # fmt: skip
    assert http.post("/feedback", json=event, headers=WAIT_UNTIL_LEARNT).status_code == 200
    answered = http.post("/rank", content=packed, headers=kind).json()
    assert [one["id"] for one in answered["documents"]] == ["b", "a"]
    assert http.delete(f"/models/{name}").status_code == 204


def test_two_thousand_features_are_accepted_with_a_full_covariance(http: httpx.Client) -> None:
    assert http.put("/models/full", json={"features": 2_000}).status_code == 201
    assert len(http.get("/models/full").json()["stddev"]) == 2_000
    assert http.delete("/models/full").status_code == 204


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("PATCH", ""),
        ("GET", "/versions"),
        ("POST", "/rollback"),
    ],
)
def test_an_unknown_model_is_404_and_not_created(
    http: httpx.Client, method: str, path: str
) -> None:
    body = {"PATCH": {"gamma": 1.0}, "POST": {"version": 0}}.get(method)
    missing = http.request(method, f"/models/missing{path}", json=body)
    assert missing.status_code == 404
    assert ask(http, "missing").status_code == 404
    assert "missing" not in [one["name"] for one in http.get("/models").json()["models"]]


def test_a_model_created_again_has_a_new_epoch_and_no_earlier_requests(
    service: Running, http: httpx.Client, model: str
) -> None:
    request = rank(http, model)["request_id"]
    before = stored(service, model)
    settings = {"features": ["bm25", "price"], "gamma": 10.0}
    assert http.delete(f"/models/{model}").status_code == 204
    assert http.get(f"/models/{model}").status_code == 404
    assert ask(http, model).status_code == 404
    event = {"event_id": "gone", "type": "clicks", "request_id": request, "clicked": ["a"]}
    assert http.post("/feedback", json=event).status_code == 404
    assert http.delete(f"/models/{model}").status_code == 404
    assert http.put(f"/models/{model}", json=settings).status_code == 201
    after = stored(service, model)
    assert after.epoch > before.epoch
    assert after.state.chain != before.state.chain
    assert rank(http, model)["version"] == 0
    assert http.post("/feedback", json=event).status_code == 404
    assert learn(http, model)["seq"] == 1
    assert http.get(f"/models/{model}").json()["queries"] == 1


def test_a_model_created_again_may_have_other_features(http: httpx.Client, model: str) -> None:
    assert rank(http, model)["version"] == 1
    assert http.delete(f"/models/{model}").status_code == 204
    assert http.put(f"/models/{model}", json={"features": 1}).status_code == 201
    assert ask(http, model).status_code == 422
    assert rank(http, model, features=[[1.0], [2.0], [3.0]])["version"] == 0


# ---- every change is a log record ----


def test_a_change_of_hyper_parameters_is_a_record_and_applies_from_there(
    service: Running, http: httpx.Client, model: str
) -> None:
    tuned = http.patch(f"/models/{model}", json={"gamma": 500, "clicks": "click-skip-previous"})
    assert (tuned.status_code, tuned.json()) == (202, {"seq": 2})
    assert rank(http, model, min_seq=2)["version"] == 2
    answer = http.get(f"/models/{model}").json()
    assert (answer["gamma"], answer["clicks"], answer["C"]) == (500.0, "click-skip-previous", 1e-5)
    assert (answer["queries"], answer["feedback"]) == (1, 1)
    first, second = records(service, model)
    assert isinstance(first, Feedback)
    assert second == Retune(gamma=500.0, clicks="click-skip-previous")
    before = stored(service, model).state
    learn(http, model)
    check_step(before, stored(service, model).state, gamma=500.0)


def check_step(before: ModelState, after: ModelState, gamma: float) -> None:
    """Check one step of SOLAR-II on the pair of `learn` against the formula."""
    x = np.array([0.5, -0.75])
    w = before.model.weights
    sigma = np.zeros((2, 2))
    sigma[0, 0], sigma[1, 0], sigma[1, 1] = before.model.spread
    sigma[0, 1] = sigma[1, 0]
    s = sigma @ x
    expected = w + max(0.0, 1.0 - w @ x) / (x @ s + gamma) * s
    assert after.model.weights == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "change", [{}, {"gamma": 0.0}, {"gamma": -1}, {"C": 1e13}, {"clicks": "x"}, {"features": 3}]
)
def test_invalid_hyper_parameters_are_refused_without_a_record(
    http: httpx.Client, ready: list[str], change: dict[str, Any]
) -> None:
    model = ready[0]
    before = http.get(f"/models/{model}").json()
    assert http.patch(f"/models/{model}", json=change).status_code == 422
    assert http.get(f"/models/{model}").json() == before


def test_a_rollback_is_a_record_and_the_measures_continue(
    service: Running, http: httpx.Client, model: str
) -> None:
    learn(http, model, best="b")
    before = http.get(f"/models/{model}").json()
    back = http.post(f"/models/{model}/rollback", json={"version": 0})
    assert (back.status_code, back.json()) == (202, {"seq": 3})
    assert rank(http, model, min_seq=3)["version"] == 3
    answer = http.get(f"/models/{model}").json()
    assert answer["weights"] == {"bm25": 0.0, "price": 0.0}
    assert answer["stddev"] == {"bm25": 1.0, "price": 1.0}
    for measure in ("queries", "feedback", "ndcg", "map", "baseline", "pairs"):
        assert answer[measure] == before[measure]
    assert isinstance(records(service, model)[-1], Replace)
    learn(http, model)
    assert http.get(f"/models/{model}").json()["queries"] == 3


def test_the_version_before_a_rollback_can_be_restored(http: httpx.Client, model: str) -> None:
    before = http.get(f"/models/{model}").json()
    assert http.post(f"/models/{model}/rollback", json={"version": 0}).json() == {"seq": 2}
    assert rank(http, model, min_seq=2)["documents"][0]["score"] == 0.0
    kept = [one["version"] for one in http.get(f"/models/{model}/versions").json()["versions"]]
    assert kept == [0, 1]
    assert http.post(f"/models/{model}/rollback", json={"version": 1}).json() == {"seq": 3}
    rank(http, model, min_seq=3)
    after = http.get(f"/models/{model}").json()
    assert (after["weights"], after["stddev"]) == (before["weights"], before["stddev"])


def test_a_rollback_to_an_unkept_version_is_404(http: httpx.Client, model: str) -> None:
    refused = http.post(f"/models/{model}/rollback", json={"version": 1})
    assert (refused.status_code, refused.json()["detail"]) == (
        404,
        "version: not kept; GET /models/{name}/versions lists the kept versions",
    )
    assert http.post(f"/models/{model}/rollback", json={"version": -1}).status_code == 422
    assert http.get(f"/models/{model}").json()["seq"] == 1


# ---- options of a request ----


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": 2.0},
        {"gamma": 2.0, "covariance": "diagonal"},
        {"gamma": 2.0, "normalization": "query-minmax"},
        {"algorithm": "solar-i", "C": 0.5},
    ],
    ids=["full", "diagonal", "query-minmax", "solar-i"],
)
def test_an_explanation_sums_to_the_score_and_has_the_standard_deviation(
    service: Running, http: httpx.Client, settings: dict[str, Any]
) -> None:
    name = f"explained-{next(NAMES)}"
    http.put(f"/models/{name}", json={**PLAIN, "features": ["bm25", "price"], **settings})
    learn(http, name)
    learn(http, name, best="b")
    answered = rank(http, name, explain=True, top_k=2)["documents"]
    rows = {"a": [1.0, 0.25], "b": [0.5, 1.0], "c": [-2.0, 0.5]}
    if "normalization" in settings:
        rows = {"a": [1.0, 0.0], "b": [2.5 / 3, 1.0], "c": [0.0, 0.25 / 0.75]}
    model = stored(service, name).state.model
    assert len(answered) == 2
    for one in answered:
        assert sum(one["contributions"].values()) == pytest.approx(one["score"], abs=1e-12)
        phi = np.array(rows[one["id"]], np.float32).astype(np.float64)
        parts = dict(zip(["bm25", "price"], (model.weights * phi).tolist(), strict=True))
        assert one["contributions"] == pytest.approx(
            {name: part for name, part in parts.items() if part}, abs=1e-12
        )
        if "algorithm" in settings:
            assert "stddev" not in one
        else:
            assert one["stddev"] == pytest.approx(deviation(phi, model.spread), abs=1e-12)


def deviation(phi: Any, spread: Any) -> float:
    sigma = np.diag(spread) if len(spread) == 2 else None
    if sigma is None:
        a, b, c = spread
        sigma = np.array([[a, b], [b, c]])
    return float(np.sqrt(phi @ sigma @ phi))


def test_answers_have_no_explanation_by_default(http: httpx.Client, model: str) -> None:
    assert set(rank(http, model)["documents"][0]) == {"id", "rank", "score"}


def test_an_event_with_prefer_wait_is_answered_with_the_learnt_version(
    http: httpx.Client, model: str
) -> None:
    event = {
        "event_id": "w", "type": "triplets", "model": model, "triplets": [["a", "b"]],
        "documents": [{"id": "a", "features": [1, 0]}, {"id": "b", "features": [0, 1]}],
    }  # fmt: skip
    immediate = http.post("/feedback", json=event)
    assert (immediate.status_code, immediate.json()) == (
        202,
        {"accepted": 1, "duplicates": 0, "rejected": 0, "seq": 2, "errors": []},
    )
    waited = http.post("/feedback", json=event, headers=WAIT_UNTIL_LEARNT)
    assert (waited.status_code, waited.json()) == (
        200,
        {"accepted": 0, "duplicates": 1, "rejected": 0, "seq": 2, "errors": [], "version": 2},
    )
    assert waited.headers["preference-applied"] == "wait"


def test_a_min_seq_not_served_in_time_is_503_with_retry_after(
    http: httpx.Client, model: str
) -> None:
    late = ask(http, model, min_seq=1000)
    assert late.status_code == 503
    assert int(late.headers["retry-after"]) >= 1
    assert rank(http, model, min_seq=1)["version"] >= 1
    assert rank(http, model, min_seq=0)["version"] >= 1


def test_exploration_changes_the_order_but_not_the_scores(http: httpx.Client, model: str) -> None:
    rows = [[at / 20, (at * 7 % 20) / 20] for at in range(20)]
    close = {"ids": [f"d{at}" for at in range(20)], "features": rows}
    plain = rank(http, model, explore=False, **close)
    assert not plain["explored"]
    scores = {one["id"]: one["score"] for one in plain["documents"]}
    assert len(set(scores.values())) > 2
    orders = set()

    def has_three_orders() -> bool:
        answered = rank(http, model, explore=True, log=False, **close)
        assert answered["explored"]
        assert {one["id"]: one["score"] for one in answered["documents"]} == scores
        orders.add(tuple(one["id"] for one in answered["documents"]))
        return len(orders) > 2

    until(has_three_orders)
    for _ in range(5):
        again = rank(http, model, explore=False, **close)
        assert again["documents"] == plain["documents"]


def test_a_model_without_training_serves_the_submitted_order_or_explores_all_orders(
    http: httpx.Client,
) -> None:
    http.put("/models/blank", json={**PLAIN, "features": 2})
    plain = rank(http, "blank", explore=False)
    assert [one["id"] for one in plain["documents"]] == ["a", "b", "c"]
    assert not plain["explored"]
    drawn = [rank(http, "blank", explore=True, request_id=f"blank-{at}") for at in range(40)]
    assert all(one["explored"] for one in drawn)
    orders = {tuple(one["id"] for one in answer["documents"]) for answer in drawn}
    assert len(orders) == 6


def test_top_k_limits_the_ranking_and_its_feedback(http: httpx.Client, model: str) -> None:
    whole = [one["id"] for one in rank(http, model)["documents"]]
    answered = rank(http, model, top_k=2)
    assert [one["id"] for one in answered["documents"]] == whole[:2]
    assert [one["rank"] for one in answered["documents"]] == [1, 2]
    event = {"type": "clicks", "request_id": answered["request_id"]}
    unseen = http.post("/feedback", json={**event, "event_id": "u", "clicked": [whole[2]]})
    assert unseen.status_code == 422
    seen = http.post("/feedback", json={**event, "event_id": "s", "clicked": [whole[1]]})
    assert seen.status_code == 202
    assert len(rank(http, model, top_k=99)["documents"]) == 3
    assert ask(http, model, top_k=0).status_code == 422


def test_an_impression_that_is_not_logged_accepts_no_feedback(
    http: httpx.Client, model: str
) -> None:
    answered = rank(http, model, log=False)
    assert not answered["logged"]
    event = {
        "event_id": "l", "type": "clicks", "request_id": answered["request_id"],
        "clicked": ["a"],
    }  # fmt: skip
    assert http.post("/feedback", json=event).status_code == 404
    assert http.get(f"/models/{model}").json()["seq"] == 1


def test_your_own_request_id_and_query_id_are_returned(http: httpx.Client, model: str) -> None:
    answered = rank(http, model, request_id="my own", query_id="q-1")
    assert (answered["request_id"], answered["query_id"]) == ("my own", "q-1")
    assert answered["model"] == model
    event = {"event_id": "o", "type": "clicks", "request_id": "my own", "clicked": ["a"]}
    named = http.post("/feedback", json={**event, "model": model})
    assert (named.status_code, named.json()["seq"]) == (202, 2)


# ---- the default model ----


def test_without_default_features_there_is_no_default_model(http: httpx.Client) -> None:
    answered = http.post("/rank", json={"documents": [{"id": "a", "features": [1.0]}]})
    assert answered.status_code == 404
    assert http.get("/models/default").status_code == 404
