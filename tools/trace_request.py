"""List the files under `app/` that a request visits: `make trace`.

It traces three operations of the application on an embedded server. Each is traced the second time,
when imports, kernels and caches are warm:

- `POST /rank`, from the ASGI call to its end: the impression is written, the answer is sent;
- `POST /feedback` with a click on that request, from the ASGI call to its end: 202;
- record → committed: the learner's round reads the record, applies it and commits, with a point of
  the history, as once in 10 seconds.

`sys.setprofile` reports every call of a Python function. A file counts if one of its functions runs
in the operation's task, or in tasks and threads that it starts: they inherit its context variables.
Background tasks, such as the polling of the weight cache, and code at module level do not count.
numba reports a compiled kernel when Python calls it; calls inside the kernel do not count.
"""

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from pathlib import Path
from time import time
from types import FrameType
from typing import Any

from fastapi import FastAPI

import app
from app.config import Settings
from app.learning.options import LearnerOptions
from app.learning.session import LeaderSession
from app.main import create_app
from app.observability.metrics import Metrics
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store

APP = str(Path(app.__file__).parent) + "/"
RANK, CLICK, COMMIT = "POST /rank", "click until 202", "record → committed"
MODEL = "traced"
RANKING = {
    "model": MODEL,
    "documents": [{"id": str(at), "features": [at / 10, 1 - at / 10]} for at in range(10)],
}
#: The files that an operation has visited, in order; None outside of an operation.
_visited: ContextVar[dict[str, None] | None] = ContextVar("_visited", default=None)


@contextmanager
def profiling() -> Iterator[None]:
    """Record calls in this thread and in threads that start meanwhile."""
    threading.setprofile(_record)
    sys.setprofile(_record)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _record(frame: FrameType, event: str, _: object) -> None:
    files, code = _visited.get(), frame.f_code
    if files is None or event != "call" or code.co_name == "<module>":
        return
    if code.co_filename.startswith(APP):
        files.setdefault(code.co_filename.removeprefix(APP))


async def files_of(work: Coroutine[Any, Any, object]) -> list[str]:
    """The files under `app/` that this work visits, in the order of the first visit."""
    files: dict[str, None] = {}

    async def traced() -> None:
        _visited.set(files)  # tasks and threads started by `work` inherit it
        await work

    await asyncio.create_task(traced())
    return list(files)


async def request(application: FastAPI, method: str, path: str, body: object) -> Any:
    """The answer of an application to an ASGI call."""
    scope = {
        "type": "http", "method": method, "path": path, "query_string": b"",
        "server": ("127.0.0.1", 8000),
        "headers": [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json")],
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    if sent[0]["status"] not in (200, 201, 202):
        raise RuntimeError(f"{method} {path}: {sent[0]['status']} {sent[1]['body']!r}")
    return json.loads(sent[1]["body"])


async def rank(application: FastAPI, name: str, **options: Any) -> None:
    """Send one `POST /rank`; its impression must be written."""
    body = {**RANKING, "request_id": name, **options}
    answer = await request(application, "POST", "/rank", body)
    if not answer["logged"]:
        raise RuntimeError("the impression was not written in time")


async def click(application: FastAPI, name: str) -> None:
    """Send one `POST /feedback` with a click on a request."""
    body = {"event_id": name, "type": "clicks", "request_id": name, "clicked": ["3"]}
    await request(application, "POST", "/feedback", {**body, "model": MODEL})


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """A store that is closed at the end."""
    store = Store.open(url)
    try:
        yield store
    finally:
        await store.close()


async def learner_session(store: Store) -> LeaderSession:
    """A learner with the lease of the model that commits every round and counts metrics."""
    ten_seconds_later = partial(next, count(time(), 10.0))  # each commit adds a point
    options = LearnerOptions(commit=0.0, commit_share=0.0, wall_clock=ten_seconds_later)
    fence = await store.leases.take(MODEL, 0, options.lease)
    return await LeaderSession.begin(store, MODEL, fence, options, Metrics().learnt)


async def commit(session: LeaderSession) -> None:
    """Run one round of a learner: it reads a record, applies it, and commits."""
    await session.round()
    await session.commit_done()


async def trace_all(url: str) -> dict[str, list[str]]:
    """The files of each operation; the first run of each is a warm-up."""
    application = create_app(Settings(learner=False, remember_seconds=10.0), url)
    async with application.router.lifespan_context(application), opened(url) as store:
        await request(application, "PUT", f"/models/{MODEL}", {"features": 2})
        session = await learner_session(store)
        await rank(application, "first")
        await click(application, "first")
        await commit(session)
        await rank(application, "served", min_seq=1)
        found = {
            RANK: await files_of(rank(application, "second")),
            CLICK: await files_of(click(application, "second")),
            COMMIT: await files_of(commit(session)),
        }
        if session.position[1] != 2:
            raise RuntimeError(f"expected 2 committed records, got {session.position[1]}")
        return found


def trace() -> dict[str, list[str]]:
    """The files of each operation, on a temporary embedded server."""
    with (
        tempfile.TemporaryDirectory(prefix="solar-trace-") as directory,
        EmbeddedServer.start(Path(directory)) as server,
        profiling(),
    ):
        return asyncio.run(trace_all(server.url))


def table(found: dict[str, list[str]]) -> str:
    """One line for each operation with its number of files; below it the numbered files."""
    lines = []
    for operation, files in found.items():
        lines.append(f"{operation:<20} {len(files):>3} files")
        lines += [f"{at:>23}  app/{file}" for at, file in enumerate(files, start=1)]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(trace()))
