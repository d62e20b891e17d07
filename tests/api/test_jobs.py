"""Warm starts over HTTP: every kind of body, the trained model, and the state of a job."""

import gzip
import json
import lzma
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from threading import Barrier
from typing import Any

import httpx
import numpy as np
import pytest

from app.domain import codec
from app.domain.model import Model, ModelState
from app.domain.model_config import COUNTING, ModelConfig
from app.domain.records import Feedback, Replace
from app.domain.reducer import Reducer
from app.storage.store import Store
from app.training.options import Training
from tests.api.services import PLAIN, ROOT, Running, serving
from tests.api.test_faults import all_ended
from tests.api.trainings import (
    as_json,
    done,
    ended_job,
    expected,
    judged_queries,
    letor,
    pause_training,
    read_job,
    records,
    started_job,
    store_of,
    training_processes,
    until_long,
    uploads,
    warm_start,
    warm_starts,
    worker_of,
)
from tests.servers import TIMEOUT, with_store

WAIT_UNTIL_LEARNT = {"Prefer": f"wait={TIMEOUT:g}"}
NAMES = ("bm25", "price", "age")
QUERIES = judged_queries(len(NAMES))
FIRST, LAST = letor(QUERIES[:5]), letor(QUERIES).removeprefix(letor(QUERIES[:5]))
NUMBERS = count()


def feedback(http: httpx.Client, model: str) -> int:
    """Post one event, wait until it is learnt, and return its seq."""
    event = {
        "event_id": f"e{next(NUMBERS)}", "type": "labels", "model": model, "labels": {"a": 1},
        "documents": [{"id": "a", "features": [0, 1, 1]}, {"id": "b", "features": [1, 0, 0]}],
    }  # fmt: skip
    answer = http.post("/feedback", json=event, headers=WAIT_UNTIL_LEARNT)
    assert answer.status_code == 200, answer.text
    seq: int = answer.json()["seq"]
    return seq


def jobs_counted(http: httpx.Client, model: str) -> dict[str, float]:
    """Return the non-zero `solar_jobs_total` of a model by outcome."""
    page = http.get("/metrics").text
    found = re.findall(r"^solar_jobs_total\{(.*)\} (.*)$", page, re.MULTILINE)
    parsed = [(dict(re.findall(r'(\w+)="(\w+)"', labels)), float(value)) for labels, value in found]
    of_model = [(labels["outcome"], value) for labels, value in parsed if labels["model"] == model]
    return {outcome: value for outcome, value in of_model if value}


# ---- every kind of body and model ----


@dataclass(frozen=True)
class Kind:
    """A model's settings, a body for its warm start, and the expected training options."""

    settings: dict[str, Any]
    training: Training
    body: bytes
    headers: dict[str, str]
    query: str = ""

    def create(self, http: httpx.Client, model: str) -> None:
        body = {**PLAIN, "features": NAMES, **self.settings}
        assert http.put(f"/models/{model}", json=body).status_code == 201

    def ask(self, http: httpx.Client, model: str) -> str:
        path = f"/models/{model}/warm-start{self.query}"
        return started_job(http.post(path, content=self.body, headers=self.headers))


#: What every new model of these tests has.
NEW: dict[str, Any] = {
    "pair_bound": 4.0 * len(NAMES), "exploration": 1.0, "forgetting": 0.0, "counting": COUNTING,
}  # fmt: skip
KINDS = {
    "text": Kind(
        {"algorithm": "solar-i"}, Training(C=0.01),
        b"# judged by hand\n" + FIRST + b"\n\n" + LAST, {"content-type": "text/plain"}, "?C=0.01",
    ),
    "members": Kind(
        {"gamma": 50.0}, Training(loss="l1", C=0.5),
        gzip.compress(FIRST) + gzip.compress(b"") + gzip.compress(LAST),
        {"content-type": "application/gzip"}, "?loss=l1&C=0.5",
    ),
    "encoded": Kind(
        {"covariance": "diagonal"}, Training(validation=4.0, by="pairwise"),
        gzip.compress(FIRST + LAST),
        {"content-type": "text/plain; charset=utf-8", "content-encoding": "gzip"},
        "?validation=4&by=pairwise",
    ),
    "xz": Kind(
        {"gamma": 9.0}, Training(C=0.1),
        lzma.compress(FIRST) + bytes(8) + lzma.compress(b"") + lzma.compress(LAST, preset=8),
        {"content-type": "application/x-xz"}, "?C=0.1",
    ),
    "xz_encoded": Kind(
        {"gamma": 8.0}, Training(C=0.2), lzma.compress(FIRST + LAST, preset=0),
        {"content-type": "text/plain", "content-encoding": "xz"}, "?C=0.2",
    ),
    "json": Kind(
        {"normalization": "query-minmax"}, Training(trainer="domination", penalty=0.05),
        json.dumps({"queries": as_json(QUERIES, NAMES), "trainer": "domination",
                    "penalty": 0.05}).encode(),
        {"content-type": "application/json"},
    ),
}  # fmt: skip


