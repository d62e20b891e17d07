"""The service over loopback with one worker against a minimal FastAPI service: wall clock."""

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from app.domain import codec
from app.domain.records import Feedback
from app.storage.embedded.server import EmbeddedServer, find
from app.storage.log import NewRecord
from app.storage.store import Store
from benchmarks import load
from benchmarks.load import Load, post
from benchmarks.report import Goal, at_least, at_most, not_measured, table

CONNECTIONS = 16
DOCUMENTS, N, TOP = 100, 46, 10
ROUNDS, SECONDS = 4, 1.0
#: Records of 40,000 pairs that wait when a window with an overloaded learner begins.
FLOOD_RECORDS = 4000
JSON, MSGPACK = "application/json", "application/msgpack"
TIMEOUT_SECONDS = 60.0
#: Part of an answer of /rank whose impression was not stored in time.
NOT_LOGGED = b'"logged":false'


@dataclass(frozen=True, slots=True)
class Running:
    """A service under test: its port and its worker process."""

    port: int
    worker: int
    url: str = ""  # of its store


def run() -> list[Goal]:
    """Print the tables, return the goals."""
    with tempfile.TemporaryDirectory(prefix="solar-bench-") as folder:
        directory = Path(folder)
        goals = [starting(directory / "start")]
        with solar(directory / "always") as service:
            peaks, against = rates(service)
            goals += against
            goals += [latency(service, peaks["objects"])]
            goals += feedback(service, "always", 500)
        with (
            EmbeddedServer.start(directory / "everysec", fsync="everysec") as server,
            solar(directory / "none", "--redis-url", server.url) as service,
        ):
            goals += feedback(service, "everysec", 1500)
        goals += [memory(directory / "memory")]
    return goals


# ---- services ----


@contextlib.contextmanager
def solar(directory: Path, *flags: str) -> Iterator[Running]:
    """Start `solar serve` with one worker, like `make run`."""
    kept = ["--data-dir", str(directory), *flags]
    with started("app", "serve", "--workers", "1", *kept, "--port") as (process, port):
        yield Running(port, worker_of(process.pid), find(directory) or "")


@contextlib.contextmanager
def hello() -> Iterator[Running]:
    """Start the reference service."""
    with started("benchmarks.hello") as (process, port):
        yield Running(port, process.pid)


@contextlib.contextmanager
def started(*command: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Start a service on a free port, its last argument; wait until it is ready."""
    port = free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SOLAR_")}
    process = subprocess.Popen(
        [sys.executable, "-m", *command, str(port)], env=environ, stderr=subprocess.DEVNULL
    )
    try:
        until_ready(process, port)
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_SECONDS)


def free_port() -> int:
    """A free port."""
    with socket.create_server((load.HOST, 0)) as found:
        port: int = found.getsockname()[1]
        return port


def until_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Wait for /readyz."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        with contextlib.suppress(OSError):
            if ask(port, "GET", "/readyz")[0] == 200:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"{process.args!r}: expected /readyz 200 within {TIMEOUT_SECONDS:g} s"
            )
        time.sleep(0.005)


def ask(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send one untimed request; return status and answer."""
    connection = http.client.HTTPConnection(load.HOST, port, timeout=TIMEOUT_SECONDS)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"content-type": JSON})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def worker_of(supervisor: int) -> int:
    """The worker process; 0 without /proc."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
            if b"app.runtime.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return 0


def cpu_seconds(process: int) -> float:
    """The CPU time of a process so far; NaN without /proc."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """Resident memory of a process in MB; exact, unlike that of `statm`."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024 / 1e6


# ---- requests ----


def create(port: int, model: str, n: int, **settings: Any) -> None:
    """Create a model with default settings, except those given."""
    status, answer = ask(port, "PUT", f"/models/{model}", {"features": n, **settings})
    if status != 201:
        raise RuntimeError(f"PUT /models/{model}: expected 201, got {status} {answer}")


def rank_requests(
    model: str, documents: int, n: int, top: int, *, log: bool = True, request_id: str = ""
) -> dict[str, list[bytes]]:
    """Eight different requests of each kind, with features of six decimals like LETOR's."""
    named = {"request_id": request_id} if request_id else {}
    made: dict[str, list[bytes]] = {"objects": [], "columns": [], "binary": []}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rows = rng.random((documents, n)).round(6)
        ids = [f"doc-{seed}-{at}" for at in range(documents)]
        asked = {"model": model, "query_id": f"q{seed}", "top_k": top, "log": log, **named}
        objects = [
            {"id": id_, "features": row} for id_, row in zip(ids, rows.tolist(), strict=True)
        ]
        columns = {"ids": ids, "features": rows.tolist()}
        raw = {"ids": ids, "features": rows.astype("<f4").tobytes()}
        made["objects"].append(post("/rank", as_json({**asked, "documents": objects})))
        made["columns"].append(post("/rank", as_json({**asked, **columns})))
        made["binary"].append(post("/rank", msgspec.msgpack.encode({**asked, **raw}), MSGPACK))
    return made


