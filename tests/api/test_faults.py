"""The whole service when processes are killed, the store is unreachable, or it is stopped."""

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
from app.storage.embedded.data_directory import ping
from app.storage.embedded.server import server_binary
from tests.api.services import PLAIN, ROOT, Running, serving
from tests.faults.checker import (
    check_log,
    check_replay,
    check_requests,
    check_state,
    learnt,
    read_stored,
    repeated,
)
from tests.faults.observed_model import run_scenario
from tests.servers import TIMEOUT, until

N = 3
WAIT_UNTIL_LEARNT = {"Prefer": f"wait={TIMEOUT:g}"}
SHORT_LEASE = {"SOLAR_LEASE": "1"}
SHORT_TIMEOUTS = {**SHORT_LEASE, "SOLAR_REMEMBER_SECONDS": "0.05"}  # the production default


# ---- processes ----


def status(pid: int) -> tuple[int, str]:
    """Return the parent and the state of a process; (0, "") if it does not exist."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, ""
    return int(words[1]), words[0]


def children(parent: int) -> dict[int, str]:
    """Return the command of each running child by its process id."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and status(int(folder.name))[0] == parent:
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command and status(int(folder.name))[1] != "Z":
                    found[int(folder.name)] = command
    return found


def child(parent: int, what: str) -> int | None:
    """Return the child whose command has these words; a launcher does not count."""
    found = [
        pid
        for pid, command in children(parent).items()
        if what in command and "launcher.py" not in command
    ]
    return found[0] if len(found) == 1 else None


def alive(pid: int) -> bool:
    return status(pid)[1] not in ("", "Z")


def all_ended(*pids: int) -> Callable[[], bool]:
    """Return a check that all these processes have ended."""
    return lambda: not any(map(alive, pids))


def child_replaced(parent: int, what: str, before: int) -> Callable[[], bool]:
    """Return a check that a new child has replaced a killed one."""
    return lambda: child(parent, what) not in (None, before)


# ---- traffic ----


