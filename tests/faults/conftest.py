"""Fixtures: a server and learner processes that end with the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.learners import LearnerProcesses
from tests.faults.server import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "data")
    yield made
    made.stop()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[LearnerProcesses]:
    made = LearnerProcesses(tmp_path)
    yield made
    made.kill_all()
    assert made.tracebacks() == []