def as_json(body: Any) -> bytes:
    """Encode as JSON without spaces."""
    return json.dumps(body, separators=(",", ":")).encode()


def click_posts(port: int, model: str, n: int, count: int) -> list[bytes]:
    """Feedback requests with a single click, each on a separate logged impression."""
    ranks = itertools.cycle(rank_requests(model, 20, n, TOP)["binary"])
    clicks: list[bytes] = []
    while len(clicks) < count:
        some = itertools.islice(ranks, count - len(clicks))
        prepared = good(load.run(load.flood(port, some, CONNECTIONS, keep=True)))
        for answer in map(json.loads, prepared.bodies):
            if answer["logged"]:
                at = len(clicks)
                clicked = [answer["documents"][at % TOP]["id"]]
                event = {"event_id": f"e{at}", "type": "clicks", "clicked": clicked}
                event["request_id"] = answer["request_id"]
                clicks.append(post("/feedback", as_json(event)))
    return clicks


def good(done: Load) -> Load:
    """Return the load if no request failed; else raise RuntimeError."""
    if done.failed:
        raise RuntimeError(f"{done.failed} of {done.failed + done.answered} requests failed")
    return done


# ---- measurements ----


def starting(directory: Path) -> Goal:
    """The time from start to ready, with cached kernels."""
    took = float("inf")
    for at in range(3):
        began = time.perf_counter()
        with solar(directory / str(at)):
            took = min(took, time.perf_counter() - began)
    print(f"Start of `solar serve`, best of 3: {took:.2f} s until /readyz is 200\n")
    return at_most("start of `solar serve`", 3.0, "s", took)


@dataclass(slots=True)
class Best:
    """The best round of a kind of request."""

    rate: float = 0.0
    cpu: float = float("inf")  # CPU seconds of the server per request
    own: float = 0.0  # the client's share of a core
    short: int = 0  # answers of all rounds without a logged impression; not counted in the rate


LEAST = {
    ("objects", True): 36, ("columns", True): 38, ("binary", True): 55,
    ("objects", False): 20, ("columns", False): 22, ("binary", False): 48,
}  # fmt: skip


def rates(service: Running) -> tuple[dict[str, float], list[Goal]]:
    """Requests per second of each kind of /rank and of hello, in turns."""
    create(service.port, "bench", N)
    kinds: dict[str, list[bytes]] = {"hello": [post("/hello", b'{"name":"x"}')]}
    names: dict[tuple[str, bool], str] = {}
    for log in (True, False):
        made = rank_requests("bench", DOCUMENTS, N, TOP, log=log)
        for kind, requests in made.items():
            names[kind, log] = f"{kind}, {'logged' if log else 'log: false'}"
            kinds[names[kind, log]] = requests
    best = {name: Best() for name in kinds}
    with hello() as plain:
        for at in range(ROUNDS + 1):
            for name, requests in kinds.items():
                target = plain if name == "hello" else service
                short = NOT_LOGGED if name.endswith("logged") else b""
                one_round(target, requests, Best() if at == 0 else best[name], short)
    base, base_cpu = best["hello"].rate, best["hello"].cpu
    rows = [
        [name, f"{one.rate:,.0f} /s", f"{100 * one.rate / base:.1f} %", f"{1e6 * one.cpu:.0f} µs",
         f"{100 * base_cpu / one.cpu:.1f} %", f"{100 * one.own:.0f} %", str(one.short)]
        for name, one in best.items()
    ]  # fmt: skip
    title = (
        f"/rank, {DOCUMENTS} documents of {N} features, top_k {TOP}, fsync always, "
        f"{CONNECTIONS} connections, best of {ROUNDS} rounds (CPU: of the worker)"
    )
    head = ["", "requests", "of hello", "CPU each", "of hello by CPU", "client CPU", "not logged"]
    print(table(title, head, rows), "\n")
    goals = [
        at_least(f"/rank, {names[key]}", least, "% of hello", 100 * best[names[key]].rate / base)
        for key, least in LEAST.items()
    ]
    return {kind: best[names[kind, True]].rate for kind in ("objects", "columns", "binary")}, goals


def one_round(target: Running, requests: Sequence[bytes], best: Best, short: bytes) -> None:
    """Run one round of one kind."""
    used, coming = cpu_seconds(target.worker), load.lasting(requests, SECONDS)
    done = good(load.run(load.flood(target.port, coming, CONNECTIONS, short=short)))
    best.short += done.short
    best.cpu = min(best.cpu, (cpu_seconds(target.worker) - used) / (done.answered + done.short))
    if done.rate > best.rate:
        best.rate, best.own = done.rate, done.own / done.seconds


