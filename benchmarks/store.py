"""The log and the learner on an embedded server: wall-clock time, which includes the disk."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from app.domain import codec
from app.domain.model import initial_state
from app.domain.model_config import Algorithm, ModelConfig
from app.domain.records import Feedback
from app.errors import Unavailable
from app.learning.learner import Learner
from app.ranking.pairs import from_labels
from app.ranking.solar import SolarII
from app.storage.connection import connect
from app.storage.embedded.server import EmbeddedServer, find
from app.storage.store import Store
from benchmarks.freshness import LIMIT, delays, events, learner, settle
from benchmarks.report import Goal, at_least, at_most, rate, table

POST = 100
LUA = (Path(__file__).parent / "learn.lua").read_text()


def run() -> list[Goal]:
    """Print the tables, return the goals."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        with EmbeddedServer.start(directory) as server:
            goals = asyncio.run(on_server(server.url))
        return [*goals, cold_start(directory)]


async def on_server(url: str) -> list[Goal]:
    """Run all measurements that need a running server."""
    store = Store.open(url)
    try:
        return [
            *await append(store, url),
            *await first_order(store, url),
            *await second_order(store),
            *await visible(store, url),
        ]
    finally:
        await store.close()


async def fresh(store: Store, name: str, n: int, algorithm: Algorithm = "solar-i") -> int:
    """Create a model; return its epoch."""
    await store.models.delete(name)
    features = tuple(f"f{k}" for k in range(n))
    return await store.models.create(
        name, initial_state(ModelConfig(features, algorithm=algorithm))
    )


def records(count: int, n: int) -> list[bytes]:
    """Judged queries of 20 documents, which give 100 pairs each."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0.0, 1.0], 10)
    return [
        codec.dump_record(
            Feedback(
                f"e{at}", "labels", rng.random((20, n)).astype(np.float32), np.arange(20),
                labels=rng.permutation(labels),
            )
        )
        for at in range(count)
    ]  # fmt: skip


async def append(store: Store, url: str) -> list[Goal]:
    """100 events of 1 kB in one post, against a pipeline of 100 XADD."""
    client: Any = connect(url)
    record = np.random.default_rng(0).bytes(1000)
    epoch = await fresh(store, "append", 1)
    rounds = 60
    posts = iter([events(f"p{at}", [record] * POST) for at in range(rounds)])

    async def solar() -> None:
        await store.log.append("append", epoch, next(posts), limit=LIMIT, time=0)

    async def pipeline() -> None:
        pipe = client.pipeline(transaction=False)
        for _ in range(POST):
            pipe.xadd("raw", {"r": record, "t": 0})
        await pipe.execute()

    took = await best({"SOLAR": solar, "XADD pipeline": pipeline}, rounds)
    ratio = took["XADD pipeline"] / took["SOLAR"]
    rows = [[name, rate(POST, seconds)] for name, seconds in took.items()]
    tool = redis_benchmark(url)
    if tool:
        rows.append(["redis-benchmark, pipeline of 100", tool])
    print(table("Append, 100 events of 1 kB a post, fsync always", ["", "events"], rows), "\n")
    await client.delete("raw")
    await client.aclose()
    return [at_least("append", 1.0, "x XADD", ratio)]


async def best(
    candidates: dict[str, Callable[[], Awaitable[None]]], rounds: int
) -> dict[str, float]:
    """The wall-clock seconds of each candidate's fastest round, in turns."""
    least = dict.fromkeys(candidates, float("inf"))
    for _ in range(rounds):
        for name, candidate in candidates.items():
            began = time.perf_counter()
            await candidate()
            least[name] = min(least[name], time.perf_counter() - began)
    return least