@dataclass
class Traffic:
    """What clients sent and were answered; and the current URL of the service."""

    url: str
    seqs: dict[str, int] = field(default_factory=dict)
    posted: dict[str, list[list[float]]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    done: threading.Event = field(default_factory=threading.Event)


class FeedbackClient:
    """A feedback client: ranks and posts, retries each event, and repeats some events."""

    def __init__(self, sent: Traffic, name: str, seed: int) -> None:
        self._sent, self._name = sent, name
        self._rng = np.random.default_rng(seed)

    def work(self) -> None:
        with httpx.Client(timeout=TIMEOUT, trust_env=False) as http:
            at = 0
            while not self._sent.done.is_set():
                at += 1
                self._labels(http, f"{self._name}-{at}")
                self._clicks(http, f"{self._name}-{at}")
                self._sent.done.wait(0.02)  # bounds the events, all of which are checked later

    def _labels(self, http: httpx.Client, name: str) -> None:
        rows = self._rng.standard_normal((4, N)).astype(np.float32).tolist()
        event = {
            "event_id": f"l{name}", "type": "labels", "model": "m", "labels": {"d0": 1, "d2": 2},
            "documents": [{"id": f"d{at}", "features": row} for at, row in enumerate(rows)],
        }  # fmt: skip
        self._sent.posted[f"l{name}"] = rows
        self._post_until_accepted(http, event)
        if self._rng.random() < 0.3:
            self._post_until_accepted(http, event)

    def _clicks(self, http: httpx.Client, name: str) -> None:
        rows = self._rng.standard_normal((4, N)).astype(np.float32).tolist()
        body = {"model": "m", "ids": ["a", "b", "c", "d"], "features": rows}
        with contextlib.suppress(httpx.TransportError):
            answered = http.post(f"{self._sent.url}/rank", json=body)
            self._sent.statuses[answered.status_code] += 1
            if answered.status_code != 200 or not answered.json()["logged"]:
                return
            request = answered.json()["request_id"]
            shown = [one["id"] for one in answered.json()["documents"]]
            for again in range(2):
                event = {
                    "event_id": f"c{name}-{again}", "type": "clicks", "request_id": request,
                    "clicked": [shown[2 + again]],
                }  # fmt: skip
                self._post_until_accepted(http, event)
                self._sent.requests[request] += 1

    def _post_until_accepted(self, http: httpx.Client, event: dict[str, Any]) -> None:
        """Post until accepted; the same event always gets the same seq (I6)."""
        deadline = monotonic() + 3 * TIMEOUT
        while monotonic() < deadline:
            try:
                answered = http.post(f"{self._sent.url}/feedback", json=event)
            except httpx.TransportError:
                self._sent.done.wait(0.01)
                continue
            self._sent.statuses[answered.status_code] += 1
            if answered.status_code == 503:
                assert int(answered.headers["retry-after"]) >= 1
                self._sent.done.wait(0.01)
                continue
            assert answered.status_code == 202, answered.text
            seq = answered.json()["seq"]
            assert self._sent.seqs.setdefault(event["event_id"], seq) == seq
            return
        raise AssertionError("timeout: the event was not accepted")


@contextlib.contextmanager
def traffic(url: str, clients: int = 3) -> Iterator[Traffic]:
    """Run feedback clients within the block; their errors fail the test."""
    sent = Traffic(url)
    with ThreadPoolExecutor(clients) as pool:
        working = [pool.submit(FeedbackClient(sent, f"p{at}", at).work) for at in range(clients)]
        try:
            yield sent
        finally:
            sent.done.set()
        for one in working:
            one.result(4 * TIMEOUT)


def acknowledged_more(sent: Traffic, events: int) -> Callable[[], bool]:
    """Return a check that this number of further events were acknowledged."""
    wanted = len(sent.seqs) + events
    return lambda: len(sent.seqs) >= wanted


def check_nothing_lost(store: str, sent: Traffic) -> None:
    """Check that each acknowledged event is in the log once, and the state equals the replay."""

    async def check() -> None:
        await learnt(store, "m")
        found = await read_stored(store, "m")
        feedback = found.feedback()
        assert {seq: feedback[seq].event for seq in sent.seqs.values()} == {
            seq: event for event, seq in sent.seqs.items()
        }
        assert len(feedback) == len(sent.seqs) == found.tail
        assert repeated(feedback) == []
        for event, rows in sent.posted.items():
            check_record(feedback[sent.seqs[event]], rows)
        check_log(found)
        check_requests(found, feedback)
        check_state(found)
        await check_replay(store, "m")

    run_scenario(check(), 3 * TIMEOUT)


def check_record(record: Feedback, rows: list[list[float]]) -> None:
    assert record.documents.tolist() == rows
    assert record.labels is not None
    assert record.labels.tolist() == [1.0, 0.0, 2.0, 0.0]


def new_model(url: str) -> None:
    with httpx.Client(base_url=url, timeout=TIMEOUT, trust_env=False) as http:
        assert (
            http.put("/models/m", json={**PLAIN, "features": N, "gamma": 50.0}).status_code == 201
        )


def learn_one(running: Running, event: str) -> httpx.Response:
    """Post one event, and wait until it is learnt."""
    body = {
        "event_id": event, "type": "labels", "model": "m", "labels": {"a": 1},
        "documents": [{"id": "a", "features": [1, 0, 0]}, {"id": "b", "features": [0, 1, 0]}],
    }  # fmt: skip
    with running.client() as http:
        return http.post("/feedback", json=body, headers=WAIT_UNTIL_LEARNT)


def learns_further(url: str) -> Callable[[], bool]:
    """Return a check that the learner has applied further records."""

    def version() -> int:
        with httpx.Client(base_url=url, timeout=TIMEOUT, trust_env=False) as http:
            found: int = http.get("/models/m").json()["version"]
            return found

    before = version()
    return lambda: version() > before


def rank_one(http: httpx.Client, **options: Any) -> httpx.Response:
    rows = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    return http.post("/rank", json={"model": "m", "ids": ["a", "b"], "features": rows, **options})


# ---- killed processes ----


def test_a_service_killed_under_traffic_loses_and_duplicates_nothing_after_its_restart(
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(serving(data=tmp_path, environ=SHORT_LEASE))
        new_model(running.url)
        with traffic(running.url) as sent:
            for _ in range(2):
                until(acknowledged_more(sent, 40))
                until(learns_further(running.url))
                family = children(running.process.pid)
                running.kill()
                until(all_ended(*family))
                running = stack.enter_context(serving(data=tmp_path, environ=SHORT_LEASE))
                sent.url = running.url
            until(acknowledged_more(sent, 40))
        assert sent.requests, "no clicks were sent"
        store = server.find(tmp_path)
        assert store is not None
        check_nothing_lost(store, sent)
        assert set(sent.statuses) <= {200, 202, 503}
        with running.client() as http:
            model = http.get("/models/m").json()
        labels = sum(event.startswith("l") for event in sent.seqs)
        assert model["queries"] == labels + len(sent.requests)


@pytest.mark.slow
def test_each_killed_process_is_restarted_and_the_service_continues() -> None:
    with serving(environ=SHORT_LEASE) as running:
        new_model(running.url)
        supervisor = running.process.pid
        assert learn_one(running, "first").status_code == 200
        with traffic(running.url) as sent:
            sent.seqs["first"] = 1
            for what in ("app.runtime.worker", "app learn", "valkey-server"):
                until(acknowledged_more(sent, 20))
                killed = child(supervisor, what)
                assert killed is not None, children(supervisor)
                os.kill(killed, signal.SIGKILL)
                until(child_replaced(supervisor, what, killed))
                until(acknowledged_more(sent, 20))
                assert learn_one(running, f"after {what}").status_code == 200
                sent.seqs[f"after {what}"] = learn_one(running, f"after {what}").json()["seq"]
        store = server.find(running.data)
        assert store is not None
        check_nothing_lost(store, sent)
        assert set(sent.statuses) <= {200, 202, 503}
        logged = running.logged()
        assert "worker 0 ended with exit code -9" in logged
        assert "learner ended with exit code -9" in logged
        assert running.stop() == 0


def test_no_process_outlives_a_killed_supervisor() -> None:
    with serving("--workers", "2") as running:
        family = children(running.process.pid)
        assert sorted(kind(command) for command in family.values()) == [
            "app learn", "app.runtime.worker", "app.runtime.worker", "valkey-server",
        ]  # fmt: skip
        running.kill()
        until(all_ended(*family))


def kind(command: str) -> str:
    return next(
        what for what in ("app.runtime.worker", "app learn", "valkey-server") if what in command
    )


# ---- stop ----


@pytest.mark.slow
def test_a_stop_under_load_loses_no_acknowledged_event_and_leaves_no_process() -> None:
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
                    except httpx.TransportError:  # the event was not accepted
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
                one.result(TIMEOUT)
        assert not refused
        assert not any(map(alive, family))
        assert "did not end within" not in running.logged()
        with server.EmbeddedServer.start(running.data) as again:
            check_all_stored(again.url, acknowledged)


def check_all_stored(store: str, acknowledged: set[str]) -> None:
    async def check() -> None:
        found = await read_stored(store, "m")
        events = {record.event for record in found.feedback().values()}
        assert acknowledged <= events
        assert repeated(found.feedback()) == []
        check_log(found)
        await check_replay(store, "m")

    run_scenario(check(), 3 * TIMEOUT)


def test_a_half_sent_request_is_answered_during_a_stop() -> None:
    with serving() as running:
        new_model(running.url)
        url = httpx.URL(running.url)
        body = b'{"model":"m","ids":["a","b"],"features":[[1,0,0],[0,1,0]]}'
        head = (
            f"POST /rank HTTP/1.1\r\nhost: {url.host}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((url.host, url.port or 80), timeout=TIMEOUT) as connection:
            connection.sendall(head.encode() + body[:20])
            with running.client() as http:  # by now the worker has read the first part
                assert rank_one(http).status_code == 200
            running.process.send_signal(signal.SIGTERM)
            until(lambda: not listens(url))
            for at in range(20, len(body)):  # a slow connection
                connection.sendall(body[at : at + 1])
                time.sleep(0.02)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert b'"logged":true' in answer
        assert running.process.wait(3 * TIMEOUT) == 0


def listens(url: httpx.URL) -> bool:
    try:
        socket.create_connection((url.host, url.port or 80), timeout=TIMEOUT).close()
    except OSError:
        return False
    return True


# ---- unreachable store ----


class ExternalServer:
    """An external server that the test pauses, kills and starts again."""

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
        until(lambda: ping(self._directory / "s").startswith(b"+PONG"))

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalServer]:
    made = ExternalServer(tmp_path_factory.mktemp("external"))
    yield made
    made.kill()


@pytest.fixture(scope="module")
def service(external: ExternalServer) -> Iterator[Running]:
    """A service on the external server, with a model that has learnt one event."""
    with serving("--redis-url", external.url, environ=SHORT_TIMEOUTS) as running:
        new_model(running.url)
        assert learn_one(running, "first").status_code == 200
        yield running


@pytest.fixture
def http(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        until(lambda: rank_one(client).json()["logged"])
        yield client


@pytest.fixture
def paused(
    external: ExternalServer, service: Running, http: httpx.Client
) -> Iterator[httpx.Client]:
    """A client while the store hangs: it neither answers nor closes connections."""
    with paused_store(external):
        yield http
    until(lambda: rank_one(http).json()["logged"])
    assert learn_one(service, "after a pause").status_code == 200


@contextlib.contextmanager
def paused_store(external: ExternalServer) -> Iterator[None]:
    external.pause()
    try:
        yield
    finally:
        external.resume()


def ranked_for_a_while(http: httpx.Client) -> list[tuple[float, dict[str, Any]]]:
    """Return answers and their durations, until 30 of them are degraded."""
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


def test_a_hanging_store_does_not_slow_down_ranking(paused: httpx.Client) -> None:
    answers = ranked_for_a_while(paused)
    times = sorted(took for took, _ in answers)
    assert times[len(times) * 9 // 10] <= 0.1, times  # 90 %: the machine may be busy
    assert not any(answer["logged"] for _, answer in answers)
    assert all(answer["version"] >= 1 for _, answer in answers)
    assert answers[0][1]["documents"][0]["id"] == "a"


def test_readyz_reports_degraded_while_the_store_hangs(paused: httpx.Client) -> None:
    until(lambda: paused.get("/readyz").json()["degraded"])
    assert paused.get("/readyz").status_code == 200
    assert paused.get("/healthz").status_code == 200


def test_feedback_is_refused_quickly_while_the_store_hangs(paused: httpx.Client) -> None:
    """The answer comes before a client's usual timeout of some seconds."""
    until(lambda: rank_one(paused).json()["degraded"])
    event = {
        "event_id": "lost", "type": "labels", "model": "m", "labels": {"a": 1},
        "documents": [{"id": "a", "features": [1, 0, 0]}],
    }  # fmt: skip
    refused = paused.post("/feedback", json=event, timeout=2.0)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1


def test_metrics_are_answered_quickly_while_the_store_hangs(paused: httpx.Client) -> None:
    """Prometheus' scrape timeout is ten seconds; metrics matter most during an outage."""
    until(lambda: rank_one(paused).json()["degraded"])
    page = paused.get("/metrics", timeout=2.0)
    assert 'solar_version{model="m"}' in page.text


def test_an_explanation_omits_the_deviation_while_the_store_hangs(
    paused: httpx.Client,
) -> None:
    until(lambda: rank_one(paused).json()["degraded"])
    paused.timeout = httpx.Timeout(2.0)
    answered = rank_one(paused, explain=True)
    assert answered.status_code == 200, answered.text
    assert "contributions" in answered.json()["documents"][0]


def test_the_service_ranks_without_its_store_and_recovers_with_it(
    external: ExternalServer, service: Running, http: httpx.Client
) -> None:
    before = http.get("/models/m").json()
    external.kill()
    try:
        answers = ranked_for_a_while(http)
        times = sorted(took for took, _ in answers)
        assert times[len(times) * 9 // 10] <= 0.1, times
        assert not any(answer["logged"] for _, answer in answers)
        refused = learn_one(service, "not taken")
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["content-type"] == "application/problem+json"
        assert http.get("/readyz").json() == {"status": "ready", "degraded": True, "down": []}
        assert 'solar_version{model="m"}' in http.get("/metrics").text
        assert service.process.poll() is None
    finally:
        external.start()
    until(lambda: rank_one(http).json()["logged"])
    answered = rank_one(http).json()
    assert not answered["degraded"]
    event = {
        "event_id": "back", "type": "clicks", "request_id": answered["request_id"],
        "clicked": [answered["documents"][1]["id"]],
    }  # fmt: skip
    taken = http.post("/feedback", json=event, headers=WAIT_UNTIL_LEARNT)
    assert (taken.status_code, taken.json()["seq"]) == (200, before["seq"] + 1)
    assert http.get("/models/m").json()["queries"] == before["queries"] + 1


def test_a_learner_waits_for_an_unreachable_store(
    external: ExternalServer, service: Running, http: httpx.Client
) -> None:
    external.kill()
    try:
        until(lambda: rank_one(http).json()["degraded"])  # the worker has logged the outage
        learner = child(service.process.pid, "app learn")
        assert learner is not None
        os.kill(learner, signal.SIGKILL)
        until(all_ended(learner))
        before = service.logged().count("is unreachable")
        until(child_replaced(service.process.pid, "app learn", learner))
        until(lambda: service.logged().count("is unreachable") > before)  # the new learner's line
        assert rank_one(http).json()["degraded"]
        assert "learner ended with exit code 2" not in service.logged()
    finally:
        external.start()
    until(lambda: rank_one(http).json()["logged"])
    assert learn_one(service, "with a new learner").status_code == 200


def test_a_service_can_start_before_its_store(tmp_path: Path) -> None:
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
    assert "learner ended" not in log.read_text()
    store = ExternalServer(directory)
    try:
        until(lambda: answers(http) == 200)
        assert log.read_text().count("is unreachable") == 2  # once each, however long it took
        assert http.put("/models/m", json={**PLAIN, "features": N}).status_code == 201
        assert rank_one(http).json()["logged"]
    finally:
        store.kill()


def answers(http: httpx.Client) -> int:
    """Return the status of /readyz, 0 without a connection."""
    try:
        return http.get("/readyz").status_code
    except httpx.TransportError:
        return 0
