"""Data of a newer release over HTTP: 503 with both formats, counted, and left unchanged."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.domain import codec
from app.domain.records import Retune
from app.storage.embedded.server import EmbeddedServer
from app.storage.keys import Keys
from tests.api.services import PLAIN, application, serving
from tests.api.test_many_models import DOCUMENTS, metric
from tests.api.trainings import ended_job, judged_queries, letor, started_job, warm_start
from tests.servers import TIMEOUT, client, server, until, url, with_store
from tests.test_codec import newer
from tests.test_learner import append
from tests.test_newer_formats import MESSAGE, change, stored

__all__ = ["server", "url"]  # fixtures

DETAIL = f"stored data was {MESSAGE}; upgrade the service, then retry"
KEYS = Keys("m")
CLICK = {"event_id": "e1", "type": "clicks", "model": "m", "request_id": "r1", "clicked": ["b"]}
LEARNT = {"Prefer": f"wait={TIMEOUT:g}"}


@pytest.fixture
def http(url: str) -> Iterator[TestClient]:
    with application(url) as started:
        for name in ("m", "other"):
            created = started.put(f"/models/{name}", json={**PLAIN, "features": 2})
            assert created.status_code == 201
        yield started


def refused(answer: Any) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.json()["detail"] == DETAIL
    assert answer.headers["retry-after"] == "1"


def rank(http: Any, model: str = "m", **options: Any) -> Any:
    return http.post("/rank", json={**DOCUMENTS, "model": model, **options})


@pytest.mark.usefixtures("http")
def test_a_newer_model_answers_503_and_is_counted_while_the_others_are_served(url: str) -> None:
    change(url, "w", newer, KEYS.state)
    before = stored(url)
    http: Any
    with application(url) as http:
        refused(rank(http))
        assert rank(http, "other", log=False).status_code == 200
        refused(http.get("/models/m"))
        refused(http.put("/models/m", json={**PLAIN, "features": 2}))
        refused(http.patch("/models/m", json={"gamma": 2.0}))
        refused(warm_start(http, "m", letor(judged_queries(2))))
        listed = {one["name"]: one for one in http.get("/models").json()["models"]}
        assert listed["m"] == {"name": "m", "seq": 0, "newer_format": True}
        assert listed["other"]["version"] == 0
        (kept,) = http.get("/models/m/versions").json()["versions"]
        assert (kept["version"], kept["reason"]) == (0, "created")
        assert http.get("/readyz").json() == {"status": "ready", "degraded": False, "down": []}
        assert (count(http), count(http, "other")) == (1.0, 0.0)
        assert metric(http, "solar_models_damaged") == 0.0
        assert stored(url) == before
        assert http.delete("/models/m").status_code == 204


def test_a_loaded_model_is_ranked_and_explained_from_memory(http: TestClient, url: str) -> None:
    assert rank(http).status_code == 200
    for field in ("w", "spread", "sums", "meta"):
        change(url, field, newer, KEYS.state)
    answer = rank(http, explain=True)
    assert answer.status_code == 200
    assert "contributions" in answer.json()["documents"][0]
    assert "stddev" not in answer.json()["documents"][0]
    refused(http.get("/models/m"))


@pytest.mark.parametrize("field", ["i", "a"])
def test_feedback_on_a_newer_impression_is_503_and_stores_nothing(
    http: TestClient, url: str, field: str
) -> None:
    assert rank(http, request_id="r1").json()["logged"]
    first = http.post("/feedback", json={**CLICK, "event_id": "e0", "clicked": ["a"]})
    assert first.status_code == 202
    key = KEYS.impression(1, "r1")
    with client(url) as connection:
        kept = connection.hget(key, field)
    change(url, field, newer, key)
    before = stored(url)
    refused(http.post("/feedback", json=CLICK))
    refused(http.post("/feedback", json={"events": [CLICK, {**CLICK, "event_id": "e2"}]}))
    assert stored(url) == before
    with client(url) as connection:
        connection.hset(key, field, kept)
    assert http.post("/feedback", json=CLICK).json()["seq"] == 2


def test_a_rollback_to_a_newer_version_is_503_and_stores_nothing(
    http: TestClient, url: str
) -> None:
    change(url, "spread", newer, KEYS.snapshot(0))
    before = stored(url)
    refused(http.post("/models/m/rollback", json={"version": 0}))
    assert stored(url) == before


def test_a_training_job_names_a_newer_record_of_the_log(http: Any, url: str) -> None:
    with_store(url, lambda store: append(store, [newer(codec.dump_record(Retune(gamma=2.0)))], "m"))
    job = ended_job(http, started_job(warm_start(http, "m", letor(judged_queries(2)))))
    assert job["state"] == "failed"
    assert job["error"] == (
        f"stored data was {MESSAGE}; upgrade the service, then start the job again"
    )
    assert http.get("/models/m").json()["seq"] == 1


def test_a_service_counts_a_newer_state_and_learns_again_when_it_can_read_it(
    tmp_path: Path,
) -> None:
    event = {**DOCUMENTS, "model": "m", "type": "labels", "labels": {"b": 1}}
    with (
        EmbeddedServer.start(tmp_path) as store,
        serving("--redis-url", store.url) as running,
        running.client() as http,
    ):
        http.put("/models/m", json={**PLAIN, "features": 2}).raise_for_status()
        learnt = http.post("/feedback", json={**event, "event_id": "e1"}, headers=LEARNT)
        assert learnt.json()["version"] == 1
        with client(store.url) as connection:
            readable = connection.hget(KEYS.state, "spread")
        change(store.url, "spread", newer, KEYS.state)
        restart_sessions(store.url)
        until(lambda: count(http) >= 1.0)
        assert f"model m: {MESSAGE}" in running.logged()
        assert http.post("/feedback", json={**event, "event_id": "e2"}).status_code == 202
        assert rank(http).json()["version"] == 1
        with client(store.url) as connection:
            connection.hset(KEYS.state, "spread", readable)
        until(lambda: rank(http).json()["version"] == 2)
        assert http.get("/models/m").json()["rejected"] == 0


def restart_sessions(url: str) -> None:
    """End the learner's session: another learner takes the lease for a moment."""
    with client(url) as connection:
        connection.delete(KEYS.lease)
        connection.incr(KEYS.fence)


def count(http: Any, model: str = "m") -> float:
    return metric(http, "solar_newer_format_total", model=model) or 0.0
