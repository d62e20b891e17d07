"""The id of a job's record: no feedback can have it, and jobs of version 0.2 still end."""

import os
import signal
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest
import redis

from app.domain import codec
from app.domain.records import Replace
from app.storage.jobs import record_event
from app.storage.keys import Keys
from app.training.job import NOT_APPENDED
from tests.api.services import Running, serving
from tests.api.test_jobs_faults import DATA, N, new_model, start_again
from tests.api.trainings import (
    done,
    ended_job,
    pause_training,
    started_job,
    store_of,
    warm_start,
    warm_starts,
)
from tests.old_scripts import old_script
from tests.servers import with_store

NAMES = map("model{}".format, count())


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture
def model(http: httpx.Client) -> str:
    """A new model."""
    name = next(NAMES)
    new_model(http, name)
    return name


def post_feedback(http: httpx.Client, model: str, event: str) -> httpx.Response:
    documents = [{"id": name, "features": [float(at)] * N} for at, name in enumerate("ab")]
    body = {"event_id": event, "type": "triplets", "model": model, "documents": documents}
    return http.post("/feedback", json={**body, "triplets": [["a", "b"]]})


def answered_id(_: httpx.Client, job: str) -> str:
    return job


def listed_id(http: httpx.Client, _: str) -> str:
    return str(http.get("/jobs", params={"limit": 1}).json()["jobs"][0]["id"])


@pytest.mark.parametrize("known_id", [answered_id, listed_id])
def test_feedback_with_the_id_of_version_0_2_does_not_replace_the_result_of_a_job(
    service: Running, http: httpx.Client, model: str, known_id: Any
) -> None:
    job = started_job(warm_start(http, model, DATA))
    trains = pause_training(service)
    posted = post_feedback(http, model, f"job-{known_id(http, job)}")
    assert (posted.status_code, posted.json()["seq"]) == (202, 1)
    os.kill(trains, signal.SIGCONT)
    assert done(http, job)["result"]["seq"] == 2
    assert len(warm_starts(store_of(service), model)) == 1
    again = post_feedback(http, model, f"job-{job}").json()
    assert (again["duplicates"], again["seq"]) == (1, 1)


def test_feedback_cannot_have_the_id_of_an_internal_event(http: httpx.Client, model: str) -> None:
    refused = post_feedback(http, model, record_event("books.7"))
    assert refused.status_code == 422
    assert "control characters" in refused.text


def test_a_job_whose_id_another_event_has_fails(
    service: Running, http: httpx.Client, model: str
) -> None:
    job = started_job(warm_start(http, model, DATA))
    trains = pause_training(service)
    with redis.Redis.from_url(store_of(service)) as store:
        store.set(Keys(model).event(1, record_event(job)), "7:another body")
    os.kill(trains, signal.SIGCONT)
    found = ended_job(http, job)
    assert (found["state"], found["error"]) == ("failed", NOT_APPENDED)
    assert warm_starts(store_of(service), model) == []


def old_append(url: str, model: str, job: str) -> int:
    """Append the record of a job as version 0.2 does; return its seq."""
    keys = Keys(model)
    stored = with_store(url, lambda store: store.states.load(model))
    record = codec.dump_record(Replace(stored.state.model, "warm start"))
    names = [keys.state, keys.seq, keys.log, keys.event(1, f"job-{job}"), keys.state]
    _, (outcome, seq) = old_script(
        url, "append", names, 1, 100, 600_000, 1, "", 1, b"", record, "", "", ""
    )
    assert outcome == 0
    return int(seq)


def test_a_restarted_job_whose_record_version_0_2_appended_is_done_with_that_record(
    service: Running, http: httpx.Client, model: str
) -> None:
    job = started_job(warm_start(http, model, DATA))
    trains = pause_training(service)
    seq = old_append(store_of(service), model, job)
    os.kill(trains, signal.SIGKILL)
    assert ended_job(http, job)["state"] == "failed"
    start_again(http, job)
    assert done(http, job)["result"]["seq"] == seq
    assert len(warm_starts(store_of(service), model)) == 1


def test_a_job_that_a_worker_of_version_0_2_cancels_appends_nothing_until_it_starts_again(
    service: Running, http: httpx.Client, model: str
) -> None:
    keys = Keys(model)
    job = started_job(warm_start(http, model, DATA))
    trains = pause_training(service)
    names = [keys.job(job), keys.training, keys.event(1, f"job-{job}")]
    cancelled = ("running", "cancelled", 600_000, "0:")
    assert old_script(store_of(service), "job_cancel", names, *cancelled) == 0
    os.kill(trains, signal.SIGCONT)
    assert ended_job(http, job)["state"] == "cancelled"
    assert warm_starts(store_of(service), model) == []
