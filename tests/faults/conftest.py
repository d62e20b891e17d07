"""A server and the learners of a test, gone with it."""

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
    made.dismiss()
    assert made.stumbles() == []
