"""Training on a Dask cluster: memory of the workers, equality with one process, faults, scaling.

`SOLAR_DEV_CLUSTER_GB=0.2` makes the data smaller. The files are in a temporary directory.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from app.ranking.arrays import Floats
from app.ranking.batch.judgements import Judgements
from app.training import trainer
from app.training.cluster import ClusterEngine
from app.training.options import Training
from app.training.shards import training as sharded
from app.training.shards.engines import Engine, EngineSums
from app.training.shards.files import located
from app.training.shards.training import CheckedShards, ShardedModel
from app.training.targets.file import new_config
from benchmarks import report

GIGABYTES = float(os.environ.get("SOLAR_DEV_CLUSTER_GB", "2"))
FEATURES, DOCUMENTS, SHARDS, WORKERS = 136, 100, 16, 2
C = 1e-4
MEMORY_LIMIT = 400_000_000
MOST_SECONDS = 1200.0
_PORT = re.compile(r"tcp://\S+:(\d+)")


# ---- data ----


def shard_rows(at: int, rows: int) -> tuple[Any, Floats, list[str]]:
    """Rows, labels and query ids of one shard, by its number."""
    drawn = np.random.default_rng(at)
    X = drawn.random((rows, FEATURES), np.float32)
    true = np.random.default_rng(1000).normal(size=FEATURES)
    scores = X @ true
    noisy = (scores - scores.mean()) / scores.std() + drawn.normal(size=rows)
    labels = np.digitize(noisy, [0.5, 1.0, 1.5, 2.0]).astype(np.float64)
    return X, labels, [f"{at}-{row // DOCUMENTS}" for row in range(rows)]


def write_shards(folder: Path, gigabytes: float) -> list[str]:
    """Write shards with this size of their rows in float64."""
    import pyarrow as pa  # noqa: PLC0415  # an extra
    from pyarrow import parquet  # noqa: PLC0415

    rows = int(gigabytes * 1e9 / (8 * FEATURES) / SHARDS) // DOCUMENTS * DOCUMENTS
    for at in range(SHARDS):
        X, labels, queries = shard_rows(at, rows)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), FEATURES)
        table = pa.table({"qid": queries, "label": labels, "features": lists})
        parquet.write_table(table, folder / f"part-{at:03}.parquet", row_group_size=20_000)
    return [str(one) for one in sorted(folder.glob("*.parquet"))]


def in_memory(count: int, gigabytes: float) -> Judgements:
    """The same rows in one matrix."""
    rows = int(gigabytes * 1e9 / (8 * FEATURES) / SHARDS) // DOCUMENTS * DOCUMENTS
    X, labels = np.empty((count * rows, FEATURES)), np.empty(count * rows)
    for at in range(count):
        some = slice(at * rows, (at + 1) * rows)
        X[some], labels[some], _ = shard_rows(at, rows)
    return Judgements(X, labels, np.arange(0, len(labels) + 1, DOCUMENTS))


# ---- a cluster of processes ----


@dataclass
class Processes:
    """A scheduler and its workers."""

    port: int
    scheduler: "subprocess.Popen[bytes]"
    workers: "list[subprocess.Popen[bytes]]"

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return f"tcp://127.0.0.1:{self.port}"

    def start_worker(self, limit: int = MEMORY_LIMIT) -> None:
        """Start one more worker; a nanny restarts it if it dies."""
        options = ["--nthreads", "1", "--memory-limit", str(limit), "--no-dashboard"]
        self.workers.append(_started("worker", self.address, *options))

    def restart_scheduler(self) -> None:
        """Kill the scheduler, and start another one and new workers at the same port."""
        self.scheduler.kill()
        self.scheduler.wait()
        count = len(self.workers)
        self.stop_workers()
        self.scheduler = _scheduler(self.port)
        for _ in range(count):
            self.start_worker()

    def worker_pids(self) -> list[int]:
        """Process ids of the workers themselves, the children of the nannies."""
        found = []
        for nanny in self.workers:
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(nanny.pid).children()
                found += [one.pid for one in children if "spawn_main" in " ".join(one.cmdline())]
        return found

    def stop_workers(self) -> None:
        """End all workers."""
        for pid in self.worker_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for nanny in self.workers:
            nanny.kill()
            nanny.wait()
        self.workers.clear()


def _started(role: str, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", f"distributed.cli.dask_{role}", *arguments]
    environ = {**os.environ, "DASK_LOGGING__DISTRIBUTED": "error"}
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _scheduler(port: int) -> "subprocess.Popen[bytes]":
    return _started("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")


@contextmanager
def cluster(workers: int) -> Iterator[Processes]:
    """Run a cluster of processes on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = Processes(port, _scheduler(port), [])
    try:
        for _ in range(workers):
            found.start_worker()
        yield found
    finally:
        found.stop_workers()
        found.scheduler.kill()
        found.scheduler.wait()


class MemoryWatch(threading.Thread):
    """The highest resident memory of the workers, and how many processes there were."""

    def __init__(self, processes: Processes) -> None:
        super().__init__(daemon=True)
        self._processes, self._stopped = processes, threading.Event()
        self.highest: dict[int, int] = {}

    def run(self) -> None:
        """Look every tenth of a second."""
        while not self._stopped.wait(0.1):
            for pid in self._processes.worker_pids():
                with suppress(psutil.NoSuchProcess):
                    used = psutil.Process(pid).memory_info().rss
                    self.highest[pid] = max(used, self.highest.get(pid, 0))

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self.join()


