"""Five open consoles: what they cost /rank.

`console_requests.json` holds the requests of one console: a minute on the pages of all models, of
one model, of its live records and of the service's health. `python -m tools.console_pages record`
writes it. Another process replays it, so that the load client is not disturbed.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic, time
from typing import Any

import httpx
import numpy as np

from benchmarks import load
from benchmarks.report import Goal, at_most, table
from benchmarks.service import (
    CONNECTIONS,
    DOCUMENTS,
    NOT_LOGGED,
    TIMEOUT_SECONDS,
    TOP,
    N,
    Running,
    click_posts,
    create,
    good,
    rank_requests,
    solar,
)

RECORDED = Path(__file__).with_name("console_requests.json")
CONSOLES, RUNS, SECONDS = 5, 5, 20.0
RANKS, CLICKS = 200, 50  # a second
MODEL = "watched"


def run() -> list[Goal]:
    """Print the table, return the goal."""
    with (
        tempfile.TemporaryDirectory(prefix="solar-bench-") as folder,
        solar(Path(folder)) as service,
    ):
        create(service.port, MODEL, N)
        alone, beside = list[float](), list[float]()
        for _ in range(RUNS):
            alone.append(p99(service, consoles=0))
            beside.append(p99(service, consoles=CONSOLES))
    ratio = float(np.median(beside) / np.median(alone))
    shown = [
        [name, *(f"{one:.2f}" for one in found), f"{np.median(found):.2f}"]
        for name, found in (("no console", alone), (f"{CONSOLES} consoles", beside))
    ]
    title = f"/rank at {RANKS} a second with {CLICKS} clicks a second: p99 in ms of each run"
    print(table(title, ["", *map(str, range(1, RUNS + 1)), "median"], shown), "\n")
    return [at_most(f"/rank, p99 beside {CONSOLES} consoles", 1.1, "× without", ratio)]


def p99(service: Running, consoles: int) -> float:
    """Measure the 99th percentile of /rank in ms, with some open consoles."""
    ranks = rank_requests(MODEL, DOCUMENTS, N, TOP)["objects"]
    posts = iter(click_posts(service.port, MODEL, N, int(SECONDS * CLICKS)))

    async def window() -> tuple[load.Load, list[float]]:
        ranked, _ = await asyncio.gather(
            load.paced(
                service.port, itertools.cycle(ranks), RANKS, SECONDS, CONNECTIONS, short=NOT_LOGGED
            ),
            load.paced(service.port, posts, CLICKS, SECONDS, CONNECTIONS),
        )
        return ranked

    with opened(service.port, consoles) if consoles else nullcontext():
        done, took = load.run(window())
    good(done)
    return float(1e3 * np.percentile(took, 99))


@contextmanager
def opened(port: int, consoles: int) -> Iterator[None]:
    """Replay some consoles in another process; RuntimeError if one of their requests failed."""
    command = [sys.executable, "-m", "benchmarks.console", str(port), str(consoles)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        for _ in process.stdout or ():  # a line: all are open
            break
        yield
    finally:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)  # closes its input: it ends
    answered, failed = map(int, output.split())
    if failed or not answered:
        raise RuntimeError(f"consoles: expected answers, got {answered} and {failed} failures")


# ---- the other process ----


async def replay(port: int, consoles: int) -> None:
    """Replay consoles until the input ends, each from another moment; print the answers."""
    requests = json.loads(RECORDED.read_text())
    counts = {"answered": 0, "failed": 0}
    async with httpx.AsyncClient(
        base_url=f"http://{load.HOST}:{port}", timeout=TIMEOUT_SECONDS, trust_env=False
    ) as http:
        each = [
            asyncio.create_task(_console(http, requests, at / consoles, counts))
            for at in range(consoles)
        ]
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for one in each:
            one.cancel()
        await asyncio.gather(*each, return_exceptions=True)
    print(counts["answered"], counts["failed"])


async def _console(
    http: httpx.AsyncClient, recorded: dict[str, Any], start: float, counts: dict[str, int]
) -> None:
    """Repeat the recorded requests, from this share of their time on."""
    length = recorded["seconds"]
    offset = start * length
    began = monotonic() - offset
    async with asyncio.TaskGroup() as group:
        for turn in itertools.count():
            for one in recorded["requests"]:
                due = began + turn * length + one["at"]
                if turn == 0 and one.get("until", one["at"]) < offset:
                    continue
                await asyncio.sleep(max(0.0, due - monotonic()))
                group.create_task(_request(http, one, counts))


async def _request(http: httpx.AsyncClient, one: dict[str, Any], counts: dict[str, int]) -> None:
    """Send a request; a stream stays open as long as in the recording."""
    after = str(int(1e3 * time()) - 15_000)  # a page asks for points since its last request
    path = one["path"].replace("{model}", MODEL).replace("{after}", after)
    open_for = one.get("until", one["at"]) - one["at"] or TIMEOUT_SECONDS
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(open_for),
            http.stream(one["method"], path, json=one.get("body")) as answer,
        ):
            counts["answered" if answer.status_code < 400 else "failed"] += 1
            async for _ in answer.aiter_raw():
                pass


if __name__ == "__main__":
    asyncio.run(replay(int(sys.argv[1]), int(sys.argv[2])))