@dataclass
class Service:
    """A service in which every kind of model was warm-started between two events."""

    running: Running
    http: httpx.Client
    jobs: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving(environ={"SOLAR_JOBS": "6"}) as running, running.client() as http:
        for name, kind in KINDS.items():
            kind.create(http, name)
            assert feedback(http, name) == 1
        ids = {name: kind.ask(http, name) for name, kind in KINDS.items()}
        jobs = {name: done(http, job) for name, job in ids.items()}
        for name in KINDS:
            assert feedback(http, name) == 3
        yield Service(running, http, jobs)


def test_each_kind_of_body_is_trained_on_and_reported(service: Service) -> None:
    for name, kind in KINDS.items():
        job, asked = service.jobs[name], kind.training
        given = {one: getattr(asked, one) for one in Training.__struct_fields__}
        assert job["training"] == {one: value for one, value in given.items() if value is not None}
        assert (job["model"], job["state"], "error" in job) == (name, "done", False)
        result = job["result"]
        assert (result["seq"], result["trainer"]) == (2, asked.trainer)
        trained_on = 8 if asked.validation else 12  # the last four are held out
        assert (result["queries"], result["documents"]) == (trained_on, 6 * trained_on)
        assert result["converged"]
        assert 0.0 < result["ndcg@10"] <= 1.0
        assert result["seconds"] >= 0.0
        assert ("tried" in result) == (asked.validation is not None)


def test_progress_reports_the_data_and_the_iterations(service: Service) -> None:
    for name in KINDS:
        progress = service.jobs[name]["progress"]
        assert (progress["queries"], progress["documents"]) == (12, 72)
        assert progress["iteration"] >= 0
        assert {"parameter", "objective", "distance", "ndcg@10"} <= set(progress)


