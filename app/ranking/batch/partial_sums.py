"""RankSVM over parts: value, gradient, Hessian product and quality as sums over whole queries.

A pair belongs to one query, so with every query whole in one part

    f(w) = ½‖w‖² + C Σ_parts L(w)      ∇f(w) = w + C Σ_parts ∇L(w)

and the same for the Hessian product, the scatter of the warm start and the measures. The sums do
not depend on C. They are added in the order of the parts, so the result does not depend on who
computes a part.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.batch import Progress, newton, silent
from app.ranking.batch.accuracy import TIE, ndcg_each
from app.ranking.batch.judgements import Judgements, Matrix
from app.ranking.batch.newton import Minimum, norm
from app.ranking.batch.ordertree import OrderTree
from app.ranking.batch.path import Measure
from app.ranking.batch.preconditioner import weighted_spreads
from app.ranking.batch.ranksvm import Residuals
from app.ranking.batch.trainers import GRID


class LossSum(NamedTuple):
    """`Σ_P max(0, 1 - w·x)²` and its gradient, without C and without the norm of w."""

    loss: float
    gradient: Floats


class Share(NamedTuple):
    """A measure of a part as a sum and what it is divided by: queries, or pairs."""

    total: float
    weight: float


# ---- one part ----


def residuals_at(X: Matrix, tree: OrderTree, w: Floats) -> tuple[Residuals, Floats]:
    """Return the pairs inside at w, and the scores relative to the first document of a query."""
    scores = tree.centred(X @ w)
    return Residuals(tree, scores), scores


def loss_sum(X: Matrix, residuals: Residuals, scores: Floats) -> LossSum:
    """Return value and gradient of one part (eqs. 18 and 19, with C = 1).

    >>> X, tree = np.array([[0.0], [2.0]]), OrderTree.of(np.array([0.0, 1.0]), np.array([0, 2]))
    >>> loss_sum(X, *residuals_at(X, tree, np.array([0.25])))
    LossSum(loss=0.25, gradient=array([-2.]))
    """
    pull = residuals.above - residuals.below
    loss = float(residuals.above.sum() + pull @ scores)
    return LossSum(loss, 2.0 * (X.T @ pull))


def product_sum(X: Matrix, residuals: Residuals, tree: OrderTree, v: Floats) -> Floats:
    """Return the Hessian product of one part (eqs. 15 and 17): `2 Xᵀ A_wᵀA_w X v`."""
    product: Floats = 2.0 * (X.T @ residuals.laplacian(tree.centred(X @ v)))
    return product


def diagonal_sum(X: Matrix, residuals: Residuals, tree: OrderTree) -> Floats:
    """Return about the diagonal of the Hessian of one part with sparse rows."""
    counts = residuals.l_above + residuals.l_below
    return 2.0 * weighted_spreads(X, tree.starts, counts)


def quality_share(judged: Judgements, w: Floats, by: Measure) -> Share:
    """Return the measure of one part: the sum of NDCG@10, or the number of correct pairs."""
    scores: Floats = judged.X @ w
    if by == "ndcg@10":
        found = ndcg_each(scores, judged.labels, judged.starts)
        return Share(float(np.sum(found)), len(found))
    tree = OrderTree.of(judged.labels, judged.starts)
    wrong, _ = tree.at(scores, TIE).counts()
    return Share(tree.pairs - float(wrong.sum()), tree.pairs)


# ---- all parts ----


def added_losses(parts: Iterable[LossSum], n: int) -> LossSum:
    """Add the sums of parts, in their order."""
    loss, gradient = 0.0, np.zeros(n)
    for one in parts:
        loss += one.loss
        gradient += one.gradient
    return LossSum(loss, gradient)


def added(parts: Iterable[Floats], *shape: int) -> Floats:
    """Add arrays of this shape, in their order."""
    total = np.zeros(shape)
    for one in parts:
        total += one
    return total


def added_shares(parts: Iterable[Share]) -> Share:
    """Add the measures of parts, in their order."""
    total = Share(0.0, 0.0)
    for one in parts:
        total = Share(total.total + one.total, total.weight + one.weight)
    return total


def mean_share(share: Share) -> float:
    """Return a measure over all parts; 0 without queries or pairs."""
    return share.total / share.weight if share.weight else 0.0


class Sums(Protocol):
    """Sums over all parts, wherever they are computed."""

    n: int

    def loss(self, w: Floats) -> LossSum:
        """Value and gradient of the loss at w."""

    def product(self, w: Floats, v: Floats) -> Floats:
        """Product of the Hessian of the loss at w with v."""

    def diagonal(self, w: Floats) -> Floats | None:
        """About the diagonal of the Hessian of the loss at w; None for dense rows."""


@dataclass(frozen=True)
class SummedSquaredHinge:
    """Eq. 3 over parts, for `newton.minimise`."""

    sums: Sums
    C: float

    @property
    def n(self) -> int:
        """The number of weights."""
        return self.sums.n

    def at(self, w: Floats) -> "SummedPoint":
        """The objective around w."""
        return SummedPoint(self, w)


class SummedPoint:
    """Value and gradient come from one sum; each Hessian product takes another."""

    def __init__(self, objective: SummedSquaredHinge, w: Floats) -> None:
        self._sums, self._C, self.w = objective.sums, objective.C, w
        loss, gradient = self._sums.loss(w)
        self.value = 0.5 * float(w @ w) + self._C * loss
        self.gradient: Floats = w + self._C * gradient

    @cached_property
    def diagonal(self) -> Floats | None:
        """The preconditioner: `1 + C Σ_parts diag(∇²L(w))` for sparse rows."""
        found = self._sums.diagonal(self.w)
        return None if found is None else 1.0 + self._C * found

    def hessian_product(self, v: Floats) -> Floats:
        """`v + C Σ_parts ∇²L(w) v`."""
        product: Floats = v + self._C * self._sums.product(self.w, v)
        return product


class SummedTrainer:
    """The squared hinge over parts, by Newton steps; see `SquaredHingeTrainer`."""

    grid = GRID

    def __init__(self, sums: Sums, tolerance: float | None = None) -> None:
        self.n, self._sums = sums.n, sums
        self._tolerance = newton.GRADIENT_TOLERANCE if tolerance is None else tolerance

    def fit(
        self, parameter: float, start: Floats | None = None, progress: Progress = silent
    ) -> Minimum:
        """Minimise until `‖∇f‖ ≤ tolerance ‖∇f(0)‖` for this C, from any start."""
        objective = SummedSquaredHinge(self._sums, parameter)
        return newton.minimise(
            objective, start, tolerance=self._tolerance, scale=self._unit * parameter,
            progress=progress,
        )  # fmt: skip

    @cached_property
    def _unit(self) -> float:
        """`‖∇f(0)‖` with C = 1; it is proportional to C."""
        return norm(self._sums.loss(np.zeros(self.n)).gradient)
