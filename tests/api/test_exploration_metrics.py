"""`/rank` reports what exploration is expected to cost; the model order costs nothing."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.services import serving

LOSS, RANKINGS = "solar_exploration_loss_total", "solar_exploration_loss_rankings_total"
#: The scores of a new model are those of the submitted order, so a randomised ranking has a loss.
DOCUMENTS = [{"id": f"d{at}", "features": [0.0, 0.0]} for at in range(12)]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with serving() as service, service.client() as client:
        yield client


def create(http: httpx.Client, model: str, **settings: Any) -> None:
    made = http.put(f"/models/{model}", json={"features": 2, **settings})
    assert made.status_code == 201, made.text


def rank(http: httpx.Client, model: str, count: int, **options: Any) -> None:
    for at in range(count):
        body = {"model": model, "documents": DOCUMENTS, "request_id": f"{model}-{at}", **options}
        answer = http.post("/rank", json=body)
        assert answer.status_code == 200, answer.text


def metric(http: httpx.Client, name: str, model: str) -> float | None:
    for family in text_string_to_metric_families(http.get("/metrics").text):
        for one in family.samples:
            if one.name == name and one.labels == {"model": model}:
                return one.value
    return None


def test_a_randomised_ranking_moves_the_counters_of_the_loss(http: httpx.Client) -> None:
    create(http, "explores")
    rank(http, "explores", 1, explore=False)
    assert (metric(http, LOSS, "explores"), metric(http, RANKINGS, "explores")) == (0.0, 0.0)
    rank(http, "explores", 33)
    assert metric(http, RANKINGS, "explores") == 3.0
    lost = metric(http, LOSS, "explores")
    assert lost is not None
    assert 0.0 < lost < 3.0


@pytest.mark.parametrize("how", ["request", "model", "amount"])
def test_rankings_in_the_model_order_lose_nothing(http: httpx.Client, how: str) -> None:
    settings: dict[str, Any] = {"model": {"explore": False}, "amount": {"exploration": 0}}
    create(http, f"plain-{how}", **settings.get(how, {}))
    rank(http, f"plain-{how}", 17, **({"explore": False} if how == "request" else {}))
    assert metric(http, LOSS, f"plain-{how}") == 0.0
    assert metric(http, RANKINGS, f"plain-{how}") == 0.0


def test_a_pinned_document_in_a_bad_position_is_no_loss_by_exploration(http: httpx.Client) -> None:
    create(http, "pinned", prior=0)
    documents = [{"id": f"d{at}", "features": [min(at, 10) / 10, 0.0]} for at in range(12)]
    event = {"type": "triplets", "documents": documents, "triplets": [["d11", "d0"]]}
    body = {"event_id": "e", "model": "pinned", **event}
    learnt = http.post("/feedback", json=body, headers={"Prefer": "wait=20"})
    assert learnt.status_code == 200, learnt.text
    pinned = [f"d{at}" for at in range(10)]  # only the best two, which are equal, are free
    rank(http, "pinned", 17, documents=documents, pinned=pinned)
    assert metric(http, RANKINGS, "pinned") == 2.0
    assert metric(http, LOSS, "pinned") == 0.0


def test_the_setting_and_the_evidence_of_drift_are_on_the_page(http: httpx.Client) -> None:
    create(http, "set", exploration=0.5)
    rank(http, "set", 1)  # loads the model
    assert metric(http, "solar_exploration", "set") == 0.5
    assert metric(http, "solar_drift", "set") == 0.0
    assert metric(http, "solar_explored_share", "set") is None
