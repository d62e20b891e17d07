"""Training jobs when a process, a worker, the service or the store is killed, stopped or hangs."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from app.storage.jobs import DIED, JOB_KEPT_SECONDS, record_event
from app.storage.keys import Keys
from app.training.job import CHANGED, DELETED, STOPPED
from tests.api.services import PLAIN, Running, serving
from tests.api.test_faults import all_ended, child, child_replaced
from tests.api.trainings import (
    done,
    ended_job,
    files,
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
from tests.faults.checker import check_replay, learnt
from tests.faults.observed_model import run_scenario
from tests.faults.server import Server
from tests.servers import TIMEOUT

N = 3
DATA = letor(judged_queries(N))
LEASE = 3.0  # seconds; other tests may load the machine
SHORT_LEASE = {"SOLAR_LEASE": f"{LEASE:g}", "SOLAR_CHECK_SECONDS": "0"}
PROBLEM = "application/problem+json"


def new_model(http: httpx.Client, name: str = "m", **settings: Any) -> None:
    body = {**PLAIN, "features": N, "gamma": 50.0, **settings}
    assert http.put(f"/models/{name}", json=body).status_code == 201


def check_replayed(url: str, model: str = "m") -> None:
    """Check that all records are learnt, and that the state equals the replay of the log."""

    async def check() -> None:
        await learnt(url, model)
        await check_replay(url, model)

    run_scenario(check(), 3 * TIMEOUT)


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """Pause processes within the block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def start_again(http: httpx.Client, job: str) -> None:
    answer = http.post(f"/jobs/{job}/start")
    assert started_job(answer) == job
    assert answer.json()["state"] == "running"


def job_error(http: httpx.Client, job: str) -> str:
    """Return the error of a failed job."""
    found = ended_job(http, job)
    assert found["state"] == "failed", found
    return str(found["error"])


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving(environ=SHORT_LEASE) as running:
        yield running


@pytest.fixture
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


# ---- processes that die ----


def test_a_killed_training_process_fails_its_job_which_can_be_restarted(
    service: Running, http: httpx.Client
) -> None:
    new_model(http)
    job = started_job(warm_start(http, "m", DATA, C=0.01))
    os.kill(pause_training(service), signal.SIGKILL)
    assert job_error(http, job) == (
        "the training process ended with exit code -9; start the job again"
    )
    assert job in uploads(service)
    folder = service.data / "uploads" / job
    (folder / "order").unlink()
    (folder / "order").mkdir()  # the file cannot be written now
    start_again(http, job)
    assert job_error(http, job) not in (DIED, "")
    (folder / "order").rmdir()
    start_again(http, job)
    assert done(http, job)["result"]["seq"] == 1
    assert len(warm_starts(store_of(service))) == 1
    until_long(lambda: job not in uploads(service))
    assert http.post(f"/jobs/{job}/start").status_code == 409
    with redis.Redis.from_url(store_of(service)) as store:
        (dedupe_key,) = store.keys(Keys("m").event(1, record_event(job)))
        left: Any = store.pttl(dedupe_key)
    assert left / 1000 > JOB_KEPT_SECONDS - 600  # as long as a restart is possible
    assert "Traceback" not in service.logged()
    check_replayed(store_of(service))


@pytest.mark.slow
def test_a_killed_worker_ends_its_training_and_the_next_worker_can_restart_it(
    service: Running, http: httpx.Client
) -> None:
    new_model(http, "w")
    job = started_job(warm_start(http, "w", DATA))
    trains, worker = pause_training(service), worker_of(service)
    os.kill(worker, signal.SIGKILL)
    until_long(all_ended(trains, worker))
    until_long(child_replaced(service.process.pid, "app.runtime.worker", worker))
    assert job_error(http, job) == DIED
    assert job in uploads(service)
    start_again(http, job)
    trains = pause_training(service)
    assert http.delete(f"/jobs/{job}").status_code == 202
    found = ended_job(http, job)
    assert found["state"] == "cancelled", found
    until_long(all_ended(trains))
    assert records(store_of(service), "w") == []


def test_the_data_of_a_job_that_is_cancelled_after_its_worker_died_is_removed(
    service: Running, http: httpx.Client
) -> None:
    new_model(http, "c")
    job = started_job(warm_start(http, "c", DATA))
    trains, worker = pause_training(service), worker_of(service)
    os.kill(worker, signal.SIGKILL)
    until_long(child_replaced(service.process.pid, "app.runtime.worker", worker))
    assert job_error(http, job) == DIED
    assert job in uploads(service)
    assert http.delete(f"/jobs/{job}").json()["state"] == "cancelled"
    assert job not in uploads(service)
    assert all_ended(trains)()


