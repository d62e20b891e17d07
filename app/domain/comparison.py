"""Two documents of a ranking: where the gap of their scores comes from. Pure.

With `x = φ(first) - φ(second)` the gap is `w·x`, and feature k contributes `w_k x_k`.
"""

from math import exp, fsum, sqrt
from typing import Any, NamedTuple

import numpy as np

from app.domain.model import Documents, Positions
from app.domain.model_config import ModelConfig
from app.ranking import covariance, serving
from app.ranking.arrays import Floats

#: Chance that FairPairs exchanges two neighbours: their positions form a pair in half of all
#: rankings, and half of these pairs are swapped.
FAIR_EXCHANGE = 0.25


class GapParts(NamedTuple):
    """Contributions to a gap: columns with the largest absolute value first, and their values.

    `rest` is the number of other contributions that are not 0, and `rest_sum` their sum.
    """

    columns: Positions
    values: Floats
    rest: int
    rest_sum: float


def gap_between(documents: Documents, first: int, second: int) -> Floats:
    """Return `x = φ(first) - φ(second)` in float64."""
    gap: Floats = documents[first].astype(np.float64) - documents[second].astype(np.float64)
    return gap


def gap_parts(gap: Floats, weights: Floats, most: int) -> GapParts:
    """Split the gap of two scores into the contributions of features that are not 0.

    >>> gap_parts(np.array([1.0, 0.0, -2.0]), np.array([3.0, 1.0, 2.0]), most=1)
    GapParts(columns=array([2]), values=array([-4.]), rest=1, rest_sum=3.0)
    """
    added = gap * weights
    columns = np.flatnonzero(added)
    columns = columns[np.argsort(-np.abs(added[columns]), kind="stable")]
    shown, others = columns[:most], added[columns[most:]]
    return GapParts(shown, added[shown], len(others), fsum(others.tolist()))


def gap_deviation(gap: Floats, spread: Floats) -> float:
    """Return `√(x·Σx)`, as `candidates.deviations` for one row, without a square matrix.

    >>> gap_deviation(np.array([3.0, 4.0]), np.array([1.0, 1.0]))
    5.0
    """
    return sqrt(max(0.0, covariance.quadratic(spread, gap)))


def exchange_probability(
    config: ModelConfig, scores: Floats, first: int, second: int, scale: float
) -> float | None:
    """Return the chance that exploration shows the lower of two documents above the other.

    Of equal scores, the lower one is that of the later document. None if the model does not
    explore. `scale` as in `serving.sharpened`.
    """
    if not config.explores:
        return None
    if config.clicks == "fair-pairs":
        positions: Any = np.empty(len(scores), np.int64)
        positions[serving.order(scores)] = np.arange(len(scores))
        return FAIR_EXCHANGE if abs(positions[first] - positions[second]) == 1 else 0.0
    sharp = serving.sharpened(scores, scale, config.exploration or 1.0)
    odds = exp(-abs(float(sharp[first]) - float(sharp[second])))
    return odds / (1.0 + odds)
