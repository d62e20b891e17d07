"""What clients and operators of a run check; and its exit code."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.soak import __main__, users
from tests.soak.announcements import Announcements
from tests.soak.audit import Auditor
from tests.soak.calls import Answer, Calls
from tests.soak.churn import Churn
from tests.soak.ledger import Book, Problems
from tests.soak.plan import Plan
from tests.soak.report import Outcome
from tests.soak.traffic import Traffic

SETTINGS = {"features": 8}


class Answers(Calls):
    """A service that gives one answer to all calls."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self.announcements = Announcements(folder / "actions")
        super().__init__("", self.announcements, Problems())
        self.answer, self.paths = answer, list[str]()

    async def call(self, method: str, path: str, *_: Any, **__: Any) -> Answer:
        self.paths.append(f"{method} {path}")
        return self.answer


@pytest.mark.parametrize(("status", "problems"), [(404, 0), (503, 0), (202, 1), (410, 1)])
def test_a_click_on_a_list_that_was_not_remembered_must_be_404(
    tmp_path: Path, status: int, problems: int
) -> None:
    calls = Answers(tmp_path, Answer(status, {"seq": 7}))
    target = users.new_target("shop", Book("shop", calls.problems), SETTINGS, 1.0, 0)
    traffic = Traffic(Plan(0.0), calls, calls.announcements, {"shop": target}, "run")
    ids = [{"id": f"d{at}"} for at in range(10)]
    shown = users.shown_list(target, 0, {"documents": ids, "request_id": "r1"})

    async def look_up() -> None:
        traffic.note_list(shown, logged=False, quiet=True)
        traffic.note_list(shown, logged=False, quiet=False)
        await traffic.look_up_forgotten(later=3.0)
        await traffic.look_up_forgotten(later=3.0)

    asyncio.run(look_up())
    assert calls.paths == ["POST /feedback"]
    assert len(calls.problems) == problems


@pytest.mark.parametrize(
    ("error", "in_fault", "problems"),
    [
        ("the training process died", False, 1),
        ("the training process died", True, 0),
        ("the model's settings changed during the training; start the job again", False, 0),
    ],
)
def test_a_job_that_fails_outside_of_faults_is_a_problem(
    tmp_path: Path, error: str, in_fault: bool, problems: int
) -> None:
    calls = Answers(tmp_path, Answer(202, {"id": "shop.7", "state": "failed", "error": error}))
    auditor = Auditor(tmp_path, {}, calls.announcements, calls.problems)
    target = users.new_target("shop", Book("shop", calls.problems), SETTINGS, 1.0, 0)
    churn = Churn(Plan(0.0), calls, calls.announcements, auditor, {"shop": target})

    async def train() -> None:
        await churn.warm_start()
        if in_fault:
            with calls.announcements.disturbance("fault", "kill training"):
                pass
        calls.answer = calls.answer._replace(status=200)
        await churn.look_at_jobs()

    asyncio.run(train())
    assert churn.counts["warm starts failed"] == 1
    assert len(calls.problems) == problems


def test_a_model_whose_deletion_had_no_effect_is_deleted_again(tmp_path: Path) -> None:
    calls = Answers(tmp_path, Answer(200))
    auditor = Auditor(tmp_path, {}, calls.announcements, calls.problems)
    targets: dict[str, users.Target] = {}
    churn = Churn(Plan(0.0), calls, calls.announcements, auditor, targets)

    async def make() -> None:
        await churn.make_model()

    asyncio.run(make())
    assert targets == {}
    assert [one.split("/")[0] for one in calls.paths] == ["PUT ", "DELETE "]
    assert calls.paths[1].endswith("?followers=delete")


@pytest.mark.parametrize(("refused", "code"), [(0, 0), (1, 1)])
def test_a_missed_goal_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int, code: int
) -> None:
    class Ended:
        """A run that has ended."""

        def __init__(self, plan: Plan, folder: Path) -> None:
            self.plan, self.folder = plan, folder

        async def play(self) -> Outcome:
            return Outcome(
                self.plan, 1, refused=Counter({"/rank: 503": refused} if refused else {})
            )

    monkeypatch.setattr(__main__, "Run", Ended)
    monkeypatch.setattr(sys, "argv", ["soak", "--hours", "0.01", "--dir", str(tmp_path)])
    assert __main__.main() == code