@pytest.mark.slow
def test_a_stopped_service_leaves_no_process_and_the_job_can_be_restarted_later(
    tmp_path: Path,
) -> None:
    with serving(data=tmp_path, environ=SHORT_LEASE) as running, running.client() as http:
        new_model(http)
        job = started_job(warm_start(http, "m", DATA, C=0.01))
        trains, worker = pause_training(running), worker_of(running)
        assert running.stop() == 0
        assert all_ended(trains, worker)()
        assert "Traceback" not in running.logged()
    with serving(data=tmp_path, environ=SHORT_LEASE) as running, running.client() as http:
        assert job_error(http, job) == STOPPED
        start_again(http, job)
        assert done(http, job)["result"]["seq"] == 1
        assert len(warm_starts(store_of(running))) == 1


# ---- an unreachable store ----


@dataclass
class WithExternalStore:
    """A service with an external store."""

    server: Server
    running: Running


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithExternalStore]:
    server = Server(tmp_path_factory.mktemp("store") / "data")
    environ = {**SHORT_LEASE, "SOLAR_CHECK_SECONDS": "4", "SOLAR_REDIS_URL": server.url}
    try:
        with serving(environ=environ) as running:
            yield WithExternalStore(server, running)
    finally:
        server.stop()


def ready(http: httpx.Client) -> bool:
    return http.get("/readyz").status_code == 200


@pytest.mark.slow
def test_a_training_survives_a_killed_and_restarted_store(external: WithExternalStore) -> None:
    """The upload is answered while the store is unreachable; its data is kept."""
    running = external.running
    with running.client() as http, ThreadPoolExecutor(1) as pool:
        new_model(http)
        answer = pool.submit(warm_start, http, "m", DATA, C=0.01)
        trains = pause_training(running)
        (job,) = uploads(running)
        external.server.kill()
        assert answer.result().status_code == 503
        assert answer.result().headers["content-type"] == PROBLEM
        assert uploads(running) == [job]
        os.kill(trains, signal.SIGCONT)
        until_long(all_ended(trains))  # the training ends while the store is unreachable
        external.server.start()
        until_long(lambda: ready(http))
        until_long(lambda: read_job(http, job)["state"] == "done")
        assert read_job(http, job)["result"]["seq"] == 1
    assert len(warm_starts(external.server.url)) == 1
    check_replayed(external.server.url)


@pytest.mark.slow
def test_a_training_survives_a_store_that_hangs_longer_than_the_lease(
    external: WithExternalStore,
) -> None:
    running = external.running
    with running.client() as http:
        until_long(lambda: ready(http))
        new_model(http, "h")
        job = started_job(warm_start(http, "h", DATA, C=0.01))
        with paused(external.server._process.pid):
            began = time.monotonic()
            until_long(lambda: time.monotonic() > began + 1.2 * LEASE)
        until_long(lambda: ready(http))
        until_long(lambda: read_job(http, job)["state"] == "done")
        assert read_job(http, job)["result"]["seq"] == 1
    assert len(warm_starts(external.server.url, "h")) == 1


# ---- a model that changes during training ----


def test_a_model_deleted_and_created_again_is_not_replaced(
    service: Running, http: httpx.Client
) -> None:
    new_model(http, "d")
    job = started_job(warm_start(http, "d", DATA, C=0.01))
    trains = pause_training(service)
    assert http.delete("/models/d").status_code == 204
    new_model(http, "d")
    os.kill(trains, signal.SIGCONT)
    assert job_error(http, job) == DELETED
    assert http.post(f"/jobs/{job}/start").status_code == 409  # the model has another epoch
    assert records(store_of(service), "d") == []
    assert http.delete("/models/d").status_code == 204
    assert read_job(http, job)["state"] == "failed"
    assert http.post(f"/jobs/{job}/start").status_code == 404
    assert records(store_of(service), "d") == []


def test_a_model_tuned_during_training_keeps_the_new_settings(
    service: Running, http: httpx.Client
) -> None:
    """The training ends before the learner has applied the change."""
    new_model(http, "p")
    job = started_job(warm_start(http, "p", DATA, C=0.01))
    trains = pause_training(service)
    learner = child(service.process.pid, "app learn")
    assert learner is not None
    with paused(learner):
        assert http.patch("/models/p", json={"gamma": 7.0}).status_code == 202
        os.kill(trains, signal.SIGCONT)
        assert job_error(http, job) == CHANGED
    until_long(lambda: http.get("/models/p").json()["gamma"] == 7.0)
    start_again(http, job)
    assert done(http, job)["result"]["seq"] == 2
    (replaced,) = warm_starts(store_of(service), "p")
    assert replaced.model.config.gamma == 7.0


def test_a_job_trains_with_settings_that_the_learner_has_not_applied_yet(
    service: Running, http: httpx.Client
) -> None:
    new_model(http, "q")
    learner = child(service.process.pid, "app learn")
    assert learner is not None
    with paused(learner):
        assert http.patch("/models/q", json={"gamma": 7.0}).status_code == 202
        job = started_job(warm_start(http, "q", DATA, C=0.01))
        assert done(http, job)["result"]["seq"] == 2
    (replaced,) = warm_starts(store_of(service), "q")
    assert replaced.model.config.gamma == 7.0


