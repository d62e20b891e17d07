"""`uvicorn app.main:app` as a complete service: it starts and ends its store and learner."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.storage.embedded import server as embedded
from app.storage.embedded.data_directory import ping
from tests.api.services import ROOT, Running, serving, uvicorn
from tests.api.services import uvicorn_ready as ready
from tests.servers import TIMEOUT, client, server, until, url

__all__ = ["server", "url"]  # fixtures

STORE_REQUIRED = "--workers and --reload need SOLAR_REDIS_URL"
DOCUMENTS = [{"id": "a", "features": [1.0, 0.0]}, {"id": "b", "features": [0.0, 1.0]}]
JSON_LOG = str(ROOT / "app/observability/uvicorn_logging.json")

LEARNT = 'solar_learnt_records_total{model="books"} 1.0'


def at_once(send: Callable[[], httpx.Response]) -> httpx.Response:
    """Send once."""
    return send()


def until_answered(send: Callable[[], httpx.Response]) -> httpx.Response:
    """Send until the answer is not 503, and a ranking is logged: the store may be restarting."""
    answers: list[httpx.Response] = []

    def answered() -> bool:
        answers.append(send())
        return answers[-1].status_code != 503 and answers[-1].json().get("logged", True)

    until(answered)
    return answers[-1]


def learn(
    running: Running,
    event: str = "e1",
    answer: Callable[[Callable[[], httpx.Response]], httpx.Response] = at_once,
) -> int:
    """Rank, click the second document, and return the version after it is learnt."""
    with running.client() as http:
        model = {"features": 2, "clicks": "click-skip-above"}
        made = answer(lambda: http.put("/models/books", json=model))
        assert made.status_code in (200, 201), made.text
        to_rank = {"model": "books", "documents": DOCUMENTS}
        ranked = answer(lambda: http.post("/rank", json=to_rank)).json()
        click = {
            "event_id": event, "type": "clicks", "request_id": ranked["request_id"],
            "clicked": [ranked["documents"][1]["id"]],
        }  # fmt: skip
        reply = answer(lambda: http.post("/feedback", json=click, headers={"prefer": "wait=60"}))
        assert reply.status_code == 200, reply.text
        return int(reply.json()["version"])


def children(pid: int) -> dict[int, str]:
    """Return the commands of a process's children by process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int(
                re.findall(r"^PPid:\s+(\d+)", (path / "status").read_text(), re.MULTILINE)[0]
            )
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if parent == pid:
                found[int(path.name)] = line
    return found


def child(pid: int, what: str) -> int:
    """Return the only child with this command: a store (`valkey`) or a learner (`app learn`)."""
    matching = [one for one, line in children(pid).items() if what in line]
    assert len(matching) == 1, children(pid)
    return matching[0]


def has_ended(pid: int) -> bool:
    """Whether a process has ended, or is a zombie."""
    with contextlib.suppress(OSError):
        return "(zombie)" in Path(f"/proc/{pid}/status").read_text()
    return True


def test_uvicorn_serves_and_learns_and_ends_its_children(tmp_path: Path) -> None:
    with ready(data=tmp_path) as running:
        assert learn(running) == 1
        companions = list(children(running.process.pid))
        assert len(companions) == 2
        with running.client() as http:
            until(lambda: LEARNT in http.get("/metrics").text)  # counted after the commit
            page = http.get("/metrics").text
            assert page.count("# TYPE solar_request_seconds histogram") == 1
            assert 'process_resident_memory_bytes{process="learner"}' in page
        running.stop()
        assert all(has_ended(one) for one in companions)
        assert embedded.find(tmp_path) is None
    with ready(data=tmp_path) as running:  # the model is still stored
        assert learn(running, "e2") == 2


def test_a_killed_uvicorn_leaves_no_process(tmp_path: Path) -> None:
    with ready(data=tmp_path) as running:
        learn(running)
        companions = list(children(running.process.pid))
        running.kill()
        until(lambda: all(has_ended(one) for one in companions))


