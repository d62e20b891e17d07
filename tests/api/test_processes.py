"""A service of several processes: metrics add up over them, and logs are readable."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import pytest

from app.api.auth import new_key
from app.storage.embedded import server as embedded
from app.storage.embedded.server import EmbeddedServer
from tests.api.services import PLAIN, ROOT, Running, serving
from tests.api.test_faults import child, child_replaced
from tests.servers import TIMEOUT, until
from tests.test_metrics import Series, read, series

WAIT_UNTIL_LEARNT = {"Prefer": f"wait={TIMEOUT:g}"}
RANKS, EVENTS = 40, 12

#: Metrics that change between two scrapes.
CHANGING = (
    "solar_request_seconds", "solar_store_memory_share", "solar_freshness_seconds", "process_",
)  # fmt: skip

#: Every gauge of a model, with its least and greatest plausible value.
GAUGES = {
    "solar_online_map": (0.0, 1.0),
    "solar_online_map_stderr": (0.0, 1.0),
    "solar_online_map_summed": (0.0, EVENTS),
    "solar_online_map_squares_summed": (0.0, EVENTS),
    "solar_baseline_map": (0.0, 1.0),
    "solar_baseline_map_summed": (0.0, EVENTS),
    "solar_lead_map": (-1.0, 1.0),
    "solar_lead_map_stderr": (0.0, 1.0),
    "solar_abandoned_lists": (0.0, 0.0),
    "solar_queries": (EVENTS, EVENTS),
    "solar_feedback": (EVENTS, EVENTS),
    "solar_rejected_records": (0.0, 0.0),
    "solar_squared_hinge_loss": (0.1, EVENTS),
    "solar_weight_norm": (0.01, 10.0),
    "solar_covariance_trace": (0.1, 2.0),
    "solar_version": (EVENTS, EVENTS),
    "solar_lag_records": (0.0, 0.0),
}


@pytest.fixture(scope="module", params=["embedded", "redis-url"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Two workers and a learner, on an embedded and on an external store."""
    with contextlib.ExitStack() as stack:
        flags = ["--workers", "2"]
        if request.param == "redis-url":
            store = EmbeddedServer.start(tmp_path_factory.mktemp("store"))
            flags += ["--redis-url", stack.enter_context(store).url]
        yield stack.enter_context(serving(*flags))


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    """A client that opens a new connection for each request, so that any worker may get it."""
    with service.client(headers={"connection": "close"}) as client:
        yield client


@pytest.fixture(scope="module")
def counted(http: httpx.Client) -> Series:
    """The metrics after some traffic."""
    settings = {**PLAIN, "features": 2, "gamma": 10.0}
    assert http.put("/models/m", json=settings).status_code == 201
    requests = [rank(http) for _ in range(RANKS)]
    for at in range(EVENTS):
        event = {
            "event_id": f"e{at}", "type": "labels", "request_id": requests[at],
            "labels": {"b": 1},
        }  # fmt: skip
        assert http.post("/feedback", json=event, headers=WAIT_UNTIL_LEARNT).status_code == 200
    assert http.post("/feedback", json=event).json()["duplicates"] == 1
    bad = {**event, "event_id": "bad", "labels": {"missing": 1}}
    assert http.post("/feedback", json=bad).status_code == 422
    until(lambda: all_counted(metrics(http)))
    return metrics(http)


def all_counted(found: Series) -> bool:
    """Whether both workers serve the last version, and all answers are counted.

    A worker counts an answer after sending it, so another worker may be scraped earlier.
    """
    fresh = found[series("solar_freshness_seconds_count", model="m")]
    answers = sum(
        value
        for (name, labels), value in found.items()
        if name == "solar_request_seconds_count"
        and not labels.isdisjoint({("route", "/rank"), ("route", "/feedback")})
    )
    served = found[series("solar_version", model="m")] == EVENTS and fresh >= 2
    learnt = found[series("solar_learnt_records_total", model="m")]  # counted after the commit
    return learnt == EVENTS and served and answers == RANKS + EVENTS + 2


def rank(http: httpx.Client) -> str:
    body = {"model": "m", "ids": ["a", "b"], "features": [[1.0, 0.0], [0.0, 1.0]]}
    answer = http.post("/rank", json=body).json()
    assert answer["logged"]
    found: str = answer["request_id"]
    return found


def metrics(http: httpx.Client) -> Series:
    """Read the metrics; `read` fails on a repeated series or family."""
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return read(answer.content)


