"""Followers and duels in a running service: memory of a worker, latency and CPU time of /rank.

Requests of both kinds take turns in many short rounds, and the best one counts, because other work
disturbs most of them. The section begins with `duels_freshness`; it needs no judged data.
"""

import asyncio
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, cycle, islice
from math import inf
from pathlib import Path

import numpy as np

from app.domain import duel_lists
from app.ranking.serving import uniforms
from app.storage.store import Store
from benchmarks import duels_freshness, load
from benchmarks.duels_freshness import FOLLOWERS, GAMMAS, follower_of
from benchmarks.report import Goal, at_most, table
from benchmarks.service import (
    DOCUMENTS,
    TOP,
    N,
    Running,
    ask,
    cpu_seconds,
    create,
    good,
    rank_requests,
    resident,
    solar,
)

#: Features of the models whose followers take memory.
SIZES = (46, 700)
SHARE, MOST_TIMES = 0.5, 1.15
CONNECTIONS, RATE, SECONDS, ROUNDS = 4, 100.0, 0.25, 48
#: Part of an answer of /rank whose list is one of a duel.
IN_DUEL = b'"duel":true'
#: The id in prepared requests; each request gets another one of this length.
ID = "request-00000000"
READY_SECONDS = 60.0


def run() -> list[Goal]:
    """Print the tables, return the goals."""
    goals = duels_freshness.run()
    with tempfile.TemporaryDirectory(prefix="solar-bench-") as folder:
        directory = Path(folder)
        with solar(directory / "memory") as service:
            _print_memory(service)
        # A list that is not stored in time is one of no duel: requests wait for the store.
        with solar(directory / "duels", "--remember-seconds", "5") as service:
            goals += _rankings(service)
    return goals


