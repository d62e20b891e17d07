"""Training from a user's view: the whole `solar train` command, and `/rank` during a job."""

import http.client
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from app.evaluation.synthetic import SyntheticData
from benchmarks import load
from benchmarks.report import Goal, at_most, table
from benchmarks.service import DOCUMENTS, TOP, N, Running, ask, create, good, rank_requests, solar

#: Requests per second to /rank: a tenth of a worker's limit, so its core is not saturated.
RATE, SECONDS, ROUNDS, CONNECTIONS = 150.0, 4.0, 3, 16
RUNS = 5


def run() -> list[Goal]:
    """Print the figures, return the goals."""
    with tempfile.TemporaryDirectory(prefix="solar-bench-") as folder:
        directory = Path(folder)
        goals = command_line(directory)
        with solar(directory / "data", "--check-seconds", "60") as service:
            goals += during_a_job(service, directory / "large.txt")
    return goals


# ---- from the command line ----


def command_line(directory: Path) -> list[Goal]:
    """The whole command: start, read, train, write; the best of several runs after a first one."""
    (train, validate), name = judged_files(directory)
    chosen = ["--validate", str(validate)]
    kinds = {
        "squared hinge, C = 0.01": ["--C", "0.01"],
        "squared hinge, C chosen": chosen,
        "hinge, C = 0.01": ["--loss", "l1", "--C", "0.01"],
        "domination, penalty chosen": ["--trainer", "domination", *chosen],
    }
    seconds: dict[str, tuple[float, float]] = {}
    for kind, options in kinds.items():
        command = [*map(str, train), "--output", str(directory / "model.json"), *options]
        timed(command)
        runs = [timed(command) for _ in range(RUNS)]
        seconds[kind] = min(one[0] for one in runs), min(one[1] for one in runs)
    rows = [[kind, f"{wall:.2f} s", f"{cpu:.2f} s"] for kind, (wall, cpu) in seconds.items()]
    title = f"`solar train`, {name}, best of {RUNS}"
    print(table(title, ["", "wall clock", "CPU"], rows), end="\n\n")
    wall, _ = seconds["squared hinge, C = 0.01"]
    return [at_most("`solar train`, whole command", 1.0, "s", wall)]


def timed(arguments: list[str]) -> tuple[float, float]:
    """Wall-clock and CPU seconds of one command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "app", "train", *arguments]
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, capture_output=True, env=environ)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def judged_files(directory: Path) -> tuple[tuple[list[Path], Path], str]:
    """MQ2008 (fold 1) if its folder is set, else synthetic data of the same size."""
    folder = os.environ.get("SOLAR_DEV_MQ2008")
    if folder:
        first, second, third, fourth = (Path(folder) / f"S{part}.txt.xz" for part in range(1, 5))
        return ([first, second, third], fourth), "MQ2008, fold 1"
    train, validate = directory / "train.txt", directory / "validate.txt"
    write(train, queries=470, documents=20, seed=1)
    write(validate, queries=157, documents=20, seed=2)
    return ([train], validate), "synthetic data"


def write(path: Path, *, queries: int, documents: int, seed: int) -> None:
    """Write synthetic data as LETOR text."""
    drawn = SyntheticData(N, queries, documents, noise=1.0).draw(np.random.default_rng(seed))[1]
    with path.open("w") as file:
        for at, query in enumerate(drawn):
            rows = np.asarray(query.documents)
            for label, row in zip(query.labels, rows, strict=True):
                features = " ".join(f"{k}:{value:.6f}" for k, value in enumerate(row, start=1))
                file.write(f"{label:g} qid:{seed}-{at} {features}\n")


# ---- during a job ----


def during_a_job(service: Running, path: Path) -> list[Goal]:
    """/rank in turns with and without a training job."""
    create(service.port, "served", N)
    create(service.port, "trained", N)
    write(path, queries=3_000, documents=20, seed=3)
    ranks = rank_requests("served", DOCUMENTS, N, TOP)["objects"]
    window(service, ranks)
    found: dict[str, list[Any]] = {"idle": [], "training": []}
    for _ in range(ROUNDS):
        found["idle"].append(window(service, ranks))
        job = begin(service.port, path.read_bytes())
        found["training"].append(window(service, ranks))
        _, answer = ask(service.port, "GET", f"/jobs/{job}")
        if answer["state"] != "running":
            raise RuntimeError(f"job {job}: expected state running, got {answer}")
        ask(service.port, "DELETE", f"/jobs/{job}")
        until_ended(service.port, job)
    best = {kind: np.min(rounds, axis=0) for kind, rounds in found.items()}
    rows = [[kind, *(f"{value:.2f} ms" for value in best[kind])] for kind in best]
    title = f"/rank at {RATE:.0f} /s during a job, best of {ROUNDS} rounds of {SECONDS:g} s"
    print(table(title, ["", "p50", "p99"], rows), end="\n\n")
    ratio = float(best["training"][1] / best["idle"][1])
    return [at_most("/rank, p99 during a training job", 1.5, "x idle", ratio)]


def window(service: Running, ranks: list[bytes]) -> Any:
    """p50 and p99 in ms."""
    coming = itertools.cycle(ranks)
    done, took = load.run(load.paced(service.port, coming, RATE, SECONDS, CONNECTIONS))
    good(done)
    return 1e3 * np.percentile(took, [50, 99])


def begin(port: int, text: bytes) -> str:
    """Start a long job: a sparse model, over all penalties."""
    connection = http.client.HTTPConnection(load.HOST, port, timeout=120)
    path = "/models/trained/warm-start?trainer=domination"
    connection.request("POST", path, text, {"content-type": "text/plain"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 202:
        raise RuntimeError(f"{path}: expected 202, got {response.status} {answer}")
    return str(answer["id"])


def until_ended(port: int, job: str) -> None:
    """Wait until a job has ended."""
    while ask(port, "GET", f"/jobs/{job}")[1]["state"] == "running":
        time.sleep(0.05)
