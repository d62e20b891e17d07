"""Many models on one service, on each kind of store: idle CPU time, the list, metrics, a click.

`SOLAR_DEV_MODELS` and `SOLAR_DEV_IDLE_SECONDS` change the number of models and the idle time.
"""

import asyncio
import os
import random
import time
from pathlib import Path

import httpx
import numpy as np

from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.storage.store import Store
from benchmarks.report import Goal, at_most, table
from tests.api.services import Running, serving
from tests.api.test_faults import child
from tests.servers import started

MODELS = int(os.environ.get("SOLAR_DEV_MODELS", "5000"))
IDLE_SECONDS = float(os.environ.get("SOLAR_DEV_IDLE_SECONDS", "60"))
KINDS = ("redis", "sentinel", "cluster")
N, CLICKS, AT_ONCE = 46, 40, 20
TICKS = os.sysconf("SC_CLK_TCK")


def run() -> list[Goal]:
    """Print the table, return the goals."""
    rows, goals = [], list[Goal]()
    for kind in KINDS:
        with started(kind) as url:
            asyncio.run(create(url))
            figures = measure(url)
        rows.append([kind, *(f"{value:.3g}" for value in figures.values())])
        goals += [
            at_most(f"{MODELS} models, {kind}: idle worker", 3, "%", figures["worker %"]),
            at_most(f"{MODELS} models, {kind}: idle learner", 3, "%", figures["learner %"]),
            at_most(f"{MODELS} models, {kind}: 100 listed", 0.2, "s", figures["100 listed s"]),
        ]
    title = f"{MODELS} models of {N} features on one service"
    print(table(title, ["store", *figures], rows), end="\n\n")
    return goals


async def create(url: str) -> None:
    """Create the models."""
    store = Store.open(url)
    config = ModelConfig(tuple(f"f{k}" for k in range(1, N + 1)))

    async def some(first: int) -> None:
        for at in range(first, MODELS, AT_ONCE):
            await store.models.create(name(at), initial_state(config, seed=os.urandom(16)))

    await asyncio.gather(*(some(first) for first in range(AT_ONCE)))
    await store.close()


def name(at: int) -> str:
    """Return the name of a model."""
    return f"m{at:05d}"


def measure(url: str) -> dict[str, float]:
    """Return the figures of a service on this store."""
    began = time.perf_counter()
    with serving("--redis-url", url) as running, running.client() as http:
        figures = {"ready s": time.perf_counter() - began}
        settled(http)
        figures |= idle(running)
        for title, path in (
            ("100 listed s", f"/models?limit=100&after={name(MODELS // 2)}"),
            ("1,000 listed s", "/models"),
            ("metrics s", "/metrics"),
        ):
            figures[title] = min(timed(http, path) for _ in range(5))
        figures |= clicks(http)
    return figures


def settled(http: httpx.Client) -> None:
    """Let the learner learn one record, so that its process is warm."""
    served_after(http, name(0), "first")
    time.sleep(6.0)  # it releases the model


def idle(running: Running) -> dict[str, float]:
    """Return the CPU time of worker and learner without requests, in % of a core."""
    found = {
        "worker": child(running.process.pid, "app.runtime.worker"),
        "learner": child(running.process.pid, "app learn"),
    }
    before = {role: cpu_seconds(pid) for role, pid in found.items()}
    began = time.perf_counter()
    time.sleep(IDLE_SECONDS)
    took = time.perf_counter() - began
    return {
        f"{role} %": (cpu_seconds(pid) - before[role]) / took * 100 for role, pid in found.items()
    }


def cpu_seconds(pid: int | None) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def timed(http: httpx.Client, path: str) -> float:
    """Return the seconds of a request."""
    began = time.perf_counter()
    http.get(path).raise_for_status()
    return time.perf_counter() - began


def clicks(http: httpx.Client) -> dict[str, float]:
    """Return the times until feedback on models without a learner is served, in ms."""
    chosen = random.Random(7).sample(range(1, MODELS), min(CLICKS, MODELS - 1))  # noqa: S311
    took = [served_after(http, name(at), f"e{at}") * 1e3 for at in chosen]
    return {"click p50 ms": float(np.median(took)), "click max ms": max(took)}


def served_after(http: httpx.Client, model: str, event: str) -> float:
    """Send a label and return the seconds until the new weights are served."""
    documents = [{"id": str(at), "features": [float(at)] * N} for at in range(2)]
    body = {
        "event_id": event, "type": "labels", "model": model, "labels": {"1": 1},
        "documents": documents,
    }  # fmt: skip
    began = time.perf_counter()
    answer = http.post("/feedback", json=body, headers={"Prefer": "wait=20"})
    if answer.status_code != 200:
        raise RuntimeError(f"{model}: {answer.status_code} {answer.text}")
    return time.perf_counter() - began
