"""Helpers for warm starts over HTTP: judged data as text, jobs, and training processes."""

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
from app.evaluation.synthetic import SyntheticData
from app.ranking.online import LabelledQuery
from app.storage.embedded import server
from app.storage.keys import Keys
from app.training.options import Training
from app.training.trainer import judgements, online, train_batch
from tests.api.services import Running
from tests.api.test_faults import child, children
from tests.servers import TIMEOUT

JOB_TIMEOUT = 6 * TIMEOUT  # a training process starts slowly and runs at low priority
TEXT = {"content-type": "text/plain"}
BOUND = 1e4


def until_long(true: Callable[[], object]) -> None:
    """Wait until a condition on a training job holds, or fail after a long timeout."""
    deadline = time.monotonic() + JOB_TIMEOUT
    while not true():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.01)


# ---- data ----


def judged_queries(
    n: int = 3, queries: int = 12, documents: int = 6, seed: int = 0
) -> list[LabelledQuery]:
    """Return synthetic judged queries."""
    return SyntheticData(n, queries, documents).draw(np.random.default_rng(seed))[1]


def letor(queries: Sequence[LabelledQuery]) -> bytes:
    """Return judged queries as LETOR text; nine digits represent any float32."""
    lines = [
        f"{label:g} qid:q{at} "
        + " ".join(f"{k}:{value:.9g}" for k, value in enumerate(row.tolist(), start=1))
        for at, query in enumerate(queries)
        for label, row in zip(query.labels, query.documents, strict=True)
    ]
    return "\n".join([*lines, ""]).encode()


def as_json(queries: Sequence[LabelledQuery], names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return judged queries for JSON; with `names`, every second document has features by name."""
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
    """Train in this process, and return the model."""
    judged = judgements(JudgedData(settings.n, queries), settings, BOUND)
    return online(train_batch(judged, training), settings)


# ---- jobs ----


def warm_start(http: httpx.Client, model: str, data: bytes, **options: Any) -> httpx.Response:
    return http.post(f"/models/{model}/warm-start", content=data, headers=TEXT, params=options)


def started_job(answer: httpx.Response) -> str:
    """Check that a job has started, and return its id."""
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/jobs/{job['id']}"
    return str(job["id"])


def read_job(http: httpx.Client, job: str) -> dict[str, Any]:
    answer = http.get(f"/jobs/{job}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ended_job(http: httpx.Client, job: str) -> dict[str, Any]:
    """Wait until a job has ended, and return it."""
    until_long(lambda: read_job(http, job)["state"] != "running")
    return read_job(http, job)


def done(http: httpx.Client, job: str) -> dict[str, Any]:
    found = ended_job(http, job)
    assert found["state"] == "done", found
    return found


# ---- processes ----


def worker_of(running: Running) -> int:
    found = child(running.process.pid, "app.runtime.worker")
    assert found is not None, children(running.process.pid)
    return found


def training_processes(worker: int) -> list[int]:
    """Return the training processes of a worker, without launchers."""
    return [
        pid
        for pid, command in children(worker).items()
        if "app.training.process" in command and "launcher.py" not in command
    ]


def pause_training(running: Running) -> int:
    """Pause the training process, long before it ends: its imports alone take a second."""
    worker = worker_of(running)
    until_long(lambda: len(training_processes(worker)) == 1)
    (pid,) = training_processes(worker)
    os.kill(pid, signal.SIGSTOP)
    return pid


# ---- the store and the files of a service ----


def store_of(running: Running) -> str:
    url = server.find(running.data)
    assert url is not None
    return url


def uploads(running: Running) -> list[str]:
    """List the directory of uploads."""
    folder = running.data / "uploads"
    return [] if not folder.exists() else sorted(one.name for one in folder.iterdir())


def records(url: str, model: str = "m") -> list[Any]:
    """Return all records of a log."""
    with redis.Redis.from_url(url) as store:
        entries: Any = store.xrange(Keys(model).log)
    return [codec.load_record(fields[b"r"]) for _, fields in entries]


def warm_starts(url: str, model: str = "m") -> list[Replace]:
    found = [one for one in records(url, model) if isinstance(one, Replace)]
    return [one for one in found if one.reason == "warm start"]


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))
