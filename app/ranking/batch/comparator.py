"""The comparator that a loss bound is best for: RankSVM on the pairs that an online learner learnt.

    f(u) = ½ d₁(u) + ½ Σ κ·ℓ(u)²/r

Twice its minimum is the smallest right side of the bound for SOLAR-I, and for SOLAR-II with a
diagonal Σ, whose d₁ includes the price of shrinking variances (`ranking/loss_bound.py`). For
SOLAR-II with a full Σ the bound has a squared loss without the hinge, and any u is a comparator.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.batch.newton import minimise, norm
from app.ranking.loss_bound import LossBound, SteppedPairs

#: The solver stops at this share of the gradient at the start, or after MOST_STEPS. A comparator
#: need not be exact: the bound holds for any.
TOLERANCE, MOST_STEPS = 1e-4, 100


@dataclass(frozen=True)
class PairRankSVM:
    """RankSVM with the squared hinge loss on weighted pairs, near the start of a bound."""

    bound: LossBound
    blocks: list[SteppedPairs]

    @property
    def n(self) -> int:
        """The number of weights."""
        return int(self.bound.starts[0].w.size)

    def at(self, w: Floats) -> "PairPoint":
        """The objective around w."""
        return PairPoint(self, w)


class PairPoint:
    """Value, gradient and Hessian product at one w; there is no preconditioner."""

    diagonal: Floats | None = None

    def __init__(self, objective: PairRankSVM, w: Floats) -> None:
        self._objective, self.w = objective, w
        blocks = objective.blocks
        self._residuals = [np.maximum(0.0, 1.0 - one.margins(w)) for one in blocks]
        each = zip(blocks, self._residuals, strict=True)
        loss = sum(float(one.information @ (r * r)) for one, r in each)
        self.value = 0.5 * objective.bound.right_side(w, loss)

    @cached_property
    def gradient(self) -> Floats:
        """`½∇d₁(w) - Σ κ·ℓ(w)/r·x`."""
        found = self._objective.bound.pull(self.w)
        for one, residuals in zip(self._objective.blocks, self._residuals, strict=True):
            found = found - one.pulled(one.information * residuals)
        return found

    def hessian_product(self, v: Floats) -> Floats:
        """`½∇²d₁ v + Σ κ/r·(x·v)x` over the pairs inside their margin."""
        found = self._objective.bound.curvature(v)
        for one, residuals in zip(self._objective.blocks, self._residuals, strict=True):
            inside = one.information * (residuals > 0.0)
            found = found + one.pulled(inside * one.margins(v))
        return found


def best_comparator(bound: LossBound, blocks: list[SteppedPairs]) -> Floats:
    """Train RankSVM on the pairs of a bound, from its first start."""
    objective, w = PairRankSVM(bound, blocks), bound.starts[0].w
    scale = norm(objective.at(w).gradient)
    return minimise(objective, w, tolerance=TOLERANCE, scale=scale, most=MOST_STEPS).w