# ---- the backlog limit ----


def test_a_job_that_waits_for_the_backlog_limit_can_be_cancelled() -> None:
    with serving(environ={**SHORT_LEASE, "SOLAR_BACKLOG": "1"}) as running:
        learner = child(running.process.pid, "app learn")
        assert learner is not None
        with running.client() as http, paused(learner):
            new_model(http)
            event = {
                "event_id": "e1", "type": "labels", "model": "m", "labels": {"a": 1},
                "documents": [{"id": "a", "features": [0, 1, 1]},
                              {"id": "b", "features": [1, 0, 0]}],
            }  # fmt: skip
            assert http.post("/feedback", json=event).status_code == 202
            job = started_job(warm_start(http, "m", DATA, C=0.01))
            trains = pause_training(running)
            os.kill(trains, signal.SIGCONT)
            until_long(all_ended(trains))
            until_long(lambda: read_job(http, job)["share_done"] == 0.9)
            assert read_job(http, job)["state"] == "running"
            answer = http.delete(f"/jobs/{job}")
            assert answer.status_code == 202, answer.text
            found = ended_job(http, job)
            assert (found["state"], "result" in found, found["share_done"]) == (
                "cancelled", False, 0.9,
            )  # fmt: skip
            until_long(lambda: uploads(running) == [])
        check_replayed(store_of(running))
        assert warm_starts(store_of(running)) == []


# ---- uploads ----


def half_sent(running: Running, path: str, kind: str) -> socket.socket:
    url = httpx.URL(running.url)
    connection = socket.create_connection((url.host, url.port or 80), timeout=TIMEOUT)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {url.host}\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(DATA)}\r\n\r\n"
    )
    connection.sendall(head.encode() + DATA[:100])
    return connection


@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_an_interrupted_upload_is_deleted(service: Running, http: httpx.Client, kind: str) -> None:
    name = f"u{len(kind)}"
    new_model(http, name)
    before = uploads(service)
    with half_sent(service, f"/models/{name}/warm-start", kind):
        until_long(lambda: len(uploads(service)) == len(before) + 1)
    until_long(lambda: uploads(service) == before)
    with redis.Redis.from_url(store_of(service)) as store:
        assert store.keys(Keys(name).job("*")) == []
    assert records(store_of(service), name) == []
    assert training_processes(worker_of(service)) == []


def test_uploads_that_cannot_be_written_are_503(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.touch()
    environ = {"SOLAR_UPLOAD_DIR": str(blocked / "uploads")}
    with serving(environ=environ) as running, running.client() as http:
        new_model(http)
        for kind in ("text/plain", "application/json"):
            answer = http.post("/models/m/warm-start", content=DATA, headers={"content-type": kind})
            assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
            assert answer.headers["retry-after"]
            assert str(tmp_path) not in answer.text + running.logged()
        assert records(store_of(running)) == []
        assert "Traceback" not in running.logged()


def test_cleanup_removes_only_uploads_of_the_service(tmp_path: Path) -> None:
    """The upload directory may contain files of other programs."""
    old = time.time() - 30 * 86_400.0
    foreign = ["photos", "m.txt", ".hidden"]
    own = "m.01970000-0000-7000-8000-000000000000"
    for name in (*foreign, own):
        (tmp_path / name).mkdir()
        (tmp_path / name / "upload").write_text("judged")
        os.utime(tmp_path / name, (old, old))
    environ = {"SOLAR_UPLOAD_DIR": str(tmp_path)}
    with serving(environ=environ) as running, running.client() as http:
        new_model(http)
        assert warm_start(http, "m", b"").status_code == 400
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(foreign)
    assert len(files(tmp_path)) == 2 * len(foreign)


# ---- a paused worker ----


@pytest.mark.slow
def test_a_paused_worker_that_lost_its_lease_writes_no_second_record() -> None:
    with ExitStack() as stack:
        one = stack.enter_context(serving(environ=SHORT_LEASE))
        http = stack.enter_context(one.client())
        new_model(http)
        environ = {**SHORT_LEASE, "SOLAR_REDIS_URL": store_of(one)}
        other = stack.enter_context(serving("--no-learner", environ=environ))
        other_http = stack.enter_context(other.client())
        first = started_job(warm_start(http, "m", DATA, C=0.01))
        trains = pause_training(one)
        with paused(worker_of(one)):
            assert job_error(other_http, first) == DIED
            second = started_job(warm_start(other_http, "m", DATA, C=0.1))
            second_training = pause_training(other)
        until_long(all_ended(trains))  # its worker has found that it lost the lease
        assert job_error(http, first) == DIED
        assert read_job(http, second)["state"] == "running"
        os.kill(second_training, signal.SIGCONT)
        assert done(http, second)["result"]["seq"] == 1
        assert read_job(http, first)["state"] == "failed"
        assert len(warm_starts(store_of(one))) == 1
        check_replayed(store_of(one))