def test_a_killed_store_and_a_killed_learner_are_restarted(tmp_path: Path) -> None:
    with ready(data=tmp_path) as running:
        assert learn(running) == 1
        for what in ("app learn", "valkey"):
            killed = child(running.process.pid, what)
            os.kill(killed, signal.SIGKILL)
            until(lambda what=what, killed=killed: any(  # type: ignore[misc]
                what in line for one, line in children(running.process.pid).items()
                if one != killed
            ))  # fmt: skip
        with running.client() as http:
            until(lambda: not http.get("/readyz").json().get("degraded", True))
        assert learn(running, "e2", until_answered) == 2


@pytest.mark.slow
def test_uvicorn_joins_a_running_store_in_the_data_directory(tmp_path: Path) -> None:
    with serving(data=tmp_path) as other, ready(data=tmp_path) as running:
        assert learn(other) == 1
        assert learn(running, "e2") == 2
        assert not any("valkey" in line for line in children(running.process.pid).values())


@pytest.mark.parametrize("flags", [("--workers", "2"), ("--reload",)])
def test_several_processes_need_a_store_url(flags: tuple[str, ...], tmp_path: Path) -> None:
    with uvicorn(*flags, data=tmp_path) as running:
        if "--workers" in flags:
            running.process.wait(TIMEOUT)
        until(lambda: STORE_REQUIRED in running.logged())
        assert "solar serve --workers N" in running.logged()
        assert "Traceback" not in running.logged()
        assert list(tmp_path.iterdir()) == []


def test_workers_share_one_learner_and_their_metrics_add_up(url: str, tmp_path: Path) -> None:
    with ready("--workers", "2", data=tmp_path, SOLAR_REDIS_URL=url) as running:
        assert learn(running) == 1
        workers = [one for one, line in children(running.process.pid).items() if "spawn" in line]
        learners = [line for one in workers for line in children(one).values() if "learn" in line]
        assert (len(workers), len(learners)) == (2, 1)
        for _ in range(20):  # each on a new connection: both workers get some
            with running.client() as http:
                assert http.get("/healthz").status_code == 200
        with running.client() as http:
            until(lambda: 'solar_process_up{process="learner"} 1.0' in http.get("/metrics").text)
            until(lambda: LEARNT in http.get("/metrics").text)
            page = http.get("/metrics").text
        counted = re.search(r'request_seconds_count{route="/healthz",status="200"} (\S+)', page)
        assert counted is not None
        assert float(counted[1]) == 20.0
        folders = list(Path(tempfile.gettempdir()).glob(f"solar-metrics-{running.process.pid}*"))
        assert len(folders) == 1
        running.kill()
        for one in workers:  # uvicorn's workers outlive a killed parent
            os.kill(one, signal.SIGKILL)
        until(lambda: all(has_ended(one) for one in workers))
    with ready("--workers", "2", data=tmp_path, SOLAR_REDIS_URL=url):
        assert not folders[0].exists()  # the folder of the killed parent


def test_without_a_learner_no_child_is_started(url: str, tmp_path: Path) -> None:
    with ready(data=tmp_path, SOLAR_REDIS_URL=url, SOLAR_LEARNER="no") as running:
        with running.client() as http:
            assert http.get("/readyz").status_code == 200
        assert children(running.process.pid) == {}


