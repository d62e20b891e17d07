"""A fault that has no effect, a run that breaks off, and a check while posts are in flight."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.clock import SteppedClock
from tests.faults.power import COMPILER
from tests.soak import faults
from tests.soak.announcements import Announcements
from tests.soak.audit import Auditor
from tests.soak.calls import Calls
from tests.soak.disk import LimitedDisk
from tests.soak.faults import Faults
from tests.soak.ledger import Book, Problems
from tests.soak.plan import Plan
from tests.soak.run import Run
from tests.soak.service import SoakService
from tests.soak.users import Target

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler for clocks and disks")
STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.read()
"""


class OneProcess(SoakService):
    """A service whose only process ignores SIGTERM."""

    def __init__(self, folder: Path, pids: dict[int, str]) -> None:
        super().__init__(folder / "data", folder / "log", 1, {})
        self._pids = pids

    def processes(self) -> dict[int, str]:
        return self._pids


@pytest.fixture
def stubborn() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def faults_of(folder: Path, pids: dict[int, str]) -> Faults:
    announcements, problems = Announcements(folder / "actions"), Problems()
    (folder / "data").mkdir()
    return Faults(
        Plan(0.0), OneProcess(folder, pids), Calls("", announcements, problems), announcements,
        SteppedClock(folder), LimitedDisk(folder, folder / "data"), "run", bytes,
    )  # fmt: skip


def test_a_process_that_ignores_sigterm_is_a_problem(
    tmp_path: Path, stubborn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "MOST_RECOVERY", 0.2)
    found = faults_of(tmp_path, {stubborn: "learner"})
    assert not asyncio.run(found.cause("stop learner"))
    assert found.problems == ["learner: SIGTERM did not end it in 0.2 s"]


@pytest.mark.parametrize("what", ["kill learner", "stop learner", "pause learner"])
def test_a_fault_without_a_process_is_a_problem(tmp_path: Path, what: str) -> None:
    found = faults_of(tmp_path, {})
    assert not asyncio.run(found.cause(what))
    assert found.problems == ["learner: expected one process, got {}"]


def test_a_step_of_the_clock_that_no_store_sees_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "NOTICE_SECONDS", 0.0)
    found = faults_of(tmp_path, {})
    assert not asyncio.run(found.cause("clock ahead"))
    assert "the store does not see a step of +" in found.problems[0]


# ---- a run that breaks off ----


def test_a_run_that_breaks_off_has_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off() -> None:
        raise subprocess.TimeoutExpired("solar serve", 60.0)

    run = Run(Plan(1.0), tmp_path)
    monkeypatch.setattr(run.service, "start", break_off)
    outcome = asyncio.run(run.play())
    assert outcome.problems[0].startswith("the run broke off: TimeoutExpired: Command")
    assert "TimeoutExpired" in (run.folder / "report.md").read_text()
    assert (run.folder / "report.svg").exists()


def test_a_service_that_ends_by_itself_is_a_problem_and_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(Plan(1.0), tmp_path)
    codes: list[int | None] = [None, 0]

    async def recover(_: str) -> None:
        assert codes == [None]

    monkeypatch.setattr(run.service, "ended", lambda: codes[-1])
    monkeypatch.setattr(run.service, "start", codes.pop)
    monkeypatch.setattr(run._faults, "recover", recover)
    for _ in range(3):
        asyncio.run(run.revive())
    assert run.problems == ["the service ended by itself with exit code 0"]


# ---- posts in flight ----


def test_the_log_of_a_model_is_checked_once_its_posts_have_answers(tmp_path: Path) -> None:
    problems = Problems()
    target = Target("churn-a", Book("churn-a", problems), 8, 1.0)

    class EmptyLog:
        """An event is acknowledged while the end of the log is read, if its post is in flight."""

        async def tail(self, _: str) -> int:
            if target.posts:
                target.book.acknowledge("e1", 1)
            return 0

    async def read() -> None:
        auditor = Auditor(tmp_path, {}, Announcements(tmp_path / "actions"), problems)
        store: Any = SimpleNamespace(log=EmptyLog())
        auditor._store = store
        target.posts = 1
        reading = asyncio.create_task(auditor.read(target))
        await asyncio.sleep(0)
        target.posts = 0  # refused: the model was deleted
        assert await reading

    asyncio.run(read())
    assert problems == []
