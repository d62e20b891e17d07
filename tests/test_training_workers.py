"""Processes that train groups."""

import operator
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.errors import SolarError
from app.training.workers import Workers


def test_results_are_in_order_and_more_parts_than_processes_are_no_problem() -> None:
    parts = [list(range(at, at + at % 3)) for at in range(30)]
    with Workers(2) as workers:
        assert list(workers.map(operator.neg, parts)) == [-one for part in parts for one in part]
        assert list(workers.map(operator.neg, [])) == []
        assert list(workers.map(os.getenv, [["OPENBLAS_NUM_THREADS"]])) == ["1"]
        processes = {*workers.map(eval, [["__import__('os').getpid()"]] * 4)}
    assert os.getpid() not in processes
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_part_that_ends_early_waits_for_those_before_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def parts() -> Iterator[list[str]]:
        yield [f"open({str(pipe)!r}).read()"]
        yield ["'second'"]
        pipe.write_text("first")  # the second part has ended: its process asks for the next

    with Workers(2) as workers:
        assert list(workers.map(eval, parts())) == ["first", "second"]


def test_an_interruption_ends_a_busy_process() -> None:
    def parts() -> Iterator[list[float]]:
        yield [3600.0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Workers(2) as workers:
        list(workers.map(time.sleep, parts()))


@pytest.mark.parametrize(
    ("function", "part", "how"),
    [
        (signal.raise_signal, [signal.SIGKILL], "SIGKILL"),
        (os._exit, [3], "exit code 3"),
    ],
)
def test_a_process_that_dies_is_an_error(function: object, part: list[int], how: str) -> None:
    with Workers(1) as workers, pytest.raises(SolarError, match=f"process ended by {how}"):
        list(workers.map(function, [part, part]))  # type: ignore[arg-type]