def redis_benchmark(url: str) -> str | None:
    """The rate of redis-benchmark for the same XADD, if it is installed."""
    tool = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
    if not tool:
        return None
    payload = "x" * 1000
    command = [
        tool, "-s", url.removeprefix("unix://"), "-P", "100", "-n", "50000", "-c", "1", "-q",
        "XADD", "tool", "*", "r", payload,
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    line = ran.stdout.replace("\r", "\n").strip().splitlines()[-1]
    return line.split(":")[-1].split("requests")[0].strip() + " /s"


async def learnt(store: Store, name: str, log: list[bytes], epoch: int) -> float:
    """Seconds per record from a full log to the last commit."""
    for at in range(0, len(log), POST):
        post = events(f"{name}-{at}", log[at : at + POST])
        await store.log.append(name, epoch, post, limit=LIMIT, time=0)
    stop = asyncio.Event()
    began = time.perf_counter()
    task = asyncio.create_task(Learner(store, name).run(stop))
    async for _ in store.hints.changed():
        if (await store.states.position(name))[1] == len(log):
            break
    took = time.perf_counter() - began
    stop.set()
    await task
    return took / len(log)


async def first_order(store: Store, url: str) -> list[Goal]:
    """SOLAR-I, n = 46, 100 pairs a record, against a Lua script inside Redis."""
    log, n = records(4000, 46), 46
    await learnt(store, "warm", log[:300], await fresh(store, "warm", n))
    solar = min([await learnt(store, "first", log, await fresh(store, "first", n)) for _ in "123"])
    client: Any = connect(url)
    script = client.register_script(LUA)
    await client.set("w", bytes(8 * n))
    loaded = [codec.load_record(record) for record in log[:50]]
    inside = float("inf")
    for one in loaded:
        assert isinstance(one, Feedback)  # noqa: S101
        assert one.labels is not None  # noqa: S101
        pairs = from_labels(one.labels)
        packed = np.stack([pairs.preferred, pairs.other], axis=1).astype("<u2").tobytes()
        began = time.perf_counter()
        await script(["w"], [n, 1e-5, one.documents.astype("<f8").tobytes(), packed])
        inside = min(inside, time.perf_counter() - began)
    await client.delete("w")
    await client.aclose()
    rows = [["learner", rate(100, solar)], ["Lua inside Redis", rate(100, inside)]]
    print(table("SOLAR-I, n = 46, 100 pairs a record", ["", "pairs"], rows), "\n")
    return [at_least("learner, SOLAR-I, n = 46", 8.0, "x Lua", inside / solar)]


async def second_order(store: Store) -> list[Goal]:
    """SOLAR-II, n = 136: the whole learner against the kernel alone."""
    log, n = records(1500, 136), 136
    loaded = [codec.load_record(record) for record in log]
    batches = [
        (one.documents, from_labels(one.labels))
        for one in loaded
        if isinstance(one, Feedback) and one.labels is not None
    ]
    kernel = whole = float("inf")
    for _ in range(3):
        learner = SolarII(n)
        learner.learn_pairs(*batches[0])
        began = time.perf_counter()
        for documents, pairs in batches:
            learner.learn_pairs(documents, pairs)
        kernel = min(kernel, (time.perf_counter() - began) / len(batches))
        epoch = await fresh(store, "second", n, "solar-ii")
        whole = min(whole, await learnt(store, "second", log, epoch))
    rows = [["learner", rate(100, whole)], ["kernel alone", rate(100, kernel)]]
    print(table("SOLAR-II, n = 136, 100 pairs a record", ["", "pairs"], rows), "\n")
    return [at_least("learner, SOLAR-II, n = 136", 0.6, "x kernel", kernel / whole)]


async def visible(store: Store, url: str) -> list[Goal]:
    """The time from an append to the new weights in another process: 200 records/s, n = 136."""
    per_second, seconds, n = 200, 10, 136
    log = records(per_second * seconds, n)
    epoch = await fresh(store, "visible", n, "solar-ii")
    for name in await store.models.names():
        if name != "visible":
            await store.models.delete(name)
    with learner(url):
        await settle(store, "visible", epoch, log[0])
        before, began = await aof_size(url), time.perf_counter()
        found = await delays(store, "visible", epoch, log[1:], per_second)
        written = (await aof_size(url) - before) / (time.perf_counter() - began) / 1e6
    p50, p99 = np.percentile(found, [50, 99])
    print(f"New weights visible in another process: p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    print(f"AOF writes of log and state: {written:.1f} MB/s\n")
    return [
        at_most("new weights visible, p50", 50, "ms", p50),
        at_most("new weights visible, p99", 150, "ms", p99),
        at_most("AOF writes of log and state", 5, "MB/s", written),
    ]


async def aof_size(url: str) -> int:
    """The size of the append-only file in bytes; also disables its rewrite."""
    client: Any = connect(url)
    await client.config_set("auto-aof-rewrite-percentage", 0)
    size = int((await client.info("persistence"))["aof_current_size"])
    await client.aclose()
    return size


def cold_start(directory: Path) -> Goal:
    """`solar learn` on an existing log: from start to the first commit, kernels cached."""
    with EmbeddedServer.start(directory) as server:
        asyncio.run(append_unlearnt(server.url))
    began = time.perf_counter()
    command = [sys.executable, "-m", "app", "learn", "--data-dir", str(directory)]
    process = subprocess.Popen(command)
    try:
        asyncio.run(until_learnt(directory))
        took = time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()
    print(f"Start of `solar learn` with an existing log: {took:.2f} s to the first commit\n")
    return at_most("start of `solar learn`", 3.0, "s", took)


async def append_unlearnt(url: str) -> None:
    """Append 2,000 records without a learner."""
    store = Store.open(url)
    epoch = await fresh(store, "cold", 136, "solar-ii")
    log = records(2000, 136)
    for at in range(0, len(log), POST):
        post = events(f"c{at}", log[at : at + POST])
        await store.log.append("cold", epoch, post, limit=LIMIT, time=0)
    await store.close()


async def until_learnt(directory: Path) -> None:
    """Wait for the first commit of the process that holds this directory."""
    while (url := find(directory)) is None:
        await asyncio.sleep(0.01)
    store, seq = Store.open(url), 0
    while seq == 0:
        await asyncio.sleep(0.01)
        with suppress(Unavailable):  # the server may still be loading
            seq = (await store.states.position("cold"))[1]
    await store.close()
