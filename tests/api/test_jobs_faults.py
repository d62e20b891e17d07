"""A training when its process, its worker, its service or its store is killed, stopped or hung."""

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

from app.storage.jobs import DIED, JOB_KEPT_SECONDS
from app.storage.keys import Keys
from app.training.job import CHANGED, DELETED, STOPPED
from tests.api.services import PLAIN, Running, serving
from tests.api.test_faults import another, child, gone
from tests.api.trainings import (
    apprentices,
    became,
    begun,
    done,
    drawn,
    files,
    held,
    letor,
    look,
    patiently,
    records,
    store_of,
    uploads,
    warm_start,
    warm_starts,
    worker_of,
)
from tests.faults.checker import check_replay, learnt
from tests.faults.scene import play
from tests.faults.server import Server
from tests.servers import PATIENCE

N = 3
DATA = letor(drawn(N))
LEASE = 3.0  # seconds; the machine is busy with other tests
QUICK = {"SOLAR_LEASE": f"{LEASE:g}", "SOLAR_CHECK_SECONDS": "0"}
PROBLEM = "application/problem+json"


def new_model(http: httpx.Client, name: str = "m", **settings: Any) -> None:
    body = {**PLAIN, "features": N, "gamma": 50.0, **settings}
    assert http.put(f"/models/{name}", json=body).status_code == 201


