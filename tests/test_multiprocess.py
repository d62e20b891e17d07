"""Metrics of several processes: sums, process names, and removal of leftover directories."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app import __version__
from app.errors import SolarError
from app.observability import multiprocess
from app.observability.metrics import Metrics
from tests.api.services import ROOT, serving
from tests.servers import TIMEOUT, until
from tests.test_metrics import Series, paged, read, series

#: As the service's: the directory is chosen when it is imported, made when it starts.
APPLICATION = """
from app.observability import multiprocess
multiprocess.choose_directory()
from app.observability.metrics import Metrics, StoreHealth

made = []

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        multiprocess.prepare_directory()
        made.append(Metrics())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = b""
    if scope["path"] == "/metrics":
        body = made[0].page([], {}, StoreHealth(True, 0.0))
    else:
        made[0].request("/rank", 200, 0.001)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
PROCESS_METRICS = {
    "process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes",
    "process_start_time_seconds", "process_open_fds", "process_max_fds",
}  # fmt: skip


class Workers:
    """`uvicorn --workers 2` of the application above."""

    def __init__(self, folder: Path, *flags: str) -> None:
        (folder / "front.py").write_text(APPLICATION)
        (folder / "tmp").mkdir(exist_ok=True)
        self.temporary = folder / "tmp"
        self._log = folder / "log"
        command = [sys.executable, "-m", "uvicorn", "front:app", "--port", "0", *flags]
        environ = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "TMPDIR": str(self.temporary)}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        until(self._address)
        self.url = self._address()
        until(self._listens)

    def _listens(self) -> bool:
        try:
            return bool(self.ask("/metrics"))
        except httpx.ConnectError:
            return False

    def _address(self) -> str:
        assert self.process.poll() is None, self._log.read_text()
        found = re.search(r"http://127\.0\.0\.1:\d+", self._log.read_text())
        return found[0] if found else ""

    def ask(self, path: str) -> bytes:
        """Return the answer of one of the workers."""
        return httpx.get(self.url + path, trust_env=False, timeout=TIMEOUT).content

    def metrics(self) -> Series:
        return read(self.ask("/metrics"))

    def directories(self) -> list[str]:
        return sorted(str(one) for one in self.temporary.iterdir())

    def pids(self) -> dict[str, int]:
        """Return the pids of running workers by name."""
        return multiprocess.named_processes(self.directories()[0]) if self.directories() else {}

    def kill(self) -> None:
        """Kill all processes with SIGKILL."""
        workers = self.pids().values()
        self.process.kill()
        self.process.wait()
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def workers(folder: Path, *flags: str) -> Iterator[Workers]:
    found = Workers(folder, *flags)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.terminate()
            found.process.wait(TIMEOUT)


def request_count(found: Series) -> float:
    return found.get(series("solar_request_seconds_count", route="/rank", status="200"), 0.0)


def process_names(found: Series, metric: str = "process_open_fds") -> set[str]:
    return {dict(labels)["process"] for name, labels in found if name == metric}


@LINUX
def test_every_metrics_page_sums_all_uvicorn_workers_also_after_a_kill(
    tmp_path: Path,
) -> None:
    with workers(tmp_path, "--workers", "2") as service:
        until(lambda: process_names(service.metrics()) == {"worker 0", "worker 1"})
        for _ in range(20):
            service.ask("/")
        answers = [service.metrics() for _ in range(10)]  # most likely from both workers
        assert {request_count(one) for one in answers} == {20}
        before = service.pids()
        os.kill(before["worker 0"], signal.SIGKILL)
        until(lambda: service.pids().get("worker 0", before["worker 0"]) != before["worker 0"])
        after = service.metrics()
        assert process_names(after) == {"worker 0", "worker 1"}
        assert service.pids()["worker 1"] == before["worker 1"]
        assert request_count(after) == 20
        assert len(service.directories()) == 1


@LINUX
def test_the_directory_of_a_killed_service_is_removed_and_not_counted_at_the_next_start(
    tmp_path: Path,
) -> None:
    with workers(tmp_path, "--workers", "2") as service:
        until(lambda: len(service.pids()) == 2)
        service.ask("/")
        [left] = service.directories()
        assert Path(left).stat().st_mode & 0o777 == 0o700
        service.kill()
    (tmp_path / "tmp" / "solar-metrics-abcd1234").mkdir()  # of a release without locks
    with workers(tmp_path, "--workers", "2") as service:
        until(lambda: left not in service.directories())
        assert request_count(service.metrics()) == 0
        assert len(service.directories()) == 2


def test_a_single_process_needs_no_directory(tmp_path: Path) -> None:
    with workers(tmp_path) as service:
        service.ask("/")
        found = service.metrics()
        assert request_count(found) == 1
        assert service.directories() == []
        if sys.platform == "linux":
            assert process_names(found) == {"worker"}


