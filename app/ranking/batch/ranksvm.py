"""Linear RankSVM (Lee & Lin 2014) as an objective for a solver.

Let `P = {(i, j): same query, y_i > y_j}` and s = Xw. A pair inside its margin has the residual
`r = 1 - (s_i - s_j) > 0`. The sums of residuals over the pairs of a document are

    R_i⁺ = l_i⁺ (1 + s_i) - γ_i⁺     (i is less relevant)
    R_i⁻ = l_i⁻ (1 - s_i) + γ_i⁻     (i is more relevant)

with `γ = γ(w, w)`. They give `Σ r = Σ_i R_i⁺` and `Σ r² = Σ_i R_i⁺ + (R⁺ - R⁻)·s`, which is eq. 18.
Scores are relative to the first document of their query: the pairs stay the same, and large scores
lose no digits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from app.ranking.arrays import Floats, Integers
from app.ranking.batch.judgements import Judgements, Matrix, is_sparse
from app.ranking.batch.ordertree import OrderTree
from app.ranking.batch.preconditioner import weighted_spreads


class PairsInside(Protocol):
    """The pairs inside their margin, for given scores."""

    def sums(self, u: Floats) -> tuple[Floats, Floats]:
        """`γ_i⁺` and `γ_i⁻` for all documents i."""

    def counts(self) -> tuple[Floats, Floats]:
        """`l_i⁺` and `l_i⁻` for all documents i."""


class PairStructure(Protocol):
    """The pairs of judged queries: an `OrderTree`, or `DirectCounting`."""

    @property
    def starts(self) -> Integers:
        """The first document of each query."""

    @property
    def pairs(self) -> int:
        """The number of pairs."""

    def centred(self, u: Floats) -> Floats:
        """`u` relative to the first document of each query."""

    def at(self, scores: Floats, margin: float = 1.0, near: Any = None) -> PairsInside:
        """The pairs inside; `near` is the result for similar scores."""


@dataclass(frozen=True)
class RankSVMObjective:
    """The base of both losses: the rows, the pairs by their labels, and C."""

    X: Matrix
    tree: PairStructure
    C: float

    def __post_init__(self) -> None:
        if not 0.0 < self.C < np.inf:
            raise ValueError(f"C: expected a positive number, got {self.C}")

    @property
    def n(self) -> int:
        """The number of weights."""
        return int(self.X.shape[1])

    def scores(self, w: Floats) -> Floats:
        """Return `Xw`, relative to the first document of each query."""
        return self.tree.centred(self.X @ w)


class SquaredHinge(RankSVMObjective):
    """Eq. 3: `f(w) = ½‖w‖² + C Σ_P max(0, 1 - w·(x_i - x_j))²`.

    >>> judged = Judgements(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([0, 2]))
    >>> point = squared_hinge(judged, C=1.0).at(np.array([0.25]))
    >>> point.value, point.gradient, point.hessian_product(np.array([1.0]))
    (0.28125, array([-1.75]), array([9.]))
    """

    def at(self, w: Floats) -> "SquaredHingePoint":
        """The objective around w."""
        return SquaredHingePoint(self, w)


class Hinge(RankSVMObjective):
    """The second term of eq. 2: `f(w) = ½‖w‖² + C Σ_P max(0, 1 - w·(x_i - x_j))`.

    >>> judged = Judgements(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([0, 2]))
    >>> point = hinge(judged, C=1.0).at(np.array([0.25]))
    >>> point.value, point.subgradient
    (0.5, array([-2.]))
    """

    def at(self, w: Floats) -> "HingePoint":
        """The loss around w."""
        return HingePoint(self, w, self.scores(w))


def squared_hinge(judged: Judgements, C: float) -> SquaredHinge:
    """Return L2-loss RankSVM over judged queries."""
    return SquaredHinge(judged.X, OrderTree.of(judged.labels, judged.starts), C)


def hinge(judged: Judgements, C: float) -> Hinge:
    """Return the loss of L1-loss RankSVM over judged queries."""
    return Hinge(judged.X, OrderTree.of(judged.labels, judged.starts), C)


class Residuals:
    """The pairs inside for given scores, their counts, and `R⁺`, `R⁻`."""

    def __init__(self, tree: PairStructure, scores: Floats) -> None:
        self.inside: PairsInside = tree.at(scores)
        self.l_above, self.l_below = self.inside.counts()
        g_above, g_below = self.inside.sums(scores)
        self.above: Floats = self.l_above * (1.0 + scores) - g_above
        self.below: Floats = self.l_below * (1.0 - scores) + g_below

    def laplacian(self, u: Floats) -> Floats:
        """Return `A_wᵀA_w u = (l⁺ + l⁻) u - γ⁺ - γ⁻` (eq. 17)."""
        above, below = self.inside.sums(u)
        pulled: Floats = (self.l_above + self.l_below) * u - above - below
        return pulled


class SquaredHingePoint:
    """Value, gradient and Hessian product at one w; all but the value on demand."""

    def __init__(self, objective: SquaredHinge, w: Floats) -> None:
        self._objective, self.w = objective, w
        scores = objective.scores(w)
        self.residuals = Residuals(objective.tree, scores)
        self._pull: Floats = self.residuals.above - self.residuals.below
        loss = float(self.residuals.above.sum() + self._pull @ scores)
        self.value = 0.5 * float(w @ w) + objective.C * loss

    @cached_property
    def gradient(self) -> Floats:
        """Eq. 19: `w + 2C Xᵀ(R⁺ - R⁻)`."""
        gradient: Floats = self.w + 2.0 * self._objective.C * (self._objective.X.T @ self._pull)
        return gradient

    @cached_property
    def diagonal(self) -> Floats | None:
        """About the diagonal of eq. 15 for sparse rows; None for dense rows, which lose time."""
        objective, counts = self._objective, self.residuals
        if not is_sparse(objective.X):
            return None
        d = counts.l_above + counts.l_below
        spreads = weighted_spreads(objective.X, objective.tree.starts, d)
        return 1.0 + 2.0 * objective.C * spreads

    def hessian_product(self, v: Floats) -> Floats:
        """Eqs. 15 and 17: `v + 2C Xᵀ A_wᵀA_w X v`."""
        objective = self._objective
        pulled = self.residuals.laplacian(objective.scores(v))
        product: Floats = v + 2.0 * objective.C * (objective.X.T @ pulled)
        return product


class HingePoint:
    """Value and subgradient of the loss at one w, and its slope along a line from w."""

    def __init__(
        self, loss: Hinge, w: Floats, scores: Floats, near: "HingePoint | None" = None
    ) -> None:
        self._loss, self.w, self._scores = loss, w, scores
        known = None if near is None else near._inside
        self._inside: PairsInside = loss.tree.at(scores, near=known)
        self._l_above, self._l_below = self._inside.counts()

    @cached_property
    def value(self) -> float:
        """`C Σ_i R_i⁺`."""
        g_above, _ = self._inside.sums(self._scores)
        return self._loss.C * float((self._l_above * (1.0 + self._scores) - g_above).sum())

    @cached_property
    def subgradient(self) -> Floats:
        """Eq. 34: `C Xᵀ(l⁺ - l⁻)`."""
        pull = self._l_above - self._l_below
        subgradient: Floats = self._loss.C * (self._loss.X.T @ pull)
        return subgradient

    def toward(self, other: "HingePoint") -> Callable[[float], tuple["HingePoint", float]]:
        """Return a function of t: the point at `w + t (other - w)` and its slope; no X product."""
        step, change = other.w - self.w, other._scores - self._scores

        def at(t: float) -> tuple[HingePoint, float]:
            if t in (0.0, 1.0):
                point = other if t else self
            else:
                point = HingePoint(self._loss, self.w + t * step, self._scores + t * change, self)
            return point, self._loss.C * float((point._l_above - point._l_below) @ change)

        return at