def check_sound(url: str, model: str = "m") -> None:
    """All is learnt, and the state is what the log says."""

    async def check() -> None:
        await learnt(url, model)
        await check_replay(url, model)

    play(check(), 3 * PATIENCE)


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """Processes that stand still meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def start_again(http: httpx.Client, job: str) -> None:
    answer = http.post(f"/jobs/{job}/start")
    assert begun(answer) == job
    assert answer.json()["state"] == "running"


def failed(http: httpx.Client, job: str) -> str:
    """Why a job has failed."""
    found = became(http, job)
    assert found["state"] == "failed", found
    return str(found["error"])


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving(environ=QUICK) as running:
        yield running


@pytest.fixture
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


# ---- processes that die ----


def test_a_process_that_is_killed_fails_its_job_at_once_and_it_can_be_started_again(
    service: Running, http: httpx.Client
) -> None:
    new_model(http)
    job = begun(warm_start(http, "m", DATA, C=0.01))
    os.kill(held(service), signal.SIGKILL)
    assert failed(http, job) == (
        "the training process ended with exit code -9; start the job again"
    )
    assert job in uploads(service)
    folder = service.data / "uploads" / job
    (folder / "order").unlink()
    (folder / "order").mkdir()  # nothing can be written there now
    start_again(http, job)
    assert failed(http, job) not in (DIED, "")
    (folder / "order").rmdir()
    start_again(http, job)
    assert done(http, job)["result"]["seq"] == 1
    assert len(warm_starts(store_of(service))) == 1
    patiently(lambda: job not in uploads(service))
    assert http.post(f"/jobs/{job}/start").status_code == 409
    with redis.Redis.from_url(store_of(service)) as store:
        (remembered,) = store.keys(Keys("m").event(1, f"job-{job}"))
        left: Any = store.pttl(remembered)
    assert left / 1000 > JOB_KEPT_SECONDS - 600  # as long as it could be started again
    assert "Traceback" not in service.logged()
    check_sound(store_of(service))


def test_a_worker_that_is_killed_takes_its_training_along_and_the_next_one_starts_it_again(
    service: Running, http: httpx.Client
) -> None:
    new_model(http, "w")
    job = begun(warm_start(http, "w", DATA))
    trains, worker = held(service), worker_of(service)
    os.kill(worker, signal.SIGKILL)
    patiently(gone(trains, worker))
    patiently(another(service.process.pid, "app.runtime.worker", worker))
    assert failed(http, job) == DIED
    assert job in uploads(service)
    start_again(http, job)
    trains = held(service)
    assert http.delete(f"/jobs/{job}").status_code == 202
    found = became(http, job)
    assert found["state"] == "cancelled", found
    patiently(gone(trains))
    assert records(store_of(service), "w") == []


def test_a_service_that_is_stopped_leaves_no_process_behind_and_goes_on_after_its_restart(
    tmp_path: Path,
) -> None:
    with serving(data=tmp_path, environ=QUICK) as running, running.client() as http:
        new_model(http)
        job = begun(warm_start(http, "m", DATA, C=0.01))
        trains, worker = held(running), worker_of(running)
        assert running.stop() == 0
        assert gone(trains, worker)()
        assert "Traceback" not in running.logged()
    with serving(data=tmp_path, environ=QUICK) as running, running.client() as http:
        assert failed(http, job) == STOPPED
        start_again(http, job)
        assert done(http, job)["result"]["seq"] == 1
        assert len(warm_starts(store_of(running))) == 1


# ---- a store that is gone ----


@dataclass
class Apart:
    """A service, and a store that is not its child."""

    server: Server
    running: Running


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    server = Server(tmp_path_factory.mktemp("store") / "data")
    environ = {**QUICK, "SOLAR_CHECK_SECONDS": "4", "SOLAR_REDIS_URL": server.url}
    try:
        with serving(environ=environ) as running:
            yield Apart(server, running)
    finally:
        server.stop()


def ready(http: httpx.Client) -> bool:
    return http.get("/readyz").status_code == 200


def test_a_training_outlives_a_store_that_is_killed_and_started_again(apart: Apart) -> None:
    """Its upload is answered while there is no store: the data stays all the same."""
    running = apart.running
    with running.client() as http, ThreadPoolExecutor(1) as pool:
        new_model(http)
        answer = pool.submit(warm_start, http, "m", DATA, C=0.01)
        trains = held(running)
        (job,) = uploads(running)
        apart.server.kill()
        assert answer.result().status_code == 503
        assert answer.result().headers["content-type"] == PROBLEM
        assert uploads(running) == [job]
        os.kill(trains, signal.SIGCONT)
        patiently(gone(trains))  # it has ended while there was no store
        apart.server.start()
        patiently(lambda: ready(http))
        patiently(lambda: look(http, job)["state"] == "done")
        assert look(http, job)["result"]["seq"] == 1
    assert len(warm_starts(apart.server.url)) == 1
    check_sound(apart.server.url)


def test_a_training_outlives_a_store_that_hangs_beyond_the_lease(apart: Apart) -> None:
    running = apart.running
    with running.client() as http:
        patiently(lambda: ready(http))
        new_model(http, "h")
        job = begun(warm_start(http, "h", DATA, C=0.01))
        with paused(apart.server._process.pid):
            began = time.monotonic()
            patiently(lambda: time.monotonic() > began + 1.2 * LEASE)
        patiently(lambda: ready(http))
        patiently(lambda: look(http, job)["state"] == "done")
        assert look(http, job)["result"]["seq"] == 1
    assert len(warm_starts(apart.server.url, "h")) == 1


# ---- a model that changes meanwhile ----


def test_a_model_that_is_deleted_and_made_anew_is_not_replaced(
    service: Running, http: httpx.Client
) -> None:
    new_model(http, "d")
    job = begun(warm_start(http, "d", DATA, C=0.01))
    trains = held(service)
    assert http.delete("/models/d").status_code == 204
    new_model(http, "d")
    os.kill(trains, signal.SIGCONT)
    assert failed(http, job) == DELETED
    assert http.post(f"/jobs/{job}/start").status_code == 409  # it was for another model
    assert records(store_of(service), "d") == []
    assert http.delete("/models/d").status_code == 204
    assert look(http, job)["state"] == "failed"
    assert http.post(f"/jobs/{job}/start").status_code == 404
    assert records(store_of(service), "d") == []


def test_a_model_that_is_tuned_meanwhile_keeps_what_it_was_told(
    service: Running, http: httpx.Client
) -> None:
    """Even if nobody has learnt that yet when the training ends."""
    new_model(http, "p")
    job = begun(warm_start(http, "p", DATA, C=0.01))
    trains = held(service)
    learner = child(service.process.pid, "app learn")
    assert learner is not None
    with paused(learner):
        assert http.patch("/models/p", json={"gamma": 7.0}).status_code == 202
        os.kill(trains, signal.SIGCONT)
        assert failed(http, job) == CHANGED
    patiently(lambda: http.get("/models/p").json()["gamma"] == 7.0)
    start_again(http, job)
    assert done(http, job)["result"]["seq"] == 2
    (replaced,) = warm_starts(store_of(service), "p")
    assert replaced.model.config.gamma == 7.0


# ---- uploads ----


def half_sent(running: Running, path: str, kind: str) -> socket.socket:
    url = httpx.URL(running.url)
    connection = socket.create_connection((url.host, url.port or 80), timeout=PATIENCE)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {url.host}\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(DATA)}\r\n\r\n"
    )
    connection.sendall(head.encode() + DATA[:100])
    return connection


@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_of_an_upload_whose_sender_is_gone_nothing_is_kept(
    service: Running, http: httpx.Client, kind: str
) -> None:
    name = f"u{len(kind)}"
    new_model(http, name)
    before = uploads(service)
    with half_sent(service, f"/models/{name}/warm-start", kind):
        patiently(lambda: len(uploads(service)) == len(before) + 1)
    patiently(lambda: uploads(service) == before)
    with redis.Redis.from_url(store_of(service)) as store:
        assert store.keys(Keys(name).job("*")) == []
    assert records(store_of(service), name) == []
    assert apprentices(worker_of(service)) == []


def test_uploads_that_cannot_be_kept_are_not_taken_for_now(tmp_path: Path) -> None:
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


def test_only_uploads_of_ours_are_cleared_away(tmp_path: Path) -> None:
    """A directory for uploads may have been somebody's before."""
    old = time.time() - 30 * 86_400.0
    theirs = ["photos", "m.txt", ".hidden"]
    ours = "m.01970000-0000-7000-8000-000000000000"
    for name in (*theirs, ours):
        (tmp_path / name).mkdir()
        (tmp_path / name / "upload").write_text("judged")
        os.utime(tmp_path / name, (old, old))
    environ = {"SOLAR_UPLOAD_DIR": str(tmp_path)}
    with serving(environ=environ) as running, running.client() as http:
        new_model(http)
        assert warm_start(http, "m", b"").status_code == 400
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(theirs)
    assert len(files(tmp_path)) == 2 * len(theirs)


# ---- a worker that stands still ----


def test_a_worker_that_stood_still_while_another_began_has_lost_and_doubles_nothing() -> None:
    with ExitStack() as stack:
        one = stack.enter_context(serving(environ=QUICK))
        http = stack.enter_context(one.client())
        new_model(http)
        environ = {**QUICK, "SOLAR_REDIS_URL": store_of(one)}
        other = stack.enter_context(serving("--no-learner", environ=environ))
        elsewhere = stack.enter_context(other.client())
        first = begun(warm_start(http, "m", DATA, C=0.01))
        trains = held(one)
        with paused(worker_of(one)):
            assert failed(elsewhere, first) == DIED
            second = begun(warm_start(elsewhere, "m", DATA, C=0.1))
            goes_on = held(other)
        patiently(gone(trains))  # its worker has seen that it has lost
        assert failed(http, first) == DIED
        assert look(http, second)["state"] == "running"
        os.kill(goes_on, signal.SIGCONT)
        assert done(http, second)["result"]["seq"] == 1
        assert look(http, first)["state"] == "failed"
        assert len(warm_starts(store_of(one))) == 1
        check_sound(store_of(one))
