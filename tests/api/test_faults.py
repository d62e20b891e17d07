"""The whole service when its processes are killed, its store is gone, or it is told to stop."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import numpy as np
import pytest

from app.domain.records import Feedback
from app.storage.embedded import server
from app.storage.embedded.server import server_binary
from tests.api.services import PLAIN, ROOT, Running, serving
from tests.faults.checker import (
    check_log,
    check_replay,
    check_requests,
    check_state,
    learnt,
    look,
    repeated,
)
from tests.faults.scene import play
from tests.servers import PATIENCE, until

N = 3
LEARNT = {"Prefer": f"wait={PATIENCE:g}"}
QUICK_LEASE = {"SOLAR_LEASE": "1"}
HASTY = {**QUICK_LEASE, "SOLAR_REMEMBER_SECONDS": "0.05"}  # as in production


# ---- processes ----


def status(pid: int) -> tuple[int, str]:
    """A process's parent and its state; (0, "") if there is no such process."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, ""
    return int(words[1]), words[0]


def children(parent: int) -> dict[int, str]:
    """The command of each child that lives, by its id."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and status(int(folder.name))[0] == parent:
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command and status(int(folder.name))[1] != "Z":
                    found[int(folder.name)] = command
    return found


def child(parent: int, what: str) -> int | None:
    """The child whose command has these words, once it is no launcher any more."""
    found = [
        pid
        for pid, command in children(parent).items()
        if what in command and "launcher.py" not in command
    ]
    return found[0] if len(found) == 1 else None


def alive(pid: int) -> bool:
    return status(pid)[1] not in ("", "Z")


def gone(*pids: int) -> Callable[[], bool]:
    """Whether none of them lives."""
    return lambda: not any(map(alive, pids))


def another(parent: int, what: str, before: int) -> Callable[[], bool]:
    """Whether a new child has come for one that was killed."""
    return lambda: child(parent, what) not in (None, before)


# ---- traffic ----


@dataclass
class Told:
    """What posters were told; and the service that they find, wherever it is now."""

    url: str
    seqs: dict[str, int] = field(default_factory=dict)
    posted: dict[str, list[list[float]]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    done: threading.Event = field(default_factory=threading.Event)


class Appender:
    """Ranks and posts until told to stop; insists on each event, and repeats some."""

    def __init__(self, told: Told, name: str, seed: int) -> None:
        self._told, self._name = told, name
        self._rng = np.random.default_rng(seed)

    def work(self) -> None:
        with httpx.Client(timeout=PATIENCE, trust_env=False) as http:
            at = 0
            while not self._told.done.is_set():
                at += 1
                self._labels(http, f"{self._name}-{at}")
                self._clicks(http, f"{self._name}-{at}")
                self._told.done.wait(0.02)  # what is posted has to be checked, too

    def _labels(self, http: httpx.Client, name: str) -> None:
        rows = self._rng.standard_normal((4, N)).astype(np.float32).tolist()
        event = {
            "event_id": f"l{name}", "type": "labels", "model": "m", "labels": {"d0": 1, "d2": 2},
            "documents": [{"id": f"d{at}", "features": row} for at, row in enumerate(rows)],
        }  # fmt: skip
        self._told.posted[f"l{name}"] = rows
        self._insist(http, event)
        if self._rng.random() < 0.3:
            self._insist(http, event)

    def _clicks(self, http: httpx.Client, name: str) -> None:
        rows = self._rng.standard_normal((4, N)).astype(np.float32).tolist()
        body = {"model": "m", "ids": ["a", "b", "c", "d"], "features": rows}
        with contextlib.suppress(httpx.TransportError):
            answered = http.post(f"{self._told.url}/rank", json=body)
            self._told.statuses[answered.status_code] += 1
            if answered.status_code != 200 or not answered.json()["logged"]:
                return
            request = answered.json()["request_id"]
            shown = [one["id"] for one in answered.json()["documents"]]
            for again in range(2):
                event = {
                    "event_id": f"c{name}-{again}", "type": "clicks", "request_id": request,
                    "clicked": [shown[2 + again]],
                }  # fmt: skip
                self._insist(http, event)
                self._told.requests[request] += 1

    def _insist(self, http: httpx.Client, event: dict[str, Any]) -> None:
        """Post until there is a seq; the same event is always told the same one (I6)."""
        deadline = monotonic() + 3 * PATIENCE
        while monotonic() < deadline:
            try:
                answered = http.post(f"{self._told.url}/feedback", json=event)
            except httpx.TransportError:
                self._told.done.wait(0.01)
                continue
            self._told.statuses[answered.status_code] += 1
            if answered.status_code == 503:
                assert int(answered.headers["retry-after"]) >= 1
                self._told.done.wait(0.01)
                continue
            assert answered.status_code == 202, answered.text
            seq = answered.json()["seq"]
            assert self._told.seqs.setdefault(event["event_id"], seq) == seq
            return
        raise AssertionError("nobody took this event")


@contextlib.contextmanager
def traffic(url: str, posters: int = 3) -> Iterator[Told]:
    """Posters at work; what they find wrong fails the test."""
    told = Told(url)
    with ThreadPoolExecutor(posters) as pool:
        working = [pool.submit(Appender(told, f"p{at}", at).work) for at in range(posters)]
        try:
            yield told
        finally:
            told.done.set()
        for one in working:
            one.result(4 * PATIENCE)


def more(told: Told, events: int) -> Callable[[], bool]:
    """Whether so many more events than now were acknowledged."""
    wanted = len(told.seqs) + events
    return lambda: len(told.seqs) >= wanted


def check_nothing_lost(store: str, told: Told) -> None:
    """All that was acknowledged is there at its seq, once; the state is what the log says."""

    async def check() -> None:
        await learnt(store, "m")
        found = await look(store, "m")
        feedback = found.feedback()
        assert {seq: feedback[seq].event for seq in told.seqs.values()} == {
            seq: event for event, seq in told.seqs.items()
        }
        assert len(feedback) == len(told.seqs) == found.tail
        assert repeated(feedback) == []
        for event, rows in told.posted.items():
            check_record(feedback[told.seqs[event]], rows)
        check_log(found)
        check_requests(found, feedback)
        check_state(found)
        await check_replay(store, "m")

    play(check(), 3 * PATIENCE)


def check_record(record: Feedback, rows: list[list[float]]) -> None:
    assert record.documents.tolist() == rows
    assert record.labels is not None
    assert record.labels.tolist() == [1.0, 0.0, 2.0, 0.0]


def new_model(url: str) -> None:
    with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as http:
        assert (
            http.put("/models/m", json={**PLAIN, "features": N, "gamma": 50.0}).status_code == 201
        )


def learn_one(running: Running, event: str) -> httpx.Response:
    """One event that is waited for."""
    body = {
        "event_id": event, "type": "labels", "model": "m", "labels": {"a": 1},
        "documents": [{"id": "a", "features": [1, 0, 0]}, {"id": "b", "features": [0, 1, 0]}],
    }  # fmt: skip
    with running.client() as http:
        return http.post("/feedback", json=body, headers=LEARNT)


def learning(url: str) -> Callable[[], bool]:
    """Whether the learner has gone on since now."""

    def version() -> int:
        with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as http:
            found: int = http.get("/models/m").json()["version"]
            return found

    before = version()
    return lambda: version() > before


def rank_one(http: httpx.Client, **asked: Any) -> httpx.Response:
    rows = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    return http.post("/rank", json={"model": "m", "ids": ["a", "b"], "features": rows, **asked})


# ---- the service is killed ----


def test_a_service_killed_under_traffic_and_started_again_has_lost_and_doubled_nothing(
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(serving(data=tmp_path, environ=QUICK_LEASE))
        new_model(running.url)
        with traffic(running.url) as told:
            for _ in range(2):
                until(more(told, 40))
                until(learning(running.url))
                family = children(running.process.pid)
                running.kill()
                until(gone(*family))
                running = stack.enter_context(serving(data=tmp_path, environ=QUICK_LEASE))
                told.url = running.url
            until(more(told, 40))
        assert told.requests, "nobody clicked"
        store = server.find(tmp_path)
        assert store is not None
        check_nothing_lost(store, told)
        assert set(told.statuses) <= {200, 202, 503}
        with running.client() as http:
            told_now = http.get("/models/m").json()
        labels = sum(event.startswith("l") for event in told.seqs)
        assert told_now["queries"] == labels + len(told.requests)


def test_each_process_that_is_killed_is_started_again_and_everything_goes_on() -> None:
    with serving(environ=QUICK_LEASE) as running:
        new_model(running.url)
        supervisor = running.process.pid
        assert learn_one(running, "first").status_code == 200
        with traffic(running.url) as told:
            told.seqs["first"] = 1
            for what in ("app.runtime.worker", "app learn", "valkey-server"):
                until(more(told, 20))
                killed = child(supervisor, what)
                assert killed is not None, children(supervisor)
                os.kill(killed, signal.SIGKILL)
                until(another(supervisor, what, killed))
                until(more(told, 20))
                assert learn_one(running, f"after {what}").status_code == 200
                told.seqs[f"after {what}"] = learn_one(running, f"after {what}").json()["seq"]
        store = server.find(running.data)
        assert store is not None
        check_nothing_lost(store, told)
        assert set(told.statuses) <= {200, 202, 503}
        logged = running.logged()
        assert "worker 0 ended with exit code -9" in logged
        assert "learner ended with exit code -9" in logged
        assert running.stop() == 0


def test_no_process_outlives_a_supervisor_that_is_killed() -> None:
    with serving("--workers", "2") as running:
        family = children(running.process.pid)
        assert sorted(kind(command) for command in family.values()) == [
            "app learn", "app.runtime.worker", "app.runtime.worker", "valkey-server",
        ]  # fmt: skip
        running.kill()
        until(gone(*family))


def kind(command: str) -> str:
    return next(
        what for what in ("app.runtime.worker", "app learn", "valkey-server") if what in command
    )


# ---- told to stop ----


def test_stopping_under_load_breaks_no_promise_and_leaves_no_process() -> None:
    with serving("--workers", "2") as running:
        new_model(running.url)
        family = children(running.process.pid)
        refused = Counter[int]()
        acknowledged: set[str] = set()
        done = threading.Event()

        def work(name: str) -> None:
            at = 0
            with running.client() as http:
                while not done.is_set():
                    at += 1
                    event = {
                        "event_id": f"{name}-{at}", "type": "labels", "model": "m",
                        "labels": {"a": 1}, "documents": [{"id": "a", "features": [1, 0, 0]}],
                    }  # fmt: skip
                    try:
                        answered = http.post("/feedback", json=event)
                    except httpx.TransportError:  # nobody has accepted this one
                        if running.process.poll() is not None:
                            return
                        continue
                    if answered.status_code == 202:
                        acknowledged.add(f"{name}-{at}")
                    else:
                        refused[answered.status_code] += 1

        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(work, f"p{at}") for at in range(4)]
            try:
                until(lambda: len(acknowledged) > 100)
                assert running.stop() == 0
            finally:
                done.set()
            for one in working:
                one.result(PATIENCE)
        assert not refused
        assert not any(map(alive, family))
        assert "did not end within" not in running.logged()
        with server.EmbeddedServer.start(running.data) as again:
            check_all_there(again.url, acknowledged)


def check_all_there(store: str, acknowledged: set[str]) -> None:
    async def check() -> None:
        found = await look(store, "m")
        events = {record.event for record in found.feedback().values()}
        assert acknowledged <= events
        assert repeated(found.feedback()) == []
        check_log(found)
        await check_replay(store, "m")

    play(check(), 3 * PATIENCE)


def test_a_request_that_was_half_sent_when_the_service_was_stopped_is_answered() -> None:
    with serving() as running:
        new_model(running.url)
        url = httpx.URL(running.url)
        body = b'{"model":"m","ids":["a","b"],"features":[[1,0,0],[0,1,0]]}'
        head = (
            f"POST /rank HTTP/1.1\r\nhost: {url.host}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((url.host, url.port or 80), timeout=PATIENCE) as connection:
            connection.sendall(head.encode() + body[:20])
            with running.client() as http:  # the worker has read the first part by then
                assert rank_one(http).status_code == 200
            running.process.send_signal(signal.SIGTERM)
            until(lambda: not listens(url))
            for at in range(20, len(body)):  # somebody on a slow line
                connection.sendall(body[at : at + 1])
                time.sleep(0.02)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert b'"logged":true' in answer
        assert running.process.wait(3 * PATIENCE) == 0


def listens(url: httpx.URL) -> bool:
    try:
        socket.create_connection((url.host, url.port or 80), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


# ---- the store is gone ----


class Outside:
    """A server that is not ours: stopped, killed and started again by the test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.url = f"unix://{directory / 's'}"
        self.start()

    def start(self) -> None:
        settings = {
            "port": "0", "unixsocket": str(self._directory / "s"), "dir": str(self._directory),
            "save": "", "appendonly": "yes", "appendfsync": "always",
        }  # fmt: skip
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        command = [server_binary(), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(lambda: server._ping(self._directory / "s").startswith(b"+PONG"))

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    made = Outside(tmp_path_factory.mktemp("outside"))
    yield made
    made.kill()


@pytest.fixture(scope="module")
def service(outside: Outside) -> Iterator[Running]:
    """A service on that server, with a model that has learnt something."""
    with serving("--redis-url", outside.url, environ=HASTY) as running:
        new_model(running.url)
        assert learn_one(running, "first").status_code == 200
        yield running


@pytest.fixture
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        until(lambda: rank_one(client).json()["logged"])
        yield client


@pytest.fixture
def paused(outside: Outside, service: Running, http: httpx.Client) -> Iterator[httpx.Client]:
    """The store neither answers nor hangs up."""
    with paused_store(outside):
        yield http
    until(lambda: rank_one(http).json()["logged"])
    assert learn_one(service, "after a pause").status_code == 200


@contextlib.contextmanager
def paused_store(outside: Outside) -> Iterator[None]:
    outside.pause()
    try:
        yield
    finally:
        outside.resume()


def ranked_for_a_while(http: httpx.Client) -> list[tuple[float, dict[str, Any]]]:
    """Answers, and how long each took: from the first moment on, then some known as degraded."""
    answers: list[tuple[float, dict[str, Any]]] = []

    def ask() -> bool:
        started = monotonic()
        answered = rank_one(http)
        took = monotonic() - started
        assert answered.status_code == 200, answered.text
        answers.append((took, answered.json()))
        return sum(bool(answer["degraded"]) for _, answer in answers) >= 30

    until(ask)
    return answers


def test_a_store_that_hangs_does_not_slow_ranking_down(paused: httpx.Client) -> None:
    answers = ranked_for_a_while(paused)
    times = sorted(took for took, _ in answers)
    assert times[len(times) * 9 // 10] <= 0.1, times  # the machine may be busy: nine in ten
    assert not any(answer["logged"] for _, answer in answers)
    assert all(answer["version"] >= 1 for _, answer in answers)
    assert answers[0][1]["documents"][0]["id"] == "a"


def test_a_service_whose_store_hangs_stays_ready_and_says_so(paused: httpx.Client) -> None:
    until(lambda: paused.get("/readyz").json()["degraded"])
    assert paused.get("/readyz").status_code == 200
    assert paused.get("/healthz").status_code == 200


def test_feedback_is_refused_soon_while_the_store_hangs(paused: httpx.Client) -> None:
    """Sooner than a caller gives up: the usual patience is some seconds."""
    until(lambda: rank_one(paused).json()["degraded"])
    event = {
        "event_id": "lost", "type": "labels", "model": "m", "labels": {"a": 1},
        "documents": [{"id": "a", "features": [1, 0, 0]}],
    }  # fmt: skip
    refused = paused.post("/feedback", json=event, timeout=2.0)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1


def test_metrics_are_told_soon_while_the_store_hangs(paused: httpx.Client) -> None:
    """Prometheus gives a scrape ten seconds; this is when they are needed most."""
    until(lambda: rank_one(paused).json()["degraded"])
    page = paused.get("/metrics", timeout=2.0)
    assert 'solar_version{model="m"}' in page.text


def test_an_explanation_does_without_the_deviation_while_the_store_hangs(
    paused: httpx.Client,
) -> None:
    until(lambda: rank_one(paused).json()["degraded"])
    paused.timeout = httpx.Timeout(2.0)
    answered = rank_one(paused, explain=True)
    assert answered.status_code == 200, answered.text
    assert "contributions" in answered.json()["documents"][0]


def test_a_store_that_is_gone_is_lived_without_and_caught_up_with(
    outside: Outside, service: Running, http: httpx.Client
) -> None:
    before = http.get("/models/m").json()
    outside.kill()
    try:
        answers = ranked_for_a_while(http)
        times = sorted(took for took, _ in answers)
        assert times[len(times) * 9 // 10] <= 0.1, times
        assert not any(answer["logged"] for _, answer in answers)
        refused = learn_one(service, "not taken")
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["content-type"] == "application/problem+json"
        assert http.get("/readyz").json() == {"status": "ready", "degraded": True}
        assert 'solar_version{model="m"}' in http.get("/metrics").text
        assert service.process.poll() is None
    finally:
        outside.start()
    until(lambda: rank_one(http).json()["logged"])
    answered = rank_one(http).json()
    assert not answered["degraded"]
    event = {
        "event_id": "back", "type": "clicks", "request_id": answered["request_id"],
        "clicked": [answered["documents"][1]["id"]],
    }  # fmt: skip
    taken = http.post("/feedback", json=event, headers=LEARNT)
    assert (taken.status_code, taken.json()["seq"]) == (200, before["seq"] + 1)
    assert http.get("/models/m").json()["queries"] == before["queries"] + 1


def test_a_learner_that_finds_no_store_waits_for_it_and_the_service_goes_on(
    outside: Outside, service: Running, http: httpx.Client
) -> None:
    before = service.logged().count("is unreachable")
    outside.kill()
    try:
        learner = child(service.process.pid, "app learn")
        assert learner is not None
        until(lambda: service.logged().count("is unreachable") == before + 2)  # worker and learner
        os.kill(learner, signal.SIGKILL)
        until(lambda: service.logged().count("is unreachable") == before + 3)
        restarted = child(service.process.pid, "app learn")
        time.sleep(1.5)
        assert child(service.process.pid, "app learn") == restarted
        assert service.logged().count("is unreachable") == before + 3
        assert rank_one(http).json()["degraded"]
        assert "learner ended with exit code 2" not in service.logged()
    finally:
        outside.start()
    until(lambda: rank_one(http).json()["logged"])
    assert learn_one(service, "with a new learner").status_code == 200


def test_a_service_may_be_started_before_its_store(tmp_path: Path) -> None:
    log, url = tmp_path / "log", f"unix://{tmp_path / 's'}"
    command = [sys.executable, "-m", "app", "serve", "--port", "0", "--redis-url", url]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        until(lambda: "serving on http" in log.read_text() or process.poll() is not None)
        address = re.search(r"http://[^\"]+", log.read_text())
        assert address is not None, log.read_text()
        with Running(process, address[0], tmp_path, log).client() as http:
            check_started_before_its_store(http, tmp_path)
    finally:
        process.kill()
        process.wait()


def check_started_before_its_store(http: httpx.Client, directory: Path) -> None:
    log = directory / "log"
    until(lambda: answers(http) == 503)
    assert http.get("/healthz").status_code == 200
    assert rank_one(http).status_code == 503
    until(lambda: log.read_text().count("is unreachable") == 2)  # of the worker and the learner
    time.sleep(1.5)
    assert log.read_text().count("is unreachable") == 2
    assert "learner ended" not in log.read_text()
    store = Outside(directory)
    try:
        until(lambda: answers(http) == 200)
        assert http.put("/models/m", json={**PLAIN, "features": N}).status_code == 201
        assert rank_one(http).json()["logged"]
    finally:
        store.kill()


def answers(http: httpx.Client) -> int:
    """What /readyz says, 0 if nobody does."""
    try:
        return http.get("/readyz").status_code
    except httpx.TransportError:
        return 0