def test_counts_add_up_over_the_workers(counted: Series) -> None:
    def total(name: str, **labels: str) -> float:
        return counted[series(name, **labels)]

    assert total("solar_request_seconds_count", route="/rank", status="200") == RANKS
    assert total("solar_request_seconds_bucket", route="/rank", status="200", le="+Inf") == RANKS
    assert total("solar_request_seconds_count", route="/feedback", status="200") == EVENTS
    assert total("solar_request_seconds_count", route="/feedback", status="202") == 1
    assert total("solar_request_seconds_count", route="/feedback", status="422") == 1
    assert total("solar_impressions_total", outcome="remembered") == RANKS
    assert total("solar_feedback_events_total", outcome="accepted") == EVENTS
    assert total("solar_feedback_events_total", outcome="duplicates") == 1
    assert total("solar_feedback_events_total", outcome="rejected") == 1


def workers_of(service: Running) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and b"app.runtime.worker" in (folder / "cmdline").read_bytes():
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == service.process.pid:
                    found.append(int(folder.name))
    return found


def has_counted(pid: int) -> bool:
    """Whether a worker has counted a request in its own file of counters."""
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    folder = next(one for one in environ if one.startswith(b"PROMETHEUS_MULTIPROC_DIR="))
    counters = Path(os.fsdecode(folder.partition(b"=")[2])) / f"histogram_{pid}.db"
    return counters.exists() and b"/rank" in counters.read_bytes()


def test_every_worker_reports_the_same_metrics(http: httpx.Client, counted: Series) -> None:
    assert counted
    before = metrics(http)
    for _ in range(6):
        again = metrics(http)
        for one, value in before.items():
            if not one[0].startswith(CHANGING):
                assert again[one] == value, one


def test_every_documented_metric_is_exported_with_a_plausible_value(counted: Series) -> None:
    for name, (least, most) in GAUGES.items():
        assert least <= counted[series(name, model="m")] <= most, name
    for k in ("1", "5", "10", "all"):
        for side in ("online", "baseline"):
            mean = counted[series(f"solar_{side}_ndcg", model="m", k=k)]
            whole = counted[series(f"solar_{side}_ndcg_summed", model="m", k=k)]
            assert 0.0 <= mean <= 1.0
            assert whole == pytest.approx(EVENTS * mean)
    assert counted[series("solar_baseline_ndcg", model="m", k="1")] == 0.0
    updates = [counted[series("solar_updates", model="m", kind=k)]
               for k in ("stepped", "passive", "refused")]  # fmt: skip
    assert sum(updates) == EVENTS
    assert updates[0] > 0
    assert 0.0 < counted[series("solar_store_memory_share")] < 0.5
    assert counted[series("solar_learnt_records_total", model="m")] == EVENTS
    assert counted[series("solar_commit_seconds_count", model="m")] > 0
    versions = counted[series("solar_freshness_seconds_count", model="m")]
    assert 2 <= versions <= 2 * EVENTS  # each worker serves each version at most once
    assert counted[series("solar_freshness_seconds_sum", model="m")] / versions < TIMEOUT


def test_label_values_are_bounded_except_model_names(http: httpx.Client, counted: Series) -> None:
    assert counted
    for path in ("/nowhere", "/models/x/y/z", "/models/a/b"):
        http.get(path)
    http.request("BREW", "/rank")
    found = metrics(http)
    names = {name for _, labels in found for name, _ in labels}
    assert names <= {
        "model", "k", "kind", "order", "product", "route", "status", "le", "outcome",
        "process", "version", "python",
    }  # fmt: skip
    routes = {value for _, labels in found for name, value in labels if name == "route"}
    assert not [route for route in routes if "nowhere" in route or "/x" in route]


def of_model(http: httpx.Client, name: str) -> set[str]:
    """The metrics with this model as a label, on one scrape."""
    return {one for one, labels in metrics(http) if ("model", name) in labels}


def test_a_deleted_model_leaves_no_series_on_any_scrape(
    http: httpx.Client, counted: Series
) -> None:
    """Neither at once nor later, and neither by late requests nor for a new model of that name."""
    assert counted  # before the requests of this test
    assert http.put("/models/old", json={"features": 2, "explore": True}).status_code == 201
    body = {"model": "old", "ids": ["a", "b"], "features": [[1.0, 0.0], [0.0, 1.0]]}
    for at in range(20):
        request = http.post("/rank", json=body).json()["request_id"]
        event = {"event_id": f"o{at}", "type": "clicks", "request_id": request, "clicked": ["b"]}
        assert http.post("/feedback", json=event).status_code == 202
    learnt, fresh = "solar_learnt_records_total", "solar_freshness_seconds_count"
    until(lambda: metrics(http).get(series(learnt, model="old")) == 20)
    until(lambda: fresh in of_model(http, "old"))
    assert http.delete("/models/old").status_code == 204
    until(lambda: not any(of_model(http, "old") for _ in range(10)))
    assert http.post("/rank", json=body).status_code == 404
    assert http.post("/feedback", json={**event, "event_id": "late"}).status_code == 404
    for _ in range(20):
        assert of_model(http, "old") == set()
        sleep(0.05)
    assert http.put("/models/old", json={"features": 2}).status_code == 201
    until(lambda: all("solar_version" in of_model(http, "old") for _ in range(10)))
    again = metrics(http)
    assert again[series(learnt, model="old")] == 0
    assert series(fresh, model="old") not in again
    assert http.delete("/models/old").status_code == 204


