"""The choice of a parameter on held-out queries; each fit starts from the previous w."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, get_args

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.batch import Progress, silent
from app.ranking.batch.accuracy import ndcg_each, pairwise_accuracy
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.newton import Minimum
from app.ranking.batch.trainers import Trainer
from app.ranking.measures import Discount

#: Stop after this many parameters in a row without an improvement.
MOST_WITHOUT_GAIN = 6

Measure = Literal["ndcg@10", "pairwise"]


@dataclass(frozen=True, slots=True)
class Tried:
    """One parameter, the quality of its model on the held-out queries, and the solver's result."""

    parameter: float
    quality: float
    minimum: Minimum


@dataclass(frozen=True, slots=True)
class Path:
    """All tried parameters, in order; of equal qualities the most regularised is the best."""

    tried: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        """The first parameter with the highest quality."""
        return max(self.tried, key=lambda one: one.quality)


def follow_path(
    trainer: Trainer,
    held_out: Judgements,
    by: Measure = "ndcg@10",
    *,
    grid: Sequence[float] | None = None,
    patience: int = MOST_WITHOUT_GAIN,
    discount: Discount = "standard",
    progress: Progress = silent,
) -> Path:
    """Fit the parameters, the most regularised first, until `patience` of them bring no gain.

    `progress` is called for every iteration of the solver; numbers continue across parameters.

    >>> from app.ranking.batch.trainers import trainer
    >>> judged = Judgements(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([0, 2]))
    >>> l2 = trainer("l2", judged)
    >>> path = follow_path(l2, judged, "pairwise", grid=[0.5, 1.0, 2.0], patience=1)
    >>> [(one.parameter, one.quality) for one in path.tried], path.best.parameter
    ([(0.5, 1.0), (1.0, 1.0)], 0.5)
    """
    if by not in get_args(Measure):
        raise ValueError(f"by: expected one of {', '.join(get_args(Measure))}, got {by!r}")
    if grid is not None and not grid:
        raise ValueError("grid: expected at least one parameter, got none")

    def quality(w: Floats) -> float:
        return batch_quality(held_out, w, by, discount)

    ordered = _ordered(grid, like=trainer.grid)
    return follow(trainer, quality, grid=ordered, patience=patience, progress=progress)


def follow(
    trainer: Trainer,
    quality: Callable[[Floats], float],
    *,
    grid: Sequence[float],
    patience: int = MOST_WITHOUT_GAIN,
    progress: Progress = silent,
) -> Path:
    """Fit the parameters of the grid until `patience` of them bring no gain in quality."""
    w, tried, numbered = None, Path(()), _numbered(progress)
    for parameter in grid:
        minimum = trainer.fit(parameter, w, numbered)
        w = minimum.w
        tried = Path((*tried.tried, Tried(parameter, quality(w), minimum)))
        if len(tried.tried) - tried.tried.index(tried.best) > patience:
            break
    return tried


def batch_quality(
    judged: Judgements, w: Floats, by: Measure, discount: Discount = "standard"
) -> float:
    """Return the quality of w on judged queries: mean NDCG@10, or the pairwise accuracy."""
    scores: Floats = judged.X @ w
    if by == "pairwise":
        return pairwise_accuracy(scores, judged.labels, judged.starts)
    found = ndcg_each(scores, judged.labels, judged.starts, discount)
    return float(np.mean(found)) if len(found) else 0.0


def _ordered(grid: Sequence[float] | None, like: Sequence[float]) -> Sequence[float]:
    """Sort the most regularised first: ascending or descending like the trainer's grid."""
    return like if grid is None else sorted(grid, reverse=like[0] > like[-1])


def _numbered(progress: Progress) -> Progress:
    numbers = count()
    return lambda _, objective, distance, w: progress(next(numbers), objective, distance, w)
