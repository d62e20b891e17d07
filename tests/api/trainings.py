"""Warm starts over HTTP for the tests: judged data as text, jobs, and the processes that train."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import redis

from app.domain import codec
from app.domain.model import Model
from app.domain.model_config import ModelConfig
from app.domain.records import Replace
from app.evaluation.letor import JudgedData
from app.evaluation.synthetic import World
from app.ranking.online import LabelledQuery
from app.storage.embedded import server
from app.storage.keys import Keys
from app.training.options import Training
from app.training.trainer import judgements, online, train_batch
from tests.api.services import Running
from tests.api.test_faults import child, children
from tests.servers import PATIENCE

JOB_PATIENCE = 6 * PATIENCE  # a process that trains starts slowly, and lets all others go first
TEXT = {"content-type": "text/plain"}
BOUND = 1e4


def patiently(true: Callable[[], object]) -> None:
    """Wait until a training has come so far, or fail."""
    deadline = time.monotonic() + JOB_PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


# ---- data ----


def drawn(n: int = 3, queries: int = 12, documents: int = 6, seed: int = 0) -> list[LabelledQuery]:
    """Judged queries of an invented world."""
    return World(n, queries, documents).draw(np.random.default_rng(seed))[1]


def letor(queries: Sequence[LabelledQuery]) -> bytes:
    """The same as text: nine digits are enough for any float32."""
    lines = [
        f"{label:g} qid:q{at} "
        + " ".join(f"{k}:{value:.9g}" for k, value in enumerate(row.tolist(), start=1))
        for at, query in enumerate(queries)
        for label, row in zip(query.labels, query.documents, strict=True)
    ]
    return "\n".join([*lines, ""]).encode()


def as_json(queries: Sequence[LabelledQuery], names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The same for JSON; every second document by names, if there are any."""
    return [
        {
            "query_id": f"q{at}",
            "documents": [
                {"label": label, "features": dict(zip(names, row, strict=True)) if names and d % 2
                 else row}
                for d, (label, row) in enumerate(
                    zip(query.labels.tolist(), query.documents.tolist(), strict=True)
                )
            ],
        }
        for at, query in enumerate(queries)
    ]  # fmt: skip


def expected(queries: list[LabelledQuery], settings: ModelConfig, training: Training) -> Model:
    """What a training here gives."""
    judged = judgements(JudgedData(settings.n, queries), settings, BOUND)
    return online(train_batch(judged, training), settings)


# ---- jobs ----


def warm_start(http: httpx.Client, model: str, data: bytes, **options: Any) -> httpx.Response:
    return http.post(f"/models/{model}/warm-start", content=data, headers=TEXT, params=options)


def begun(answer: httpx.Response) -> str:
    """The id of a job that has begun."""
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/jobs/{job['id']}"
    return str(job["id"])


def look(http: httpx.Client, job: str) -> dict[str, Any]:
    answer = http.get(f"/jobs/{job}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def became(http: httpx.Client, job: str) -> dict[str, Any]:
    """A job once it has ended."""
    patiently(lambda: look(http, job)["state"] != "running")
    return look(http, job)


def done(http: httpx.Client, job: str) -> dict[str, Any]:
    found = became(http, job)
    assert found["state"] == "done", found
    return found


# ---- processes ----


def worker_of(running: Running) -> int:
    found = child(running.process.pid, "app.runtime.worker")
    assert found is not None, children(running.process.pid)
    return found


def apprentices(worker: int) -> list[int]:
    """The processes that train for a worker, once they are no launchers any more."""
    return [
        pid
        for pid, command in children(worker).items()
        if "app.training.process" in command and "launcher.py" not in command
    ]


def held(running: Running) -> int:
    """Stop the process that trains, long before it is done: its imports alone take a second."""
    worker = worker_of(running)
    patiently(lambda: len(apprentices(worker)) == 1)
    (pid,) = apprentices(worker)
    os.kill(pid, signal.SIGSTOP)
    return pid


# ---- behind its back ----


def store_of(running: Running) -> str:
    url = server.find(running.data)
    assert url is not None
    return url


def uploads(running: Running) -> list[str]:
    """What lies in the directory of uploads."""
    folder = running.data / "uploads"
    return [] if not folder.exists() else sorted(one.name for one in folder.iterdir())


def records(url: str, model: str = "m") -> list[Any]:
    """All records of a log."""
    with redis.Redis.from_url(url) as store:
        entries: Any = store.xrange(Keys(model).log)
    return [codec.load_record(fields[b"r"]) for _, fields in entries]


def warm_starts(url: str, model: str = "m") -> list[Replace]:
    found = [one for one in records(url, model) if isinstance(one, Replace)]
    return [one for one in found if one.reason == "warm start"]


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))