def test_all_jobs_are_listed_newest_first(service: Service) -> None:
    def page(**query: Any) -> Any:
        answer = service.http.get("/jobs", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    fields = ("id", "model", "state", "created", "share_done")
    wanted = [{name: service.jobs[kind][name] for name in fields} for kind in KINDS]
    wanted.reverse()  # the kinds started in order
    found = [one for one in page()["jobs"] if one["model"] in KINDS]
    assert found == wanted
    assert {(one["state"], one["share_done"]) for one in found} == {("done", 1.0)}
    assert [one["created"] for one in found] == sorted(
        (one["created"] for one in found), reverse=True
    )
    whole, pages = page(limit=100)["jobs"], []
    after: dict[str, str] = {}
    while True:
        one = page(limit=2, **after)
        pages += one["jobs"]
        if "next" not in one:
            break
        assert len(one["jobs"]) == 2
        after = {"after": one["next"]}
    assert pages == whole


def test_the_share_that_is_done_grows_to_1(service: Service) -> None:
    http = service.http
    assert http.put("/models/grows", json={**PLAIN, "features": NAMES}).status_code == 201
    job, seen = started_job(warm_start(http, "grows", FIRST + LAST)), []

    def ended() -> bool:
        found = read_job(http, job)
        seen.append((found["share_done"], found["state"]))
        return bool(found["state"] != "running")

    until_long(ended)
    assert seen == sorted(seen, key=lambda one: one[0])
    assert seen[-1] == (1.0, "done")
    assert all(0.0 <= share <= 0.9 for share, state in seen if state == "running")


def settings_of(name: str) -> ModelConfig:
    return ModelConfig(NAMES, **NEW, **KINDS[name].settings)


@pytest.mark.parametrize("name", KINDS)
def test_the_log_record_holds_the_model_of_a_local_training(service: Service, name: str) -> None:
    (replaced,) = warm_starts(store_of(service.running), name)
    wanted = expected(QUERIES, settings_of(name), KINDS[name].training)
    check_same(replaced.model, wanted)
    sizes = {"text": 0, "members": 6, "encoded": 3, "json": 6, "xz": 6, "xz_encoded": 6}
    assert replaced.model.spread.shape == (sizes[name],)


def check_same(found: Model, wanted: Model) -> None:
    """Compare two models up to rounding: BLAS may add in another order."""
    assert found.config == wanted.config
    np.testing.assert_allclose(found.weights, wanted.weights, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.spread, wanted.spread, rtol=1e-6, atol=1e-9)
    assert np.abs(wanted.weights).max() > 0.0


@pytest.mark.parametrize("name", KINDS)
def test_feedback_around_a_warm_start_keeps_its_order_and_the_replay_agrees(
    service: Service, name: str
) -> None:
    log = records(store_of(service.running), name)
    assert [type(one) for one in log] == [Feedback, Replace, Feedback]

    async def act(store: Store) -> tuple[ModelState, ModelState]:
        return (await store.states.load(name)).state, (await store.states.version(name, 1)).state

    now, before = with_store(store_of(service.running), act)
    reducer = Reducer(before)
    for record in log[1:]:
        reducer.apply(codec.dump_record(record))
    assert reducer.state().model.weights.tobytes() == now.model.weights.tobytes()
    assert reducer.state().model.spread.tobytes() == now.model.spread.tobytes()
    assert (now.seq, now.measures()["queries"], now.measures()["feedback"]) == (3, 2.0, 2.0)


def test_solar_verify_accepts_the_store(service: Service) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "app", "verify", "--redis-url", store_of(service.running), *KINDS],
        cwd=ROOT, capture_output=True, text=True, timeout=3 * TIMEOUT, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.count("weights valid")) == (0, len(KINDS)), ran


def test_a_finished_job_leaves_no_files(service: Service) -> None:
    until_long(lambda: uploads(service.running) == [])


def test_a_finished_job_cannot_be_cancelled_or_restarted(service: Service) -> None:
    path = f"/jobs/{service.jobs['text']['id']}"
    for answer in (service.http.delete(path), service.http.post(f"{path}/start")):
        assert answer.status_code == 409
        assert answer.headers["content-type"] == "application/problem+json"


def test_jobs_are_counted(service: Service) -> None:
    for name in KINDS:
        assert jobs_counted(service.http, name) == {"done": 1.0}


def test_a_rollback_restores_the_model_before_the_warm_start(service: Service) -> None:
    name, http, kind = "rolled_back", service.http, KINDS["members"]
    kind.create(http, name)
    assert feedback(http, name) == 1
    done(http, kind.ask(http, name))
    assert feedback(http, name) == 3
    kept = [one["version"] for one in http.get(f"/models/{name}/versions").json()["versions"]]
    assert kept == [0, 1]

    async def first(store: Store) -> ModelState:
        return (await store.states.version(name, 1)).state

    async def last(store: Store) -> ModelState:
        return (await store.states.load(name)).state

    wanted = with_store(store_of(service.running), first)
    answer = http.post(f"/models/{name}/rollback", json={"version": 1})
    assert (answer.status_code, answer.json()["seq"]) == (202, 4)
    until_long(lambda: http.get(f"/models/{name}").json()["version"] == 4)
    found = with_store(store_of(service.running), last)
    assert found.model.weights.tobytes() == wanted.model.weights.tobytes()
    assert found.model.spread.tobytes() == wanted.model.spread.tobytes()


# ---- during training ----


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[Running, httpx.Client]]:
    """A service that answers an upload at once, and allows one training job."""
    with serving(environ={"SOLAR_CHECK_SECONDS": "0"}) as running, running.client() as http:
        for name in ("m", "other", "third"):
            body = {**PLAIN, "features": NAMES, "gamma": 50.0}
            assert http.put(f"/models/{name}", json=body).status_code == 201
        yield running, http


