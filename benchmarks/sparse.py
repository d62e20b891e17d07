"""Large sparse data: the preconditioner, a training of 10⁶ documents, and the cost of progress.

The large training runs in a separate process (`python -m benchmarks.sparse`), for its peak memory.
"""

import json
import resource
import subprocess
import sys
import time
from functools import partial
from unittest.mock import PropertyMock, patch

import numpy as np

from app.ranking import measures, serving
from app.ranking.arrays import Floats
from app.ranking.batch import newton, path
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.newton import Minimum
from app.ranking.batch.ranksvm import SquaredHingePoint, squared_hinge
from app.training.options import Training
from app.training.trainer import (
    PROGRESS_SECONDS,
    describe_training,
    progress_sample,
    train_batch,
)
from benchmarks.report import Goal, at_most, table
from benchmarks.timing import again, cpu_seconds, side_by_side

DRAWS, QUERY, RELEVANT, NOISE = 20, 10, 2, 1.5
SMALL, LARGE, FEATURES = 40_000, 1_000_000, 1_000_000
MOST_PRODUCTS, MOST_SECONDS, MOST_GB = 60, 120.0, 1.3


def run() -> list[Goal]:
    """Print the tables, return the goals."""
    return [*preconditioner(), *large_training(), *progress()]


def sparse_data(documents: int, features: int, seed: int = 1) -> Judgements:
    """Rows of 20 draws; a few features are in most rows, most features in almost none."""
    from scipy.sparse import csr_array  # noqa: PLC0415  # takes 0.2 s; other sections need none

    rng = np.random.default_rng(seed)
    columns = (np.floor(30.0 * rng.pareto(0.7, documents * DRAWS)) % features).astype(np.int32)
    values = rng.uniform(0.1, 1.1, documents * DRAWS)
    starts = np.arange(0, documents * DRAWS + 1, DRAWS, dtype=np.int32)
    X = csr_array((values, columns, starts), shape=(documents, features))
    X.sum_duplicates()
    w = rng.standard_normal(features) * (rng.random(features) < 0.3)
    worth = (X @ w + NOISE * rng.standard_normal(documents)).reshape(-1, QUERY)
    labels = np.zeros_like(worth)
    np.put_along_axis(labels, np.argsort(-worth, axis=1)[:, :RELEVANT], 1.0, axis=1)
    return Judgements(X, labels.ravel(), np.arange(0, documents + 1, QUERY))


# ---- the preconditioner ----


def preconditioner() -> list[Goal]:
    """Hessian products and CPU time with and without the preconditioner."""
    data = sparse_data(SMALL, FEATURES)
    objective = squared_hinge(data, C=1.0)
    fit = partial(newton.minimise, objective)
    fit()  # compiles
    found = {"no preconditioner": unpreconditioned(fit), "preconditioner": timed(fit)}
    rows = [
        [name, f"{one.iterations}", f"{one.products}", f"{one.value:.3f}", f"{seconds:.2f} s"]
        for name, (one, seconds) in found.items()
    ]
    head = ["", "steps", "products", "objective", "CPU time"]
    title = f"Sparse rows, {SMALL:,} x {FEATURES:,}, {data.X.nnz:,} values, C = 1"
    print(table(title, head, rows), end="\n\n")
    products = found["preconditioner"][0].products
    return [at_most("sparse rows, Hessian products", MOST_PRODUCTS, "products", products)]


def timed(fit: "partial[Minimum]") -> tuple[Minimum, float]:
    """The minimum and its CPU seconds."""
    found: list[Minimum] = []
    seconds = cpu_seconds(lambda: found.append(fit()))
    return found[0], seconds


def unpreconditioned(fit: "partial[Minimum]") -> tuple[Minimum, float]:
    """The same without the diagonal."""
    with patch.object(SquaredHingePoint, "diagonal", PropertyMock(return_value=None)):
        return timed(fit)


# ---- a large training ----


def large_training() -> list[Goal]:
    """10⁶ documents with 10⁶ features, in a new process."""
    command = [sys.executable, "-m", "benchmarks.sparse", f"{LARGE}", f"{FEATURES}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    print(f"Training, {LARGE:,} x {FEATURES:,}, C = 1: {found}", end="\n\n")
    return [
        at_most("sparse training, CPU time", MOST_SECONDS, "s", found["cpu_seconds"]),
        at_most("sparse training, peak memory of the process", MOST_GB, "GB", found["gigabytes"]),
    ]


def main(documents: int, features: int) -> None:
    """Generate data, train on it, print the costs; the memory includes the generation."""
    data, training = sparse_data(documents, features), Training(C=1.0)
    began, cpu = time.perf_counter(), time.process_time()
    found = describe_training(train_batch(data, training), training, "none")
    costs = {
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "seconds": round(time.perf_counter() - began, 2),
        "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 3),
    }
    print(json.dumps(costs | {key: found[key] for key in ("iterations", "objective", "ndcg@10")}))


# ---- progress ----


def progress() -> list[Goal]:
    """One measurement of progress, as a share of the CPU time between two reports."""
    data = sparse_data(LARGE // 10, 1_000)
    sample, w = progress_sample(data), np.random.default_rng(1).standard_normal(data.n)
    seconds = side_by_side(
        {
            f"all {len(data.starts) - 1:,} queries, one by one": again(
                partial(one_by_one, data, w)
            ),
            f"all {len(data.starts) - 1:,} queries": again(partial(measured, data, w)),
            f"{len(sample.starts) - 1:,} queries": again(partial(measured, sample, w)),
        },
        lasting=2.0,
    )
    shares = {name: s / (s + PROGRESS_SECONDS) for name, s in seconds.items()}
    rows = [[name, f"{s * 1e3:.2f} ms", f"{shares[name]:.1%}"] for name, s in seconds.items()]
    head = ["NDCG@10 of", "CPU time", "share of a training"]
    title = f"Progress every {PROGRESS_SECONDS} s, {len(data.labels):,} documents"
    print(table(title, head, rows), end="\n\n")
    return [at_most("progress, share of a training", 1.0, "%", 100.0 * [*shares.values()][-1])]


def measured(data: Judgements, w: Floats) -> float:
    """NDCG@10 as the trainer measures it."""
    return path.batch_quality(data, w, "ndcg@10")


def one_by_one(data: Judgements, w: Floats) -> float:
    """NDCG@10 as the trainer measured it before."""
    scores = data.X @ w
    found = [
        measures.quality(data.labels[q][serving.order(scores[q])]).ndcg_10 for q in data.queries
    ]
    return float(np.mean(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
