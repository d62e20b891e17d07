"""The service over loopback, one worker, next to the least that FastAPI does: wall clock."""

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
JSON, MSGPACK = "application/json", "application/msgpack"
PATIENCE = 60.0
#: In an answer of /rank whose impression was not written in time.
FORGOTTEN = b'"logged":false'


@dataclass(frozen=True, slots=True)
class Running:
    """A service under test: where it is, and the process that answers."""

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
    """`solar serve` with one worker, as `make run` has it."""
    kept = ["--data-dir", str(directory), *flags]
    with started("app", "serve", "--workers", "1", *kept, "--port") as (process, port):
        yield Running(port, worker_of(process.pid), find(directory) or "")


@contextlib.contextmanager
def hello() -> Iterator[Running]:
    """The yardstick."""
    with started("benchmarks.hello") as (process, port):
        yield Running(port, process.pid)


@contextlib.contextmanager
def started(*command: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A service on a free port, given as its last argument, once it is ready."""
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
        process.wait(PATIENCE)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server((load.HOST, 0)) as found:
        port: int = found.getsockname()[1]
        return port


def until_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Wait for /readyz."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            if ask(port, "GET", "/readyz")[0] == 200:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r}: it does not get ready")
        time.sleep(0.005)


def ask(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One call, not timed: status and answer."""
    connection = http.client.HTTPConnection(load.HOST, port, timeout=PATIENCE)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"content-type": JSON})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def worker_of(supervisor: int) -> int:
    """The process that serves; 0 where there is no /proc."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
            if b"app.runtime.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return 0


def cpu_seconds(process: int) -> float:
    """CPU time that a process has taken so far; NaN where there is no /proc."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """Memory that a process holds, in MB; counted page by page, which `statm` does not."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024 / 1e6


# ---- requests ----


def create(port: int, model: str, n: int, **settings: Any) -> None:
    """A new model with the default settings, but for those given."""
    status, said = ask(port, "PUT", f"/models/{model}", {"features": n, **settings})
    if status != 201:
        raise RuntimeError(f"PUT /models/{model}: {status} {said}")


def rank_requests(
    model: str, documents: int, n: int, top: int, *, log: bool = True
) -> dict[str, list[bytes]]:
    """A few different requests of each kind, with features as LETOR has them: six decimals."""
    made: dict[str, list[bytes]] = {"objects": [], "columns": [], "binary": []}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rows = rng.random((documents, n)).round(6)
        ids = [f"doc-{seed}-{at}" for at in range(documents)]
        asked = {"model": model, "query_id": f"q{seed}", "top_k": top, "log": log}
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
    """Without spaces, as clients in a hurry send it."""
    return json.dumps(body, separators=(",", ":")).encode()


def remembered(port: int, model: str, n: int, count: int) -> list[bytes]:
    """Single clicks, each on a request of its own that was answered and remembered."""
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
    """What was done, if all of it was answered well."""
    if done.failed:
        raise RuntimeError(f"{done.failed} of {done.failed + done.answered} requests failed")
    return done


# ---- what is measured ----


def starting(directory: Path) -> Goal:
    """From nothing to ready, kernels cached."""
    took = float("inf")
    for at in range(3):
        began = time.perf_counter()
        with solar(directory / str(at)):
            took = min(took, time.perf_counter() - began)
    print(f"Start of `solar serve`, the best of 3: {took:.2f} s until /readyz is 200\n")
    return at_most("start of `solar serve`", 3.0, "s", took)


@dataclass(slots=True)
class Best:
    """The best round of a kind of request."""

    rate: float = 0.0
    cpu: float = float("inf")  # seconds of the server a request
    own: float = 0.0  # of a core that the client took
    short: int = 0  # answers of all rounds that were not remembered; they count for nothing


LEAST = {
    ("objects", True): 16, ("columns", True): 18, ("binary", True): 38,
    ("objects", False): 20, ("columns", False): 22, ("binary", False): 48,
}  # fmt: skip


def rates(service: Running) -> tuple[dict[str, float], list[Goal]]:
    """Requests a second of each kind of /rank, and hello's, in turns."""
    create(service.port, "bench", N)
    kinds: dict[str, list[bytes]] = {"hello": [post("/hello", b'{"name":"x"}')]}
    names: dict[tuple[str, bool], str] = {}
    for log in (True, False):
        made = rank_requests("bench", DOCUMENTS, N, TOP, log=log)
        for kind, requests in made.items():
            names[kind, log] = f"{kind}, {'remembered' if log else 'log: false'}"
            kinds[names[kind, log]] = requests
    best = {name: Best() for name in kinds}
    with hello() as plain:
        for at in range(ROUNDS + 1):
            for name, requests in kinds.items():
                target = plain if name == "hello" else service
                short = FORGOTTEN if name.endswith("remembered") else b""
                one_round(target, requests, Best() if at == 0 else best[name], short)
    base, plainly = best["hello"].rate, best["hello"].cpu
    rows = [
        [name, f"{one.rate:,.0f} /s", f"{100 * one.rate / base:.1f} %", f"{1e6 * one.cpu:.0f} µs",
         f"{100 * plainly / one.cpu:.1f} %", f"{100 * one.own:.0f} %", str(one.short)]
        for name, one in best.items()
    ]  # fmt: skip
    title = (
        f"/rank, {DOCUMENTS} documents of {N} features, top_k {TOP}, fsync always, "
        f"{CONNECTIONS} connections, the best of {ROUNDS} rounds (CPU: of the worker)"
    )
    head = ["", "requests", "of hello", "CPU each", "of hello by CPU", "client's core", "dropped"]
    print(table(title, head, rows), "\n")
    goals = [
        at_least(f"/rank, {names[key]}", least, "% of hello", 100 * best[names[key]].rate / base)
        for key, least in LEAST.items()
    ]
    return {kind: best[names[kind, True]].rate for kind in ("objects", "columns", "binary")}, goals