def _until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; RuntimeError if it takes too long."""
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not ready within {READY_SECONDS:g} s")
        time.sleep(0.01)


# ---- memory ----


def _print_memory(service: Running) -> None:
    """The memory of a worker that ranks by a model with followers, one after the other."""
    if not service.worker:
        print("Memory of a worker with followers: not measured, there is no /proc\n")
        return
    rows = []
    for n in SIZES:
        model = f"led-{n}"
        create(service.port, model, n)
        requests = rank_requests(model, 20, n, TOP)["binary"]
        found = [_memory(service, model, n, followers, requests) for followers in FOLLOWERS]
        rows.append([str(n), *(f"{one:.1f}" for one in found)])
    title = "Memory of a worker in MB, by the number of followers, after the same requests"
    print(table(title, ["n", *map(str, FOLLOWERS)], rows), end="\n\n")


def _memory(
    service: Running, model: str, n: int, followers: int, requests: Sequence[bytes]
) -> float:
    """Create followers up to this number, let them learn, rank, and return the memory."""
    for at in range(followers):
        body = {"follows": model, "gamma": GAMMAS[at]}
        ask(service.port, "PUT", f"/models/{follower_of(model, at)}", body)
    _teach(service, model, n, [follower_of(model, at) for at in range(followers)])
    _until(lambda: _served_followers(service, model) == followers)
    some = islice(cycle(requests), 2_000)
    good(load.run(load.flood(service.port, some, CONNECTIONS)))
    return resident(service.worker)


def _served_followers(service: Running, leader: str) -> int:
    """Return how many followers the worker holds, by its metrics."""
    with urllib.request.urlopen(f"http://{load.HOST}:{service.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    wanted = "solar_follower_lag", f'leader="{leader}"'
    return sum(line.startswith(wanted[0]) and wanted[1] in line for line in lines)


#: Numbers of events.
_EVENTS = count()


def _teach(service: Running, model: str, n: int, followers: Sequence[str]) -> None:
    """Post labels by the first feature, and wait until all have learnt them."""
    rng = np.random.default_rng(next(_EVENTS))
    events = []
    for _ in range(20):
        rows = rng.random((20, n)).round(3)
        documents = [{"id": str(at), "features": row.tolist()} for at, row in enumerate(rows)]
        labels = {str(at): int(2.99 * row[0]) for at, row in enumerate(rows)}
        events.append({"event_id": f"e{next(_EVENTS)}", "type": "labels",
                       "documents": documents, "labels": labels})  # fmt: skip
    status, answer = ask(service.port, "POST", "/feedback", {"model": model, "events": events})
    if status != 202:
        raise RuntimeError(f"POST /feedback: expected 202, got {status} {answer}")
    for name in (model, *followers):
        _until(partial(_has_learnt, service.port, name, answer["seq"]))


def _has_learnt(port: int, model: str, seq: int) -> bool:
    return bool(ask(port, "GET", f"/models/{model}")[1]["version"] >= seq)


# ---- rankings ----


class Total:
    """The best median latency of one kind of request, and the CPU time of the worker."""

    def __init__(self) -> None:
        self.p50, self._cpu, self._answers = inf, 0.0, 0

    def note(self, took: Sequence[float], cpu: float) -> None:
        """Add a round; latencies and CPU time are in seconds, `p50` is in milliseconds."""
        self.p50 = min(self.p50, 1e3 * float(np.median(took)))
        self._cpu, self._answers = self._cpu + cpu, self._answers + len(took)

    @property
    def cpu(self) -> float:
        """CPU microseconds per request, of all rounds: the clock has steps of 10 ms."""
        return 1e6 * self._cpu / self._answers


def _rankings(service: Running) -> list[Goal]:
    """Requests that duel, against requests that do not, while the same duel is on."""
    _begin_duel(service)
    epoch = asyncio.run(_epoch(service.url, "led"))
    names = {duels: _names("led", epoch, duels=duels) for duels in (False, True)}
    made = rank_requests("led", DOCUMENTS, N, TOP, request_id=ID)
    totals = {(kind, duels): Total() for kind in made for duels in (False, True)}
    for at in range(ROUNDS + 1):
        for kind, duels in totals if at % 2 else reversed(totals):
            found = _round(service, made[kind], names[duels], duels=duels)
            if at:  # the first round is warm-up
                totals[kind, duels].note(*found)
    rows = [_row(kind, totals[kind, False], totals[kind, True]) for kind in made]
    title = (
        f"/rank in a duel, {DOCUMENTS} documents of {N} features, top_k {TOP}, {RATE:g} requests/s "
        f"on {CONNECTIONS} connections, best of {ROUNDS} rounds (CPU: of the worker, all rounds)"
    )
    head = ["", "p50: plain", "duel", "duel / plain", "CPU: plain", "duel", "duel / plain"]
    print(table(title, head, rows), end="\n\n")
    return [
        at_most(f"/rank p50, {kind}, in a duel", MOST_TIMES, "x without",
                totals[kind, True].p50 / totals[kind, False].p50)
        for kind in made
    ]  # fmt: skip


def _row(kind: str, plain: Total, duel: Total) -> list[str]:
    return [
        kind, f"{plain.p50:.2f} ms", f"{duel.p50:.2f} ms", f"{duel.p50 / plain.p50:.2f}",
        f"{plain.cpu:.0f} µs", f"{duel.cpu:.0f} µs", f"{duel.cpu / plain.cpu:.2f}",
    ]  # fmt: skip


def _begin_duel(service: Running) -> None:
    """Create a model and a follower whose orders differ, and begin a duel of both."""
    port, challenger = service.port, follower_of("led", 0)
    create(port, "led", N, gamma=1e6)
    ask(port, "PUT", f"/models/{challenger}", {"follows": "led", "gamma": 1e2})
    _teach(service, "led", N, [challenger])
    body = {"challenger": challenger, "share": SHARE}
    status, answer = ask(port, "PUT", "/models/led/duel", body)
    if status != 201:
        raise RuntimeError(f"PUT /models/led/duel: expected 201, got {status} {answer}")
    _until(lambda: bool(ask(port, "GET", "/models/led/duel")[1]["ready"]))


async def _epoch(url: str, model: str) -> int:
    store = Store.open(url)
    epoch, *_ = await store.states.position(model)
    await store.close()
    return epoch


def _names(model: str, epoch: int, *, duels: bool) -> Iterator[bytes]:
    """Yield ids of requests that duel, or that do not."""
    for at in count():
        name = f"request-{at:08}"
        draw = partial(uniforms, f"duel:{model}:{epoch}:{name}")
        if duel_lists.duels(draw, SHARE) == duels:
            yield name.encode()


def _round(
    service: Running, prepared: Sequence[bytes], names: Iterator[bytes], *, duels: bool
) -> tuple[list[float], float]:
    """Send requests at a moderate pace; return their latencies and the CPU time of the worker."""
    requests = (one.replace(ID.encode(), next(names)) for one in cycle(prepared))
    used = cpu_seconds(service.worker)
    sending = load.paced(service.port, requests, RATE, SECONDS, CONNECTIONS, short=IN_DUEL)
    done, took = load.run(sending)
    expected = len(took) if duels else 0
    if good(done).short != expected:
        raise RuntimeError(
            f"expected {expected} of {len(took)} lists in the duel, got {done.short}"
        )
    return took, cpu_seconds(service.worker) - used