def test_every_worker_reports_the_process_metrics_of_all_processes(
    http: httpx.Client, counted: Series
) -> None:
    assert counted
    names = {"worker 0", "worker 1", "learner"}

    def measured(name: str) -> dict[str, float]:
        found = metrics(http)
        return {
            dict(labels)["process"]: value for (one, labels), value in found.items() if one == name
        }

    until(lambda: measured("process_cpu_seconds_total").keys() == names)  # one may start later
    for _ in range(4):
        for name in ("process_resident_memory_bytes", "process_cpu_seconds_total"):
            values = measured(name)
            assert values.keys() == names
            assert all(value > 0 for value in values.values())


def test_every_worker_serves_requests(
    service: Running, http: httpx.Client, counted: Series
) -> None:
    assert counted
    until(lambda: rank(http) and all(map(has_counted, workers_of(service))))
    assert len(workers_of(service)) == 2


def test_the_counts_of_a_killed_worker_are_kept(
    service: Running, http: httpx.Client, counted: Series
) -> None:
    assert counted
    victim = workers_of(service)[0]
    before = metrics(http)[series("solar_impressions_total", outcome="remembered")]
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(workers_of(service)) == 2 and victim not in workers_of(service))
    rank(http)
    after = metrics(http)[series("solar_impressions_total", outcome="remembered")]
    assert after == before + 1
    up = series("solar_process_up", process="worker 0")
    until(lambda: all(metrics(http)[up] == 1.0 for _ in range(6)))


# ---- a separate learner ----


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@contextlib.contextmanager
def learner(*flags: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "learn", *flags],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def status_of(http: httpx.Client, path: str) -> int:
    try:
        return http.get(path).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.slow
def test_a_separate_learner_learns_and_exports_metrics() -> None:
    with serving("--no-learner") as running, running.client() as http:
        assert http.put("/models/m", json={**PLAIN, "features": 2}).status_code == 201
        event = {
            "event_id": "e", "type": "labels", "model": "m", "labels": {"a": 1},
            "documents": [{"id": "a", "features": [1, 0]}, {"id": "b", "features": [0, 1]}],
        }  # fmt: skip
        waited = http.post("/feedback", json=event, headers={"Prefer": "wait=1"})
        assert (waited.status_code, waited.json()["seq"]) == (202, 1)
        assert child(running.process.pid, "app learn") is None
        lag = series("solar_lag_records", model="m")
        assert metrics(http)[lag] == 1
        port = str(free_port())
        with learner("--data-dir", str(running.data), "--port", port) as process:
            check_learner(f"http://127.0.0.1:{port}", process)
            assert (
                http.post("/feedback", json=event, headers=WAIT_UNTIL_LEARNT).json()["version"] == 1
            )
            until(lambda: metrics(http)[lag] == 0)
            store = child(running.process.pid, "valkey-server")
            assert store is not None
            os.kill(store, signal.SIGKILL)
            until(child_replaced(running.process.pid, "valkey-server", store))
            again = {**event, "event_id": "after the restart of the store"}
            until(lambda: http.post("/feedback", json=again).status_code == 202)
            answers = []

            def answered() -> bool:
                """Send again after a 503, while connections to the store are opened again."""
                answers.append(http.post("/feedback", json=again, headers=WAIT_UNTIL_LEARNT))
                return answers[-1].status_code != 503

            until(answered)
            assert answers[-1].status_code == 200, answers[-1].text
            assert answers[-1].json()["version"] == 2
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == 0


def check_learner(url: str, process: "subprocess.Popen[str]") -> None:
    with httpx.Client(base_url=url, timeout=TIMEOUT, trust_env=False) as http:
        until(lambda: status_of(http, "/healthz") == 200 or process.poll() is not None)
        assert process.poll() is None, process.communicate()[0]
        until(lambda: status_of(http, "/readyz") == 200)
        learnt = series("solar_learnt_records_total", model="m")
        until(lambda: read(http.get("/metrics").content).get(learnt) == 1)
        found = read(http.get("/metrics").content)
        assert found[series("solar_version", model="m")] == 1
        assert found[series("solar_commit_seconds_count", model="m")] == 1
        assert http.post("/rank", json={}).status_code == 404
        assert http.get("/models").status_code == 404


# ---- messages at the start, and log lines ----


