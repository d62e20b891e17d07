"""The paper's Figure 3: one pass of SOLAR next to a batch RankSVM, on growing parts of the data.

Everybody starts from rows and labels in memory. SOLAR's pairs are listed within its time, those
that scikit-learn wants as explicit gaps before it. The path over C looks at held-out queries too.
`SOLAR_DEV_MQ2008=FOLDER` takes fold 1 of LETOR's MQ2008 (S1.txt.xz …); without, the world is
invented. `SOLAR_DEV_DRAW=FILE` draws the figure, in the format that the file's name says.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.evaluation import letor
from app.evaluation.synthetic import World
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
#: How many seconds each part of the data goes on for; every candidate runs at least three times.
LASTING = 6.0


class Part(NamedTuple):
    """So many tenths of the training queries, and the CPU seconds of everybody on them."""

    queries: int
    pairs: int
    seconds: dict[str, float]


def run() -> list[Goal]:
    """Print the table, draw the figure if somebody asked for it; there is no goal."""
    train, held_out, name = fold()
    if missing("sklearn.svm:LinearSVC"):
        print("no scikit-learn: LinearSVC is left out")
    side_by_side(candidates(train[:20], held_out), lasting=0.0)  # compiles
    parts = [measured(train[: len(train) * tenths // 10], held_out) for tenths in TENTHS]
    report(name, parts)
    if file := os.environ.get("SOLAR_DEV_DRAW"):
        draw(Path(file), name, parts)
    return []


def fold() -> tuple[list[LabelledQuery], Judgements, str]:
    """Training and held-out queries, and where they are from."""
    folder = os.environ.get("SOLAR_DEV_MQ2008")
    if folder:
        parts = [Path(folder) / f"S{part}.txt.xz" for part in (1, 2, 3, 4)]
        train, held_out = letor.read_letor(parts[:3]).queries, letor.read_letor(parts[3:]).queries
        return train, Judgements.of(held_out), "MQ2008, fold 1"
    _, queries = World(46, 628, 20, noise=1.0).draw(np.random.default_rng(8))
    return queries[:471], Judgements.of(queries[471:]), "an invented world"


def measured(queries: list[LabelledQuery], held_out: Judgements) -> Part:
    """Everybody on these queries."""
    pairs = sum(len(query.pairs) for query in queries)
    return Part(len(queries), pairs, side_by_side(candidates(queries, held_out), LASTING))


def candidates(queries: list[LabelledQuery], held_out: Judgements) -> Mapping[str, Prepare]:
    """Who takes part."""
    world = Judgements.of(queries)
    found: dict[str, Prepare] = {
        "SOLAR-I": warmed(partial(one_pass, SolarI, world), times=3),
        "SOLAR-II": warmed(partial(one_pass, SolarII, world)),
        f"RankSVM, C = {C:g}": warmed(again(lambda: trainer("l2", world).fit(C))),
        "RankSVM, path over C": again(lambda: follow_path(trainer("l2", world), held_out)),
    }
    if not missing("sklearn.svm:LinearSVC"):
        rows, classes = two_classes(explicit(world))
        tolerance = 1e-4  # scikit-learn's default
        for dual in (False, True):
            name = f"LinearSVC, {'dual' if dual else 'primal'}, C = {C:g}"
            found[name] = again(partial(linear_svc, rows, classes, C, dual, tolerance))
    return found


def one_pass(learner: Callable[[int], LinearLearner], world: Judgements) -> Run:
    """A fresh learner with the paper's C and γ (the defaults), and all pairs once, in order."""
    fresh = learner(world.n)

    def learn() -> None:
        found = [from_labels(world.labels[q]) for q in world.queries]
        starts = np.repeat(world.starts[:-1], [len(one) for one in found])
        preferred = np.concatenate([one.preferred for one in found]) + starts
        other = np.concatenate([one.other for one in found]) + starts
        fresh.learn_pairs(world.X, Pairs(preferred, other, np.ones(len(starts))))

    return learn


def report(name: str, parts: list[Part]) -> None:
    """A row for each part; behind each time, how many times that of SOLAR-I it is."""
    names = list(parts[0].seconds)
    rows = []
    for part in parts:
        first = part.seconds["SOLAR-I"]
        times = [f"{s * 1e3:.1f} ({s / first:.1f})" for s in part.seconds.values()]
        rows.append([str(part.queries), f"{part.pairs:,}", *times])
    title = f"Figure 3, {name}: CPU time in ms (in brackets: times SOLAR-I)"
    print(table(title, ["queries", "pairs", *names], rows), end="\n\n")


def draw(file: Path, name: str, parts: list[Part]) -> None:
    """Time over queries, on a log scale."""
    if missing("matplotlib:__version__"):
        print("no matplotlib: nothing is drawn")
        return
    matplotlib = import_module("matplotlib")
    matplotlib.use("agg")
    # the same ids in every run, and letters as letters
    matplotlib.rcParams.update({"svg.hashsalt": "figure 3", "svg.fonttype": "none"})
    figure, axes = import_module("matplotlib.pyplot").subplots(figsize=(9.0, 4.5))
    queries = [part.queries for part in parts]
    for who in parts[0].seconds:
        axes.plot(queries, [part.seconds[who] for part in parts], marker="o", label=who)
    axes.set(yscale="log", xlabel="queries", ylabel="CPU time (s)", title=name)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    print(f"drawn: {file}")