def one_round(target: Running, requests: Sequence[bytes], best: Best, short: bytes) -> None:
    """One round of one kind."""
    used, coming = cpu_seconds(target.worker), load.lasting(requests, SECONDS)
    done = good(load.run(load.flood(target.port, coming, CONNECTIONS, short=short)))
    best.short += done.short
    best.cpu = min(best.cpu, (cpu_seconds(target.worker) - used) / (done.answered + done.short))
    if done.rate > best.rate:
        best.rate, best.own = done.rate, done.own / done.seconds


def latency(service: Running, peak: float) -> Goal:
    """/rank at half of its peak while the learner has more to learn than it can."""
    seconds, windows, clicks = 4.0, 3, 100
    create(service.port, "flooded", N, prior=0)  # whose log takes documents as they are
    ranks = rank_requests("flooded", DOCUMENTS, N, TOP)["objects"]
    posts = iter(remembered(service.port, "flooded", N, int(windows * seconds * clicks)))
    asyncio.run(fill_log(service.url, "flooded", 4000))

    async def window() -> tuple[Load, list[float]]:
        ranked, _ = await asyncio.gather(
            load.paced(
                service.port, itertools.cycle(ranks), peak / 2, seconds, 4 * CONNECTIONS,
                short=FORGOTTEN,
            ),
            load.paced(service.port, posts, clicks, seconds, CONNECTIONS),
        )  # fmt: skip
        return ranked

    found, dropped = [], 0
    for _ in range(windows):
        done, took = load.run(window())
        dropped += good(done).short
        found.append(1e3 * np.percentile(took, [50, 99]))
        behind = lag(service.port, "flooded")
        if ask(service.port, "GET", "/models/flooded")[1]["rejected"]:
            raise RuntimeError("flooded: records that are rejected keep nobody at work")
    p50, p99 = min(found, key=lambda one: float(one[1]))
    ask(service.port, "DELETE", "/models/flooded")
    print(
        f"/rank, objects, at {peak / 2:,.0f} /s with {clicks} clicks/s beside it, the best of "
        f"{windows}: p50 {p50:.1f} ms, p99 {p99:.1f} ms; {dropped} not remembered; in the end the "
        f"learner was {behind} records behind\n"
    )
    return at_most("/rank, p99 at half of its peak", 10, "ms", float(p99))


async def fill_log(url: str, model: str, count: int) -> None:
    """Lists of 200 documents that give 10,000 pairs each, as if they had been posted."""
    store = Store.open(url)
    epoch, *_ = await store.states.position(model)
    rng = np.random.default_rng(0)
    lists = [rng.random((200, N)).astype(np.float32) for _ in range(20)]
    labels = np.repeat([0.0, 1.0], 100)
    for at in range(count):
        name = f"flood-{at}"
        record = Feedback(name, "labels", lists[at % 20], np.arange(200), labels=labels)
        event = NewRecord(name, name.encode(), codec.dump_record(record))
        await store.log.append(model, epoch, [event], limit=count, time=0)
    await store.close()


def lag(port: int, model: str) -> int:
    """Records that wait to be learnt."""
    _, said = ask(port, "GET", f"/models/{model}")
    return int(said["seq"] - said["version"])


def feedback(service: Running, fsync: str, least: float) -> list[Goal]:
    """Single clicks, n = 136, each on a request of its own."""
    rounds, count, n = 3, 2000, 136
    create(service.port, "clicks", n)
    clicks = remembered(service.port, "clicks", n, rounds * count)
    best = Best()
    for at in range(rounds):
        used = cpu_seconds(service.worker)
        posts = clicks[at * count : (at + 1) * count]
        done = good(load.run(load.flood(service.port, posts, CONNECTIONS)))
        best.rate = max(best.rate, done.rate)
        best.cpu = min(best.cpu, (cpu_seconds(service.worker) - used) / done.answered)
    print(
        f"/feedback, single clicks, n = {n}, fsync {fsync}, the best of {rounds}: "
        f"{best.rate:,.0f} /s, {1e6 * best.cpu:.0f} µs of CPU each\n"
    )
    ask(service.port, "DELETE", "/models/clicks")
    return [at_least(f"/feedback, fsync {fsync}", least, "posts/s", best.rate)]


def memory(directory: Path) -> Goal:
    """What a worker holds more after 100,000 requests of all kinds than before them.

    A service of its own, whose requests are all small: one that has seen large ones has free room
    left in its heap, and a leak would fill that unseen. The first requests fill caches.
    """
    name, count, first = "memory over 100,000 requests", 100_000, 10_000
    with solar(directory) as service:
        if not service.worker:
            return not_measured(name, "<= 5 MB")
        create(service.port, "small", 10)
        made = rank_requests("small", 5, 10, 3)
        mixed = itertools.cycle([one for kind in made.values() for one in kind])

        def after(many: int) -> float:
            good(load.run(load.flood(service.port, itertools.islice(mixed, many), CONNECTIONS)))
            return resident(service.worker)

        before, now = after(first), after(count)
    print(f"Memory of the worker: {before:.1f} MB, {count:,} requests later {now:.1f} MB\n")
    return at_most(name, 5, "MB", now - before)