def remote_address() -> str:
    """Return a non-loopback address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has loopback addresses only")
        return str(probe.getsockname()[0])


def test_without_keys_requests_to_a_non_loopback_address_are_403(tmp_path: Path) -> None:
    host = remote_address()
    with ready("--host", "0.0.0.0", data=tmp_path, SOLAR_LEARNER="no") as running:  # noqa: S104
        port = running.url.rpartition(":")[2]
        for _ in range(3):
            reply = httpx.get(f"http://{host}:{port}/models", trust_env=False, timeout=TIMEOUT)
            assert reply.status_code == 403
            assert "SOLAR_KEYS" in reply.json()["detail"]
        with running.client() as http:
            assert http.get("/models").status_code == 200
            assert http.get("/models", headers={"host": "evil.example"}).status_code == 421
            assert http.put("/models/m", headers={"origin": "null"}).status_code == 403
        assert running.logged().count("refusing requests") == 1


def test_an_invalid_setting_ends_the_start_with_one_line(tmp_path: Path) -> None:
    with uvicorn(data=tmp_path, SOLAR_KEYS="nonsense") as running:
        assert running.process.wait(TIMEOUT) == 3
        assert "solar: SOLAR_KEYS" in running.logged()
        assert "Traceback" not in running.logged()


@pytest.mark.parametrize("by", ["uvicorn", "solar serve"])
def test_an_invalid_store_url_ends_the_start_without_printing_its_password(
    by: str, tmp_path: Path
) -> None:
    for wrong in ("redis://solar:se/cret@host:6379", "http://solar:se-cret@host"):
        if by == "uvicorn":
            with uvicorn(data=tmp_path, SOLAR_REDIS_URL=wrong) as running:
                assert running.process.wait(TIMEOUT) == 3
                errors = running.logged()
        else:
            command = [sys.executable, "-m", "app", "serve", "--redis-url", wrong]
            ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert ran.returncode == 2
            errors = ran.stderr
        assert len(errors.splitlines()) == 1
        assert errors.startswith("solar: store URL: expected")
        assert not {"se", "cret", "se-cret"} & set(re.split(r"\W", errors))


def test_log_lines_are_json_by_default(tmp_path: Path, url: str) -> None:
    with ready(data=tmp_path, SOLAR_REDIS_URL=url, SOLAR_LEARNER="no", SOLAR_ACCESS_LOG="yes") as r:
        with r.client() as http:
            asked = http.get("/models/none", headers={"x-secret": "hidden"})
        identity = asked.headers["x-request-id"]
        until(lambda: identity in r.logged())
        line = next(line for line in r.logged().splitlines() if identity in line)
        found = json.loads(line)
        assert (found["route"], found["status"]) == ("/models/{name}", 404)


@pytest.mark.slow
def test_uvicorn_answers_while_its_store_reloads(tmp_path: Path) -> None:
    with ready(data=tmp_path, SOLAR_LEARNER="no") as running, running.client() as http:
        with client(f"unix://{tmp_path}/valkey.sock") as connection:
            for at in range(300):
                connection.set(f"filler:{at}", 1_000_000 * b"x")

        def answered_while_loading() -> bool:
            """Kill the store and ask while it loads; on a busy machine that can be missed."""
            os.kill(child(running.process.pid, "valkey"), signal.SIGKILL)
            until(lambda: pinged(tmp_path))
            assert http.get("/healthz").status_code == 200
            return pinged(tmp_path).startswith(b"-LOADING")

        until(answered_while_loading, 6 * TIMEOUT)
        assert "the embedded store has ended" in running.logged()
        until(lambda: not http.get("/readyz").json().get("degraded", True))


def pinged(data: Path) -> bytes:
    """Return the store's answer to PING: -LOADING while it loads its data, empty if it is down."""
    return ping(data / "valkey.sock")


def test_the_documented_flags_give_json_logs_and_no_server_header(tmp_path: Path) -> None:
    documented = re.search(
        r"uvicorn app.main:app (--no-server-header.*?)\n```",
        (ROOT / "docs/deploy.md").read_text(),
        re.DOTALL,
    )
    assert documented is not None
    flags = documented[1].replace("\\\n", " ").split()
    with uvicorn(*flags, data=tmp_path, SOLAR_LEARNER="no") as running:
        until(lambda: "running on" in running.logged())
        found = re.search(r"running on (http://[0-9.:]+)", running.logged())
        assert found is not None
        reply = httpx.get(f"{found[1]}/healthz", trust_env=False, timeout=TIMEOUT)
        assert "server" not in reply.headers
        assert all(line.startswith("{") for line in running.logged().splitlines())


def test_a_store_below_the_durability_level_ends_the_start(tmp_path: Path, url: str) -> None:
    with client(url) as connection:
        connection.config_set("appendfsync", "everysec")
    try:
        with uvicorn(data=tmp_path, SOLAR_REDIS_URL=url, SOLAR_DURABILITY="fsync") as running:
            running.process.wait(TIMEOUT)
            assert "appendfsync" in running.logged()
    finally:
        with client(url) as connection:
            connection.config_set("appendfsync", "always")
