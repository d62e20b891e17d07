"""The last warnings and errors of each process: kept in memory, or in files that others read."""

import logging
import os
from pathlib import Path

import pytest

from app.observability.multiprocess import PROCESS
from app.observability.recent_errors import (
    ERROR_ROW_BYTES,
    MOST_ERRORS,
    RecentErrors,
    noting_errors,
)

log = logging.getLogger("solar.tested")


def messages(errors: RecentErrors, *directories: str) -> list[str]:
    return [one.message for one in errors.read(*directories)]


def test_warnings_and_errors_are_kept_newest_first() -> None:
    with noting_errors("") as errors:
        log.info("quiet")
        log.warning("model %s: slow", "books")
        log.error("worse")
        newest, oldest = errors.read()
    assert (newest.level, newest.logger, newest.process) == ("error", "solar.tested", "worker")
    assert (newest.message, oldest.message) == ("worse", "model books: slow")
    assert newest.time >= oldest.time > 1e9


def test_a_line_about_a_request_names_it() -> None:
    refused = {"method": "GET", "route": "/jobs", "status": 503, "cause": "StoreError at x.py:1"}
    with noting_errors("") as errors:
        log.warning("request", extra={**refused, "ms": 1.5})
        log.error("internal error", extra={"route": "/rank", "request_id": "6211db12"})
    assert messages(errors) == [
        "internal error: /rank 6211db12", "request: GET /jobs 503 StoreError at x.py:1",
    ]  # fmt: skip


def test_the_handler_is_removed_at_the_end() -> None:
    before = logging.getLogger("solar").handlers[:]
    with noting_errors("") as errors:
        assert logging.getLogger("solar").handlers == [*before, errors]
    assert logging.getLogger("solar").handlers == before


def test_only_the_last_twenty_are_kept(tmp_path: Path) -> None:
    with noting_errors(str(tmp_path)) as errors:
        for at in range(50):
            log.warning("line %d", at)
        expected = [f"line {at}" for at in reversed(range(30, 50))]
        assert messages(errors) == messages(RecentErrors(), str(tmp_path)) == expected
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == MOST_ERRORS * ERROR_ROW_BYTES
    assert file.stat().st_mode & 0o077 == 0


def test_a_process_reads_the_lines_of_others(tmp_path: Path) -> None:
    with noting_errors(str(tmp_path), "learner"):
        log.warning("from the learner")
    other = RecentErrors(str(tmp_path))
    (found,) = other.read(str(tmp_path), "")
    assert (found.process, found.message) == ("learner", "from the learner")
    assert other.read(str(tmp_path / "missing")) == []


def test_a_restarted_process_continues_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROCESS, "worker 0")
    for name in ("first", "second"):
        with noting_errors(str(tmp_path)) as errors:
            log.warning(name)
    assert messages(errors) == ["second", "first"]
    assert [one.name for one in tmp_path.iterdir()] == ["worker 0.errors"]


@pytest.mark.parametrize(
    "message", ["x" * 5_000, "\N{PILE OF POO}" * 500, '"\\\n' * 500, "\0" * 900]
)
def test_a_long_message_is_cut_to_its_row(tmp_path: Path, message: str) -> None:
    with noting_errors(str(tmp_path)):
        log.warning("%s", message)
        log.warning("next")
    found = messages(RecentErrors(), str(tmp_path))
    assert found[0] == "next"
    assert len(found) == 2
    assert 60 <= len(found[1]) <= 400


def test_a_damaged_file_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "worker 1.errors").write_bytes(os.urandom(5_000))
    (tmp_path / "worker 2.errors").write_bytes(b"[1]" + b" " * 1021 + b"{}")
    assert RecentErrors().read(str(tmp_path)) == []


def test_a_directory_that_is_gone_does_not_stop_a_line(tmp_path: Path) -> None:
    with noting_errors(str(tmp_path / "gone")) as errors:
        log.warning("kept in memory")
    assert messages(errors) == ["kept in memory"]


def test_lines_have_no_traceback_and_no_values() -> None:
    with noting_errors("") as errors:
        try:
            raise ValueError("secret value")  # noqa: TRY301
        except ValueError:
            log.exception("it failed")
    assert messages(errors) == ["it failed"]
