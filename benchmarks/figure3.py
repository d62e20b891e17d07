"""The paper's Figure 3: one pass of SOLAR against a batch RankSVM, on growing parts of the data.

All candidates start from rows and labels in memory. SOLAR's time includes the list of pairs; the
gaps for scikit-learn are built before its time starts. The path over C also reads held-out queries.
`SOLAR_DEV_MQ2008=FOLDER` selects fold 1 of LETOR's MQ2008 (S1.txt.xz …); the default is synthetic
data. `SOLAR_DEV_DRAW=FILE` draws the figure; the suffix of the file decides the format.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.evaluation import letor
from app.evaluation.synthetic import SyntheticData
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.path import follow_path
from app.ranking.batch.trainers import trainer
from app.ranking.online import LabelledQuery
from app.ranking.pairs import Pairs, from_labels
from app.ranking.solar import LinearLearner, SolarI, SolarII
from benchmarks.batch import explicit, linear_svc
from benchmarks.contenders import two_classes
from benchmarks.peers import missing
from benchmarks.report import Goal, table
from benchmarks.timing import Prepare, Run, again, side_by_side, warmed

TENTHS = range(1, 11)
C = 0.01
#: Seconds of measurement for each part of the data; every candidate runs at least three times.
LASTING = 6.0


class Part(NamedTuple):
    """A part of the training queries, and the CPU seconds of each candidate on it."""

    queries: int
    pairs: int
    seconds: dict[str, float]


def run() -> list[Goal]:
    """Print the table, and draw the figure if SOLAR_DEV_DRAW is set; there is no goal."""
    train, held_out, name = fold()
    if missing("sklearn.svm:LinearSVC"):
        print("scikit-learn is not installed: LinearSVC is skipped")
    side_by_side(candidates(train[:20], held_out), lasting=0.0)  # compiles
    parts = [measured(train[: len(train) * tenths // 10], held_out) for tenths in TENTHS]
    report(name, parts)
    if file := os.environ.get("SOLAR_DEV_DRAW"):
        draw(Path(file), name, parts)
    return []


def fold() -> tuple[list[LabelledQuery], Judgements, str]:
    """Training queries, held-out queries, and the name of the data."""
    folder = os.environ.get("SOLAR_DEV_MQ2008")
    if folder:
        parts = [Path(folder) / f"S{part}.txt.xz" for part in (1, 2, 3, 4)]
        train, held_out = letor.read_letor(parts[:3]).queries, letor.read_letor(parts[3:]).queries
        return train, Judgements.of(held_out), "MQ2008, fold 1"
    _, queries = SyntheticData(46, 628, 20, noise=1.0).draw(np.random.default_rng(8))
    return queries[:471], Judgements.of(queries[471:]), "synthetic data"


def measured(queries: list[LabelledQuery], held_out: Judgements) -> Part:
    """Measure all candidates on these queries."""
    pairs = sum(len(query.pairs) for query in queries)
    return Part(len(queries), pairs, side_by_side(candidates(queries, held_out), LASTING))


def candidates(queries: list[LabelledQuery], held_out: Judgements) -> Mapping[str, Prepare]:
    """The candidates by name."""
    data = Judgements.of(queries)
    found: dict[str, Prepare] = {
        "SOLAR-I": warmed(partial(one_pass, SolarI, data), times=3),
        "SOLAR-II": warmed(partial(one_pass, SolarII, data)),
        f"RankSVM, C = {C:g}": warmed(again(lambda: trainer("l2", data).fit(C))),
        "RankSVM, path over C": again(lambda: follow_path(trainer("l2", data), held_out)),
    }
    if not missing("sklearn.svm:LinearSVC"):
        rows, classes = two_classes(explicit(data))
        tolerance = 1e-4  # scikit-learn's default
        for dual in (False, True):
            name = f"LinearSVC, {'dual' if dual else 'primal'}, C = {C:g}"
            found[name] = again(partial(linear_svc, rows, classes, C, dual, tolerance))
    return found


def one_pass(learner: Callable[[int], LinearLearner], data: Judgements) -> Run:
    """One pass of a new learner with the paper's C and γ (the defaults) over all pairs."""
    fresh = learner(data.n)

    def learn() -> None:
        found = [from_labels(data.labels[q]) for q in data.queries]
        starts = np.repeat(data.starts[:-1], [len(one) for one in found])
        preferred = np.concatenate([one.preferred for one in found]) + starts
        other = np.concatenate([one.other for one in found]) + starts
        fresh.learn_pairs(data.X, Pairs(preferred, other, np.ones(len(starts))))

    return learn


def report(name: str, parts: list[Part]) -> None:
    """Print a row for each part; each time is followed by its ratio to SOLAR-I's."""
    names = list(parts[0].seconds)
    rows = []
    for part in parts:
        first = part.seconds["SOLAR-I"]
        times = [f"{s * 1e3:.1f} ({s / first:.1f})" for s in part.seconds.values()]
        rows.append([str(part.queries), f"{part.pairs:,}", *times])
    title = f"Figure 3, {name}: CPU time in ms (in brackets: / SOLAR-I)"
    print(table(title, ["queries", "pairs", *names], rows), end="\n\n")


def draw(file: Path, name: str, parts: list[Part]) -> None:
    """Time over queries, on a log scale."""
    if missing("matplotlib:__version__"):
        print("matplotlib is not installed: the figure is skipped")
        return
    matplotlib = import_module("matplotlib")
    matplotlib.use("agg")
    # reproducible ids, and text as text
    matplotlib.rcParams.update({"svg.hashsalt": "figure 3", "svg.fonttype": "none"})
    figure, axes = import_module("matplotlib.pyplot").subplots(figsize=(9.0, 4.5))
    queries = [part.queries for part in parts]
    for candidate in parts[0].seconds:
        times = [part.seconds[candidate] for part in parts]
        axes.plot(queries, times, marker="o", label=candidate)
    axes.set(yscale="log", xlabel="queries", ylabel="CPU time (s)", title=name)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    print(f"figure written: {file}")
