"""Batch RankSVM: evaluation cost, growth with the data, and other libraries.

The first table divides the times by that of two products with X, the minimum for a linear method.
In the last tables every solver runs until its objective is within a millionth of the best known
value. The list of pairs that scikit-learn needs is built before the clock starts.
`SOLAR_DEV_MQ2008=FOLDER` selects fold 1 of LETOR's MQ2008 (S1.txt.xz …); the default is synthetic
data.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.evaluation import letor
from app.evaluation.synthetic import SyntheticData
from app.ranking.arrays import Floats
from app.ranking.batch import bundle, newton
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.path import follow_path
from app.ranking.batch.ranksvm import hinge, squared_hinge
from app.ranking.batch.trainers import trainer
from app.ranking.batch.warmstart import covariance_after
from app.ranking.pairs import from_labels
from benchmarks import dlib
from benchmarks.contenders import two_classes
from benchmarks.peers import missing
from benchmarks.report import Goal, at_most, table
from benchmarks.timing import Run, again, cpu_seconds, side_by_side

MOST_TIMES_GRADIENT, MOST_TIMES_HESSIAN = 2.2, 1.5
DOCUMENTS, FEATURES, QUERIES, LABELS = 100_000, 136, 1_000, 5
#: The relative distance to the minimum at which all solvers stop.
CLOSE = 1e-6


class Reached(NamedTuple):
    """The tolerance and the CPU time with which a solver reached the common objective."""

    name: str
    tolerance: float
    seconds: float
    excess: float


def run() -> list[Goal]:
    """Print the tables, return the goals."""
    goals = against_products()
    growth()
    whole_trainings()
    return goals


def judged(documents: int, features: int, queries: int, labels: int | None) -> Judgements:
    """Queries of equal length with labels from a noisy linear utility; None: all different."""
    rng = np.random.default_rng(documents + features)
    X = rng.standard_normal((documents, features))
    worth = X @ rng.standard_normal(features) / np.sqrt(features) + rng.standard_normal(documents)
    if labels is not None:
        worth = np.digitize(worth, np.quantile(worth, np.arange(1, labels) / labels)).astype(float)
    return Judgements(X, worth, np.linspace(0, documents, queries + 1).astype(np.int64))


def partly_trained(data: Judgements) -> Floats:
    """Random weights with about half of the pairs inside their margin."""
    w: Floats = np.random.default_rng(1).standard_normal(data.n) / np.sqrt(data.n)
    return w


def against_products() -> list[Goal]:
    """One evaluation and one Hessian product against Xw and Xᵀc."""
    data = judged(DOCUMENTS, FEATURES, QUERIES, LABELS)
    X, w, c = data.X, partly_trained(data), np.ones(DOCUMENTS)
    objective = squared_hinge(data, C=1.0)
    point = objective.at(w)
    seconds = side_by_side(
        {
            "two products Xw, Xᵀc": again(lambda: (X @ w, X.T @ c)),
            "value and gradient": again(lambda: objective.at(w).gradient),
            "Hessian product": again(lambda: point.hessian_product(w)),
        },
        lasting=10.0,
    )
    products, gradient, hessian = seconds.values()
    rows = [[name, f"{s * 1e3:.1f} ms", f"{s / products:.2f}"] for name, s in seconds.items()]
    size = f"l = {DOCUMENTS:,}, n = {FEATURES}, k = {LABELS}, {QUERIES:,} queries"
    print(table(f"RankSVM, {size}", ["", "CPU time", "/ products"], rows), end="\n\n")
    unit = "× two products"
    return [
        at_most("RankSVM, value and gradient", MOST_TIMES_GRADIENT, unit, gradient / products),
        at_most("RankSVM, Hessian product", MOST_TIMES_HESSIAN, unit, hessian / products),
    ]


def growth() -> None:
    """From 10⁴ to 10⁶ documents, with 3, 5 and as many labels as documents; 4 features."""
    rows = []
    for queries, labels in ((1_000, 3), (1_000, 5), (1_000, None), (1, 5), (1, None)):
        for documents in (10**4, 10**5, 10**6):
            data = judged(documents, 4, queries, labels)
            w, objective = partly_trained(data), squared_hinge(data, C=1.0)
            point = objective.at(w)
            seconds = side_by_side(
                {
                    "gradient": again(partial(_gradient, objective.at, w)),
                    "hessian": again(partial(point.hessian_product, w)),
                },
                lasting=1.0,
            )
            each = (f"{s / documents * 1e9:.0f} ns" for s in seconds.values())
            k = labels or documents // queries
            pairs = f"{objective.tree.pairs:.1e}"
            rows.append([f"{documents:,}", f"{queries:,}", f"{k:,}", pairs, *each])
    head = ["documents", "queries", "k", "pairs", "value and gradient", "Hessian product"]
    print(table("Growth, time per document (n = 4)", head, rows), end="\n\n")


def _gradient(at: Callable[[Floats], newton.NewtonPoint], w: Floats) -> Floats:
    return at(w).gradient


def whole_trainings() -> None:
    """Training to the same objective: the squared hinge, then the hinge with two labels."""
    data, name = training_data()
    for C in (0.01, 1.0):
        squared_hinge_race(data, name, C)
    two = Judgements(data.X, (data.labels > 0.0).astype(np.float64), data.starts)
    for C in (0.01, 1.0):
        hinge_race(two.with_pairs(), name, C)
    path_and_warm_start(data, name)


def training_data() -> tuple[Judgements, str]:
    """MQ2008 if its folder is set, else synthetic data of the same size."""
    folder = os.environ.get("SOLAR_DEV_MQ2008")
    if folder:
        read = letor.read_letor([Path(folder) / f"S{part}.txt.xz" for part in (1, 2, 3)])
        return Judgements.of(read.queries).with_pairs(), "MQ2008, fold 1"
    _, queries = SyntheticData(46, 400, 20, noise=1.0).draw(np.random.default_rng(8))
    return Judgements.of(queries).with_pairs(), "synthetic data"


def squared_hinge_race(data: Judgements, name: str, C: float) -> None:
    """SOLAR's Newton solver against scikit-learn's LinearSVC on all pairs."""
    objective = squared_hinge(data, C)
    best = newton.minimise(objective, tolerance=1e-10).value

    def solar(tolerance: float) -> Floats:
        return newton.minimise(squared_hinge(data, C), tolerance=tolerance).w

    entries = [reach("SOLAR, newton", solar, lambda w: objective.at(w).value, best)]
    if missing("sklearn.svm:LinearSVC"):
        print("scikit-learn is not installed: LinearSVC is skipped")
    else:
        rows, classes = two_classes(explicit(data))
        for dual in (False, True):
            sklearn = partial(linear_svc, rows, classes, C, dual)
            label = f"LinearSVC, {len(rows):,} pairs, {'dual' if dual else 'primal'}"
            entries.append(reach(label, sklearn, lambda w: objective.at(w).value, best))
    report(f"Squared hinge, {name}, C = {C:g}, to {CLOSE:g} of the minimum", entries)


def explicit(data: Judgements) -> Floats:
    """All gaps, one per row."""
    found = []
    for q in data.queries:
        pairs = from_labels(data.labels[q])
        found.append(data.X[q][pairs.preferred] - data.X[q][pairs.other])
    return np.concatenate(found)


def linear_svc(rows: Floats, classes: Floats, C: float, dual: bool, tolerance: float) -> Floats:
    """The weights that scikit-learn finds."""
    svm = import_module("sklearn.svm")
    model = svm.LinearSVC(
        C=C, loss="squared_hinge", dual=dual, fit_intercept=False, tol=tolerance, max_iter=20_000
    )
    weights: Floats = model.fit(rows, classes).coef_[0]
    return weights


def hinge_race(data: Judgements, name: str, C: float) -> None:
    """SOLAR's bundle solver against dlib's svm_rank_trainer, which supports two labels."""
    loss = hinge(data, C)

    def value(w: Floats) -> float:
        return bundle.objective(loss.at(w))

    def solar(tolerance: float) -> Floats:
        return bundle.minimise(hinge(data, C), tolerance=tolerance).w

    best = bundle.minimise(loss, tolerance=1e-9).value
    entries = [reach("SOLAR, bundle", solar, value, best)]
    with dlib.trainer(data, loss.tree.pairs * C) as compiled:
        if compiled is None:
            print("no dlib or no compiler (Debian: libdlib-dev, g++): svm_rank_trainer is skipped")
        else:
            entries.append(reach("dlib, svm_rank_trainer", compiled, value, best, compiled.seconds))
    report(f"Hinge, {name}, two labels, C = {C:g}, to {CLOSE:g} of the minimum", entries)


def reach(
    name: str,
    train: Callable[[float], Floats],
    value: Callable[[Floats], float],
    best: float,
    clock: Callable[[Run], float] = cpu_seconds,
) -> Reached:
    """The largest power of ten as tolerance that is close enough; the best of three runs."""
    train(0.1)  # compiles
    for tolerance in (10.0**-e for e in range(1, 13)):
        excess = value(train(tolerance)) / best - 1.0
        if excess <= CLOSE:
            times = [clock(partial(train, tolerance)) for _ in range(3)]
            return Reached(name, tolerance, min(times), excess)
    return Reached(name, 0.0, float("nan"), excess)


def report(title: str, entries: Iterable[Reached]) -> None:
    """Print the table of times."""
    first, *_ = entries = list(entries)
    rows = [
        [one.name, f"{one.tolerance:g}", f"{one.excess:.0e}", f"{one.seconds * 1e3:.1f} ms",
         f"{one.seconds / first.seconds:.1f}"]
        for one in entries
    ]  # fmt: skip
    print(table(title, ["", "tolerance", "excess", "CPU time", "/ SOLAR"], rows), end="\n\n")


def path_and_warm_start(data: Judgements, name: str) -> None:
    """The whole path over C, and Σ for a warm start."""
    middle = data.starts[len(data.starts) // 2]
    cut = len(data.starts) // 2 + 1
    train = Judgements(data.X[:middle], data.labels[:middle], data.starts[:cut])
    held_out = Judgements(data.X[middle:], data.labels[middle:], data.starts[cut - 1 :] - middle)
    path = follow_path(trainer("l2", train), held_out)
    seconds = side_by_side(
        {
            f"path over {len(path.tried)} C": again(
                lambda: follow_path(trainer("l2", train), held_out)
            ),
            "Σ for a warm start": again(lambda: covariance_after(data, path.best.minimum.w, 1e4)),
        },
        lasting=1.0,
    )
    rows = [[step, f"{s * 1e3:.1f} ms"] for step, s in seconds.items()]
    print(table(f"Path and warm start, {name}", ["", "CPU time"], rows), end="\n\n")