def latency(service: Running, peak: float) -> Goal:
    """The latency of /rank at half of its peak rate, with an overloaded learner."""
    seconds, windows, clicks = 4.0, 3, 100
    create(service.port, "flooded", N, prior=0)  # its records then hold documents of N features
    ranks = rank_requests("flooded", DOCUMENTS, N, TOP)["objects"]
    posts = iter(click_posts(service.port, "flooded", N, int(windows * seconds * clicks)))

    async def window() -> tuple[Load, list[float]]:
        ranked, _ = await asyncio.gather(
            load.paced(
                service.port, itertools.cycle(ranks), peak / 2, seconds, 4 * CONNECTIONS,
                short=NOT_LOGGED,
            ),
            load.paced(service.port, posts, clicks, seconds, CONNECTIONS),
        )  # fmt: skip
        return ranked

    found, not_logged = [], 0
    for _ in range(windows):
        asyncio.run(fill_log(service, "flooded", FLOOD_RECORDS))
        done, took = load.run(window())
        not_logged += good(done).short
        found.append(1e3 * np.percentile(took, [50, 99]))
        behind = lag(service.port, "flooded")
        if behind < seconds * clicks:
            raise RuntimeError(f"flooded: expected a learner that is behind, got {behind} records")
        if ask(service.port, "GET", "/models/flooded")[1]["rejected"]:
            raise RuntimeError(
                "flooded: expected no rejected records: they do not load the learner"
            )
    p50, p99 = min(found, key=lambda one: float(one[1]))
    ask(service.port, "DELETE", "/models/flooded")
    print(
        f"/rank, objects, at {peak / 2:,.0f} /s with {clicks} clicks/s at the same time, best of "
        f"{windows}: p50 {p50:.1f} ms, p99 {p99:.1f} ms; {not_logged} not logged; learner lag at "
        f"the end: {behind} records\n"
    )
    return at_most("/rank, p99 at half of its peak rate", 15, "ms", float(p99))


async def fill_log(service: Running, model: str, count: int) -> None:
    """Append records of 40,000 pairs until `count` of them wait."""
    store = Store.open(service.url)
    epoch, *_ = await store.states.position(model)
    rng = np.random.default_rng(0)
    documents = [rng.random((400, N)).astype(np.float32) for _ in range(20)]
    labels = np.repeat([0.0, 1.0], 200)
    while (missing := count - lag(service.port, model)) > 0:
        for at in range(missing):
            name = f"flood-{await store.log.tail(model)}"
            record = Feedback(name, "labels", documents[at % 20], np.arange(400), labels=labels)
            event = NewRecord(name, name.encode(), codec.dump_record(record))
            await store.log.append(model, epoch, [event], limit=2 * count, time=0)
    await store.close()


def lag(port: int, model: str) -> int:
    """The number of records that are not learnt yet."""
    _, answer = ask(port, "GET", f"/models/{model}")
    return int(answer["seq"] - answer["version"])


def feedback(service: Running, fsync: str, least: float) -> list[Goal]:
    """Posts of single clicks, n = 136, each on a separate impression."""
    rounds, count, n = 3, 2000, 136
    create(service.port, "clicks", n)
    clicks = click_posts(service.port, "clicks", n, rounds * count)
    best = Best()
    for at in range(rounds):
        used = cpu_seconds(service.worker)
        posts = clicks[at * count : (at + 1) * count]
        done = good(load.run(load.flood(service.port, posts, CONNECTIONS)))
        best.rate = max(best.rate, done.rate)
        best.cpu = min(best.cpu, (cpu_seconds(service.worker) - used) / done.answered)
    print(
        f"/feedback, single clicks, n = {n}, fsync {fsync}, best of {rounds}: "
        f"{best.rate:,.0f} /s, {1e6 * best.cpu:.0f} µs of CPU each\n"
    )
    ask(service.port, "DELETE", "/models/clicks")
    return [at_least(f"/feedback, fsync {fsync}", least, "posts/s", best.rate)]


def memory(directory: Path) -> Goal:
    """The growth of a worker's memory over 100,000 requests of all kinds.

    A separate service gets only small requests: after large ones the heap has free space, which
    would hide a leak. The first requests fill caches and are not counted.
    """
    name, count, first = "memory over 100,000 requests", 100_000, 10_000
    with solar(directory) as service:
        if not service.worker:
            return not_measured(name, "<= 5 MB")
        create(service.port, "small", 10)
        made = rank_requests("small", 5, 10, 3)
        mixed = itertools.cycle([one for kind in made.values() for one in kind])

        def after(requests: int) -> float:
            some = itertools.islice(mixed, requests)
            good(load.run(load.flood(service.port, some, CONNECTIONS)))
            return resident(service.worker)

        before, now = after(first), after(count)
    print(f"Memory of the worker: {before:.1f} MB, after {count:,} requests {now:.1f} MB\n")
    return at_most(name, 5, "MB", now - before)
