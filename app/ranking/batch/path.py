"""C chosen on held-out queries: the squared hinge along a path of growing C, each from the last."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from app.ranking import measures, serving
from app.ranking.arrays import Floats
from app.ranking.batch import Progress, newton, silent
from app.ranking.batch.accuracy import pairwise_accuracy
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.newton import Minimum, norm
from app.ranking.batch.ranksvm import squared_hinge
from app.ranking.measures import Discount

#: The paper's grid (section 4.4).
GRID = tuple(2.0**e for e in range(-15, 11))
#: Stop after so many C in a row that were no better than the best before.
PATIENCE = 6

Measure = Literal["ndcg@10", "pairwise"]


@dataclass(frozen=True, slots=True)
class Tried:
    """One C, how well its model orders the held-out queries, and where the solver ended."""

    C: float
    quality: float
    minimum: Minimum


@dataclass(frozen=True, slots=True)
class Path:
    """All that was tried, in order; the best of equally good ones is the most regular."""

    tried: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        """The first of those with the highest quality."""
        return max(self.tried, key=lambda one: one.quality)


def follow(
    train: Judgements,
    held_out: Judgements,
    by: Measure = "ndcg@10",
    *,
    grid: Sequence[float] = GRID,
    patience: int = PATIENCE,
    discount: Discount = "standard",
    tolerance: float = newton.TOLERANCE,
    progress: Progress = silent,
) -> Path:
    """Train with each C, from the smallest, until `patience` of them have not got better.

    `progress` hears of every iteration of the solver, which are numbered through.

    >>> world = Judgements(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([0, 2]))
    >>> path = follow(world, world, "pairwise", grid=[0.5, 1.0, 2.0], patience=1)
    >>> [(one.C, one.quality) for one in path.tried], path.best.C
    ([(0.5, 1.0), (1.0, 1.0)], 0.5)
    """
    if by not in get_args(Measure):
        raise ValueError(f"by: expected one of {', '.join(get_args(Measure))}, got {by!r}")
    if not grid:
        raise ValueError("grid: expected at least one C")
    objective = squared_hinge(train.with_pairs(), min(grid))
    w, tried = np.zeros(train.n), Path(())
    unit = norm(objective.at(w).gradient) / objective.C  # ∇f(0) grows with C alone
    for C in sorted(grid):
        before = sum(one.minimum.iterations + 1 for one in tried.tried)
        minimum = newton.minimise(
            replace(objective, C=C), w, tolerance=tolerance, scale=unit * C,
            progress=partial(_shifted, progress, before),
        )  # fmt: skip
        w = minimum.w
        one = Tried(C, quality(held_out, w, by, discount), minimum)
        tried = Path((*tried.tried, one))
        if len(tried.tried) - tried.tried.index(tried.best) > patience:
            break
    return tried


def quality(judged: Judgements, w: Floats, by: Measure, discount: Discount = "standard") -> float:
    """How well w orders judged queries: mean NDCG@10, or the share of pairs in order."""
    scores: Floats = judged.X @ w
    if by == "pairwise":
        return pairwise_accuracy(scores, judged.labels, judged.starts)
    found = [
        measures.quality(judged.labels[q][serving.order(scores[q])], discount).ndcg_10
        for q in judged.queries
        if q.start < q.stop
    ]
    return float(np.mean(found)) if found else 0.0


def _shifted(
    progress: Progress, before: int, iteration: int, objective: float, distance: float
) -> None:
    progress(before + iteration, objective, distance)