def process_with_directory(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a process that creates a directory for its children."""
    code = (
        "import signal; from app.observability import multiprocess\n"
        "with multiprocess.new_directory() as made: print(made, flush=True); signal.pause()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
    )


def test_a_directory_is_removed_after_its_process_was_killed(tmp_path: Path) -> None:
    with process_with_directory(tmp_path) as other:
        assert other.stdout is not None
        made = Path(other.stdout.readline().decode().strip())
        (made / "counter_1.db").touch()
        multiprocess.remove_abandoned(tmp_path)
        assert made.exists()
        other.kill()
        other.wait()
        assert made.exists()
        multiprocess.remove_abandoned(tmp_path)
        assert not made.exists()


def test_a_new_directory_is_removed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with multiprocess.new_directory() as made:
        assert Path(made).stat().st_mode & 0o777 == 0o700
    assert not Path(made).exists()


def test_only_directories_of_the_service_are_removed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "solar-metrics-1-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "solar-metrics-1-file").touch()
    (tmp_path / "solar-metrics-abcd1234").mkdir()
    (tmp_path / "solar-metrics-1-abc").mkdir()
    multiprocess.remove_abandoned(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {
        "elsewhere", "solar-metrics-1-link", "solar-metrics-1-file", "solar-metrics-abcd1234",
    }  # fmt: skip


def test_a_day_old_directory_of_a_release_without_locks_is_removed_once_its_processes_ended(
    tmp_path: Path,
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    long_ago = time.time() - 100_000
    for name, pid, changed in (
        ("leftover", ended.pid, long_ago),
        ("in_use_1", os.getpid(), long_ago),
        ("recently", ended.pid, time.time()),
    ):
        folder = tmp_path / f"solar-metrics-{name}"
        folder.mkdir()
        (folder / f"counter_{pid}.db").touch()
        for path in (folder / f"counter_{pid}.db", folder):
            os.utime(path, (changed, changed))
    multiprocess.remove_abandoned(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {
        "solar-metrics-in_use_1", "solar-metrics-recently",
    }  # fmt: skip


@pytest.mark.slow
@LINUX
def test_a_killed_supervisors_directory_is_removed_at_the_next_start_and_no_other(
    tmp_path: Path,
) -> None:
    flags = {"TMPDIR": str(tmp_path)}
    with process_with_directory(tmp_path) as other:
        assert other.stdout is not None
        kept = Path(other.stdout.readline().decode().strip())
        with serving("--no-learner", environ=flags) as running:
            [killed] = tmp_path.glob(f"solar-metrics-{running.process.pid}-*")
            running.kill()
            assert killed.exists()
        with serving("--no-learner", environ=flags):
            assert not killed.exists()
            assert kept.exists()
        other.kill()


@pytest.mark.parametrize("how", ["open to others", "a link", "a file"])
def test_a_directory_that_others_can_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    chosen = tmp_path / "solar-metrics-1-abc"
    if how == "open to others":
        chosen.mkdir()
        chosen.chmod(0o755)
    elif how == "a link":
        chosen.symlink_to(tmp_path)
    else:
        chosen.touch()
    monkeypatch.setenv(multiprocess.DIRECTORY, str(chosen))
    with pytest.raises(SolarError, match="solar-metrics-1-abc: "):
        multiprocess.prepare_directory()


def test_a_directory_chosen_by_an_operator_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(multiprocess.DIRECTORY, str(tmp_path / "theirs"))
    multiprocess.prepare_directory()
    assert not (tmp_path / "theirs").exists()


CHILDREN = """
import json, multiprocessing, os

def choice(early):
    if early:
        __import__(early)
    from app.observability import multiprocess
    multiprocess.choose_directory()
    return os.environ.get(multiprocess.DIRECTORY)

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        print(json.dumps(pool.map(choice, ["", "", "prometheus_client"], chunksize=1)))
"""


def test_sibling_workers_choose_the_same_directory_before_the_import_of_prometheus_client(
    tmp_path: Path,
) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "children.py").write_text(CHILDREN)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, str(tmp_path / "children.py")]
    answers = [
        json.loads(subprocess.run(command, env=environ, capture_output=True, check=True).stdout)
        for _ in range(2)
    ]
    for first, second, late in answers:
        assert first == second
        assert Path(first).parent == tmp_path / "tmp"
        assert late is None
    assert answers[0][0] != answers[1][0]
    assert not any((tmp_path / "tmp").iterdir())


def test_a_process_without_a_parent_chooses_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(multiprocess.DIRECTORY, raising=False)
    multiprocess.choose_directory()
    assert multiprocess.DIRECTORY not in os.environ


@LINUX
def test_a_single_process_is_measured_under_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(multiprocess.DIRECTORY, raising=False)
    found = paged(Metrics("learner"))
    values = {
        name: value for (name, labels), value in found.items() if ("process", "learner") in labels
    }
    assert set(values) == PROCESS_METRICS
    assert 0 < values["process_resident_memory_bytes"] < values["process_virtual_memory_bytes"]
    assert 0 < values["process_open_fds"] <= values["process_max_fds"]
    assert values["process_start_time_seconds"] > 1.7e9


def test_the_version_is_a_metric() -> None:
    [labels] = [dict(labels) for name, labels in paged(Metrics()) if name == "solar_build_info"]
    assert labels == {"version": __version__, "python": sys.version.split()[0]}
