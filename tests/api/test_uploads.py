"""Uploads and the disk: slots, free space, and what dead processes leave."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app.config import GIB
from app.training.job_files import JobFiles, sweep
from app.training.options import TASK, UPLOAD
from tests.api.services import PLAIN, Running, application, serving
from tests.api.test_bad_input import Connection
from tests.api.trainings import (
    done,
    judged_queries,
    letor,
    started_job,
    until_long,
    uploads,
    warm_start,
    worker_of,
)
from tests.servers import server, url

__all__ = ["server", "url"]  # fixtures
N = 3
DATA = letor(judged_queries(N))
PART = b"#" * 2_000_000  # more than one write
PROBLEM = "application/problem+json"
PATH = "/models/m/warm-start"


def head(*lines: str, kind: str = "text/plain") -> bytes:
    start = [f"POST {PATH} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}"]
    return "\r\n".join([*start, *lines, "", ""]).encode()


def new_model(http: httpx.Client | TestClient) -> None:
    assert http.put("/models/m", json={**PLAIN, "features": N}).status_code == 201


def written(running: Running) -> int:
    """Return the bytes of all uploads on disk."""
    size = 0
    for file in (running.data / "uploads").glob("*/upload"):
        with suppress(FileNotFoundError):
            size += file.stat().st_size
    return size


@pytest.fixture(scope="module")
def one_slot() -> Iterator[Running]:
    with serving() as running, running.client() as http:
        new_model(http)
        yield running


# ---- slots ----


def test_uploads_beyond_the_job_limit_are_refused_before_their_bodies(one_slot: Running) -> None:
    """Thirty clients send at once; one of them gets the slot, and only its data is on disk."""
    until_long(lambda: uploads(one_slot) == [])
    with ExitStack() as stack:
        clients = [stack.enter_context(Connection(one_slot.url)) for _ in range(30)]
        for client in clients:
            client.send(head("Content-Length: 100000000") + PART[:60_000])
        until_long(lambda: sum(one.readable(0.0) for one in clients) == 29)
        (holder,) = [one for one in clients if not one.readable(0.0)]
        for client in clients:
            if client is not holder:
                reply = client.reply()
                assert (reply.status, reply.headers["content-type"]) == (503, PROBLEM)
                assert int(reply.headers["retry-after"]) >= 1
                assert b"SOLAR_JOBS" in reply.body
        holder.send(PART)
        until_long(lambda: written(one_slot) > 0)
        assert len(uploads(one_slot)) == 1
        assert written(one_slot) <= len(PART) + 60_000


def test_a_client_that_waits_for_100_continue_sends_no_body_without_a_slot(
    one_slot: Running,
) -> None:
    expects = head("Content-Length: 100000000", "Expect: 100-continue")
    with ExitStack() as opened:

        def status() -> int:
            connection = opened.enter_context(Connection(one_slot.url))
            connection.send(expects)
            return int(connection.reply().status)

        until_long(lambda: status() == 100)  # the slot of a test before is free
        assert status() == 503


def test_an_interrupted_upload_frees_its_slot(one_slot: Running) -> None:
    until_long(lambda: uploads(one_slot) == [])
    for _ in range(3):
        with Connection(one_slot.url) as client:
            client.send(head("Content-Length: 100000000") + PART)
            until_long(lambda: written(one_slot) > 0)
        until_long(lambda: uploads(one_slot) == [])
    with one_slot.client() as http:
        job = started_job(warm_start(http, "m", DATA, C=0.01))
        assert done(http, job)["share_done"] == 1.0
    until_long(lambda: uploads(one_slot) == [])


# ---- free disk space ----


def test_an_upload_that_would_fill_the_disk_is_507_before_its_body() -> None:
    with serving(environ={"SOLAR_FREE_BYTES": "1000TiB"}) as running, running.client() as http:
        new_model(http)
        for kind in ("text/plain", "application/json"):
            with Connection(running.url) as client:
                client.send(head("Content-Length: 1000", kind=kind))
                reply = client.reply()
                assert (reply.status, reply.headers["content-type"]) == (507, PROBLEM)
                assert b"SOLAR_FREE_BYTES" in reply.body
        assert uploads(running) == []
        assert '"status": 507' in running.logged()


class SmallDisk:
    """A disk of a given size whose only files are the uploads."""

    def __init__(self, uploads: Path, size: int) -> None:
        self._uploads, self._size = uploads, size

    def statvfs(self, _: Path) -> Any:
        used = sum(file.stat().st_size for file in self._uploads.rglob("*") if file.is_file())
        blocks = {"f_frsize": 1, "f_blocks": self._size, "f_bavail": self._size - used}
        return SimpleNamespace(**blocks)


@pytest.mark.parametrize(
    ("free_bytes", "size", "fits"),
    [
        (None, 10_000_000, 9_500_000),  # 5 % of a small disk stay free
        (None, 100 * GIB, 99 * GIB),  # 1 GiB of a large one
        (8_000_000, 10_000_000, 2_000_000),
        (0, 10_000_000, 20_000_000),  # no check
    ],
)
def test_free_space_is_kept_by_the_declared_size_and_while_an_upload_is_written(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free_bytes: int | None,
    size: int,
    fits: int,
) -> None:
    monkeypatch.setattr("app.api.uploads.os.statvfs", SmallDisk(tmp_path, size).statvfs)
    settings: Any = {
        "upload_dir": str(tmp_path),
        "free_bytes": free_bytes,
        "upload_bytes": 200 * GIB,
    }
    with application(url, **settings) as http:
        new_model(http)
        more = {"content-type": "text/plain", "content-length": str(fits + 1)}
        assert http.post(PATH, content=b"", headers=more).status_code == (
            507 if fits < size else 400
        )
        if size < GIB:
            body = (b"\n" * 1_000_000 for _ in range(fits // 1_000_000 + 1))  # chunked
            answer = http.post(PATH, content=body, headers={"content-type": "text/plain"})
            assert answer.status_code == (507 if free_bytes != 0 else 422), answer.text
        until_long(lambda: list(tmp_path.iterdir()) == [])


# ---- what dead processes leave ----


def test_the_upload_of_a_killed_worker_is_removed_at_once_and_that_of_a_live_one_is_kept() -> None:
    with serving() as running, running.client() as http:
        new_model(http)
        with Connection(running.url) as client:
            client.send(head("Content-Length: 100000000") + PART)
            until_long(lambda: written(running) > 0)
            sweep(running.data / "uploads")  # as another worker does when it starts
            assert len(uploads(running)) == 1
            worker = worker_of(running)
            os.kill(worker, signal.SIGKILL)
            until_long(lambda: uploads(running) == [])
        assert worker not in (worker_of(running), None)


def test_a_sweep_keeps_data_that_a_job_has_read_and_data_in_use(tmp_path: Path) -> None:
    """A failed job keeps its data for a day, so that it can be started again."""
    ids = [f"m.01970000-0000-7000-8000-{at:012x}" for at in range(4)]
    orphan, failed, used, old = [JobFiles.create(tmp_path, job) for job in ids]
    for files in (orphan, failed, used, old):
        (files.directory / UPLOAD).write_bytes(DATA)
    for files in (failed, old):
        (files.directory / TASK).touch()
    long_ago = time.time() - 30 * 86_400.0
    os.utime(old.directory, (long_ago, long_ago))
    for files in (orphan, failed, old):
        files.close()
    sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == [failed.directory, used.directory]
    again = JobFiles.open(tmp_path, ids[1])
    os.utime(failed.directory, (long_ago, long_ago))
    sweep(tmp_path)
    assert failed.directory.exists()
    again.close()
    used.close()
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        JobFiles.open(tmp_path, ids[1])