def test_during_training_feedback_is_learnt_and_all_replicas_report_the_job(
    busy: tuple[Running, httpx.Client],
) -> None:
    running, http = busy
    store = store_of(running)
    assert [feedback(http, "m") for _ in range(2)] == [1, 2]
    job = started_job(warm_start(http, "m", FIRST + LAST, C=0.01))
    trains = pause_training(running)
    check_busy(http)
    assert [feedback(http, "m") for _ in range(2)] == [3, 4]
    second = serving("--no-learner", environ={"SOLAR_REDIS_URL": store})
    with second as replica, replica.client() as replica_http:
        assert read_job(replica_http, job) == read_job(http, job)
        assert read_job(replica_http, job)["state"] == "running"
        assert warm_start(replica_http, "m", FIRST).status_code == 409
        assert replica_http.post(f"/jobs/{job}/start").status_code == 409
        assert uploads(replica) == []
        os.kill(trains, signal.SIGCONT)
        assert done(replica_http, job)["result"]["seq"] == 5
        assert read_job(http, job)["result"]["seq"] == 5
    assert feedback(http, "m") == 6
    kinds = [type(one) for one in records(store)]
    assert kinds == [Feedback] * 4 + [Replace, Feedback]
    check_same(warm_starts(store)[0].model, expected(
        QUERIES, ModelConfig(NAMES, gamma=50.0, **NEW), Training(C=0.01)))  # fmt: skip


def check_busy(http: httpx.Client) -> None:
    """Check that a busy model and a full job limit are refused, and an unknown model too."""
    for model in ("m", "other"):
        refused = warm_start(http, model, FIRST)
        assert refused.status_code in (409, 503), refused.text
        assert refused.status_code == 409 or int(refused.headers["retry-after"]) >= 1
    assert warm_start(http, "missing", FIRST).status_code == 404


def test_a_second_warm_start_replaces_the_first(
    busy: tuple[Running, httpx.Client],
) -> None:
    running, http = busy
    for seed in (1, 2):
        until_long(lambda: can_start_job(http, "other"))
        queries = judged_queries(len(NAMES), seed=seed)
        job = started_job(warm_start(http, "other", letor(queries), C=0.01))
        assert done(http, job)["result"]["seq"] == seed
        found = warm_starts(store_of(running), "other")
        assert len(found) == seed
        settings = ModelConfig(NAMES, gamma=50.0, **NEW)
        check_same(found[-1].model, expected(queries, settings, Training(C=0.01)))


def can_start_job(http: httpx.Client, model: str) -> bool:
    """Whether a job could start; this body has no media type, so that none starts."""
    answer = http.post(f"/models/{model}/warm-start", content=b"x")
    assert answer.status_code in (415, 503), answer.text
    return answer.status_code == 415


def test_a_cancelled_job_stops_and_changes_nothing(
    busy: tuple[Running, httpx.Client],
) -> None:
    running, http = busy
    until_long(lambda: can_start_job(http, "third"))
    job = started_job(warm_start(http, "third", FIRST + LAST))
    trains = pause_training(running)
    answer = http.delete(f"/jobs/{job}")
    assert (answer.status_code, answer.json()["id"]) == (202, job)
    found = ended_job(http, job)
    assert (found["state"], "result" in found) == ("cancelled", False)
    until_long(all_ended(trains))
    until_long(lambda: uploads(running) == [])
    assert records(store_of(running), "third") == []
    assert http.delete(f"/jobs/{job}").status_code == 202  # the same answer as before
    assert http.post(f"/jobs/{job}/start").status_code == 409
    until_long(lambda: jobs_counted(http, "third") == {"cancelled": 1.0})


def test_concurrent_warm_starts_respect_the_job_limit(
    busy: tuple[Running, httpx.Client],
) -> None:
    running, http = busy
    until_long(lambda: can_start_job(http, "m"))
    names = [f"one{at}" for at in range(6)]
    for name in names:
        assert http.put(f"/models/{name}", json={**PLAIN, "features": NAMES}).status_code == 201
    barrier = Barrier(len(names))

    def ask(name: str) -> httpx.Response:
        with running.client() as mine:
            mine.get("/healthz")
            barrier.wait()
            return warm_start(mine, name, FIRST)

    with ThreadPoolExecutor(len(names)) as pool:
        answers = list(pool.map(ask, names))
    assert sorted(one.status_code for one in answers) == [202, *[503] * 5]
    assert len(training_processes(worker_of(running))) <= 1
    (job,) = [started_job(one) for one in answers if one.status_code == 202]
    http.delete(f"/jobs/{job}")
    assert ended_job(http, job)["state"] == "cancelled"