def refused(*words: str, **environ: str) -> str:
    """Return the message of a command that cannot start: one line, exit code 2."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SOLAR_")}
    ran = subprocess.run(
        [sys.executable, "-m", "app", *words], cwd=ROOT, env={**clean, **environ},
        capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    lines = ran.stderr.splitlines()
    assert ran.returncode == 2, ran.stderr
    assert len(lines) == 1, lines
    assert lines[0].startswith("solar: ")
    return lines[0]


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        data = ["--data-dir", str(tmp_path / "data")]
        for command in ("serve", "learn"):
            message = refused(command, "--port", port, *data)
            assert message.startswith(
                f"solar: cannot serve on 127.0.0.1:{port}: Address already in"
            )


@pytest.mark.slow
def test_invalid_default_features_are_reported_in_one_line(tmp_path: Path) -> None:
    words = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    for names in ("a,a", "a,,b", "0"):
        assert "features" in refused(*words, SOLAR_DEFAULT_FEATURES=names)


@pytest.mark.slow
def test_children_keep_the_settings_of_a_deleted_env_file(tmp_path: Path) -> None:
    file = tmp_path / "solar.env"
    file.write_text("SOLAR_DEFAULT_FEATURES=2\nSOLAR_WORKERS=7\n")
    environ = {"SOLAR_ENV_FILE": str(file), "SOLAR_WORKERS": "1"}
    with serving(environ=environ) as running, running.client() as http:
        file.unlink()
        worker = child(running.process.pid, "app.runtime.worker")
        assert worker is not None
        os.kill(worker, signal.SIGKILL)
        until(child_replaced(running.process.pid, "app.runtime.worker", worker))
        asked = {"documents": [{"id": "a", "features": [1, 2]}]}
        assert http.post("/rank", json=asked).status_code == 200
        assert http.post("/rank", json={"documents": [{"features": [1]}]}).status_code == 422


def test_log_lines_are_json_without_bodies_and_keys() -> None:
    secret, entry = new_key("web", "rank+feedback+admin")
    environ = {"SOLAR_KEYS": entry, "SOLAR_ACCESS_LOG": "true"}
    with serving(environ=environ) as running:
        known = {"authorization": f"Bearer {secret}"}
        with running.client(headers=known) as http:
            send_private_requests(http)
        with running.client(headers={"authorization": "Bearer hunter2"}) as http:
            assert http.post("/rank", json={"model": "classified"}).status_code == 401
        until(lambda: '"status": 401' in running.logged())  # written after the answer
        worker = child(running.process.pid, "app.runtime.worker")
        assert worker is not None
        os.kill(worker, signal.SIGKILL)
        until(child_replaced(running.process.pid, "app.runtime.worker", worker))
        assert running.stop() == 0
        logged = running.logged()
    lines = [json.loads(line) for line in logged.splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    requests = [line for line in lines if line["message"] == "request"]
    asked = {(line["route"], line["method"], line["status"]) for line in requests}
    assert {("/rank", "POST", 200), ("/feedback", "POST", 200), ("/rank", "POST", 401)} <= asked
    assert all(line["ms"] >= 0 for line in requests)
    for private in (secret, entry, "hunter2", "classified", "private", "Traceback"):
        assert private not in logged


def send_private_requests(http: httpx.Client) -> None:
    """Send valid and invalid requests with words that must not appear in a log."""
    assert http.put("/models/m", json={"features": ["private feature"]}).status_code == 201
    body: dict[str, Any] = {"model": "m", "ids": ["private document"], "features": [[1.0]]}
    answer = http.post("/rank", json={**body, "query_id": "private query"}).json()
    event = {
        "event_id": "private event", "type": "clicks", "request_id": answer["request_id"],
        "clicked": ["private document"],
    }  # fmt: skip
    assert http.post("/feedback", json=event, headers=WAIT_UNTIL_LEARNT).status_code == 200
    assert http.post("/rank", json={**body, "private": 1}).status_code == 422
    assert http.post("/rank?private=1", content=b"private").status_code == 415
    assert http.get("/private").status_code == 404


@pytest.mark.slow
def test_a_restarted_store_keeps_a_socket_outside_its_data_directory(tmp_path: Path) -> None:
    """The data path is too long for a socket. Workers keep their weights and connect again."""
    data = tmp_path / ("d" * 100)
    with serving(data=data) as running:
        before = embedded.find(data)
        with running.client() as http:
            assert http.put("/models/m", json={**PLAIN, "features": 2}).status_code == 201
        server = child(running.process.pid, "valkey-server")
        assert server is not None
        os.kill(server, signal.SIGKILL)
        workers = workers_of(running)
        until(child_replaced(running.process.pid, "valkey-server", server))
        until(lambda: embedded.find(data) == before)
        with running.client() as http:
            until(lambda: not http.get("/readyz").json()["degraded"])
            assert rank(http)
        assert workers_of(running) == workers
        assert running.stop() == 0
    assert before is not None
    assert not Path(before.removeprefix("unix://")).parent.exists()