# ---- trainings ----


def checked(engine: Engine, urls: Sequence[str]) -> CheckedShards:
    """Check the shards of a new model."""
    shards = sharded.find_shards(engine, located(urls))
    columns = sharded.read_columns(engine, shards)
    return sharded.check_shards(engine, shards, columns, new_config(columns.n, None), 1e4)


def train(
    address: str, urls: Sequence[str], after: int = -1, fault: Callable[[], object] = bool
) -> tuple[ShardedModel, float, float]:
    """Train; call `fault` after an iteration. Return the model, and seconds to check and train."""
    engine, began = ClusterEngine(address, patience=120.0), time.perf_counter()

    def progressed(it: trainer.Progressed) -> None:
        if it.iteration == after:
            threading.Thread(target=fault).start()

    try:
        found = checked(engine, urls)
        read = time.perf_counter()
        model = sharded.train_shards(engine, found, Training(C=C), progressed)
        return model, read - began, time.perf_counter() - read
    finally:
        engine.disconnect()


def run() -> list[report.Goal]:
    """Run all parts."""
    with tempfile.TemporaryDirectory(prefix="solar-shards-") as folder:
        urls = write_shards(Path(folder), GIGABYTES)
        goals = beyond_memory(urls)
        goals += faults(urls[:4])
        scaling(urls[:8])
    return goals


def beyond_memory(urls: Sequence[str]) -> list[report.Goal]:
    """Train on more rows than the workers can hold; compare with one process."""
    with cluster(WORKERS) as processes:
        watch = MemoryWatch(processes)
        watch.start()
        model, reading, seconds = train(processes.address, urls)
        watch.stop()
    began = time.perf_counter()
    one = trainer.train_batch(in_memory(len(urls), GIGABYTES), Training(C=C))
    alone = time.perf_counter() - began
    apart = float(np.abs(model.minimum.w - one.weights).max())
    highest = max(watch.highest.values())
    print(
        f"cluster: {GIGABYTES:g} GB of rows, {model.documents} documents, {len(urls)} shards, "
        f"{WORKERS} workers with {MEMORY_LIMIT / 1e6:.0f} MB each\n"
        f"  check {reading:.0f} s, training {seconds:.0f} s, {model.minimum.iterations} "
        f"iterations, {model.minimum.products} products; one process with all rows in memory: "
        f"{alone:.0f} s\n"
        f"  highest memory of the workers: "
        f"{', '.join(f'{used / 1e6:.0f} MB' for used in watch.highest.values())}"
    )
    return [
        report.at_most("cluster: check and training", MOST_SECONDS, "s", reading + seconds),
        report.at_most("cluster: memory of a worker", MEMORY_LIMIT / 1e6, "MB", highest / 1e6),
        report.at_most("cluster: worker processes", WORKERS, "", len(watch.highest)),
        report.at_most("cluster: w against one process, ·1e9", 1.0, "", apart * 1e9),
    ]


def faults(urls: Sequence[str]) -> list[report.Goal]:
    """Kill and stop a worker, and restart the scheduler: the same bits."""
    with cluster(WORKERS) as processes:
        expected, _, usual = train(processes.address, urls)
    goals = []
    for name, fault in FAULTS.items():
        with cluster(WORKERS) as processes:
            it = processes  # the thread of the fault runs before the next round
            found, _, seconds = train(it.address, urls, 2, lambda it=it, fault=fault: fault(it))  # type: ignore[misc]
        same = bool((found.minimum.w == expected.minimum.w).all())
        print(f"cluster: {name}: {seconds:.1f} s instead of {usual:.1f} s, same bits: {same}")
        goals.append(report.Goal(f"cluster: {name}", "same bits", str(same), same))
    return goals


FAULTS: dict[str, Callable[[Processes], object]] = {
    "worker killed": lambda it: os.kill(it.worker_pids()[0], signal.SIGKILL),
    "worker stopped": lambda it: os.kill(it.worker_pids()[0], signal.SIGSTOP),
    "scheduler restarted": Processes.restart_scheduler,
}


def scaling(urls: Sequence[str]) -> None:
    """Print the time of sums over all parts with one worker and with two, and the ideal."""
    seconds = {}
    for workers in (1, 2):
        with cluster(workers) as processes:
            engine = ClusterEngine(processes.address)
            while len(engine.workers()[0]) < workers:
                time.sleep(0.1)
            sums = EngineSums(engine, checked(engine, urls).parts())
            w = np.zeros(FEATURES)
            sums.loss(w)
            best = min(_timed(lambda s=sums, w=w: s.product(w, w)) for _ in range(5))  # type: ignore[misc]
            seconds[workers] = best
            engine.disconnect()
    ratio = seconds[1] / seconds[2]
    print(
        f"cluster: a Hessian product over {len(urls)} shards: {seconds[1]:.2f} s with one worker, "
        f"{seconds[2]:.2f} s with two: {ratio:.2f} times as fast, ideal 2; load average "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
