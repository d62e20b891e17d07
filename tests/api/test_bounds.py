"""`pair_bound` over HTTP: create, read, tune, count; the weights that a caller may send."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Retune
from tests.api.services import Running, serving
from tests.api.test_models import WAIT_UNTIL_LEARNT, records, stored, url
from tests.api.test_processes import metrics
from tests.servers import until, with_store
from tests.test_metrics import series

EVENTS = count()
DOCUMENTS = [{"id": "a", "features": [100.0, 0.0]}, {"id": "b", "features": [0.0, 0.0]}]


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="module")
def old(service: Running) -> str:
    """A model that was created before there were bounds."""
    state = initial_state(ModelConfig(("x", "y"), clicks="debiased"))
    with_store(url(service), lambda store: store.models.create("old", state))
    return "old"


def create(http: httpx.Client, name: str, **settings: Any) -> httpx.Response:
    return http.put(f"/models/{name}", json={"features": ["x", "y"], "prior": 0, **settings})


def post(http: httpx.Client, model: str, *weights: float) -> httpx.Response:
    event = {
        "event_id": f"e{next(EVENTS)}", "type": "triplets", "model": model, "documents": DOCUMENTS,
        "triplets": [["a", "b", weight] for weight in weights],
    }  # fmt: skip
    return http.post("/feedback", json=event, headers=WAIT_UNTIL_LEARNT)


def test_a_new_model_has_a_bound_of_4_for_each_feature(http: httpx.Client) -> None:
    assert create(http, "new").json()["pair_bound"] == 8.0
    assert create(http, "ordered", prior=0.2).json()["pair_bound"] == 12.0
    assert create(http, "fair", clicks="fair-pairs").json()["pair_bound"] == 160.0
    assert http.get("/models/new").json()["pair_bound"] == 8.0


def test_a_bound_can_be_stated(http: httpx.Client) -> None:
    assert create(http, "stated", pair_bound=7.5).json()["pair_bound"] == 7.5
    assert create(http, "stated", pair_bound=7.5).status_code == 200
    assert create(http, "stated").status_code == 409


@pytest.mark.parametrize("bound", [None, 0, -1, 1e13, "20", True])
def test_an_invalid_bound_is_refused(http: httpx.Client, bound: Any) -> None:
    refused = create(http, "invalid", pair_bound=bound)
    assert refused.status_code == 422
    assert "pair_bound" in refused.json()["detail"]
    create(http, "valid")
    refused = http.patch("/models/valid", json={"pair_bound": bound})
    assert refused.status_code == 422
    assert "pair_bound" in refused.json()["detail"]
    assert http.get("/models/invalid").status_code == 404


def test_pairs_above_the_bound_are_learnt_with_a_smaller_weight_and_counted(
    service: Running, http: httpx.Client
) -> None:
    create(http, "counted", pair_bound=40)
    assert post(http, "counted", 1.0, 2.0, 0.001).status_code == 200
    found = http.get("/models/counted").json()
    assert found["pairs"] == {"stepped": 3, "passive": 0, "refused": 0, "bounded": 2}
    assert metrics(http)[series("solar_bounded_pairs", model="counted")] == 2.0
    assert stored(service, "counted").state.measures()["bounded"] == 2.0


@pytest.mark.parametrize("weight", [0.0009, 20.1, 1e12])
def test_a_bounded_model_refuses_triplets_with_other_weights(
    service: Running, http: httpx.Client, weight: float
) -> None:
    create(http, "narrow")
    refused = post(http, "narrow", 0.001, 20.0, weight)
    assert refused.status_code == 422
    expected = "triplets[2]: expected a weight from 0.001 to 20"
    assert refused.json()["detail"] == expected
    assert records(service, "narrow") == []


def test_a_model_without_a_bound_shows_none_and_accepts_all_weights(
    http: httpx.Client, old: str
) -> None:
    assert "pair_bound" not in http.get(f"/models/{old}").json()
    assert post(http, old, 1e-12, 1e12).status_code == 200
    assert http.get(f"/models/{old}").json()["pairs"]["bounded"] == 0
    refused = post(http, old, 1.0, 1e13)
    assert refused.json()["detail"] == "triplets[1]: expected a weight from 1e-12 to 1e+12"


def test_creating_a_model_from_before_the_bounds_again_is_still_200(
    http: httpx.Client, old: str
) -> None:
    assert create(http, old).status_code == 200
    assert create(http, old, pair_bound=40.0).status_code == 409


def test_an_old_model_adopts_a_bound_by_patch(service: Running, http: httpx.Client) -> None:
    state = initial_state(ModelConfig(("x", "y"), clicks="debiased"))
    with_store(url(service), lambda store: store.models.create("adopts", state))
    answer = http.patch("/models/adopts", json={"pair_bound": 40}).raise_for_status().json()
    until(lambda: http.get("/models/adopts").json()["version"] == answer["seq"])
    assert http.get("/models/adopts").json()["pair_bound"] == 40.0
    assert records(service, "adopts") == [Retune(pair_bound=40.0)]
    until(lambda: post(http, "adopts", 1e6).status_code == 422)
    assert post(http, "adopts", 1.0).status_code == 200
    assert http.get("/models/adopts").json()["pairs"]["bounded"] >= 1
