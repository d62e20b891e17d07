"""Stesinbio: sparse models by the domination loss (Stevens, Bengio & Singer 2013).

With `D(i)` the documents of i's query whose label is lower, margins `Δ(i, j) = m (y_i - y_j)` and
`a = Xw - m y`,

    F(w) = Σ_{i: D(i) ≠ ∅} log(1 + Σ_{j ∈ D(i)} exp(a_j - a_i)) + λ‖w‖₁

is minimised by coordinate descent. (The summary available to this project has misprints; the
formulas here are derived independently.) Let `p_j = exp(a_j) / (exp(a_i) + Σ_{D(i)} exp(a))`. The
slope and the curvature of i's term along w_r are a mean and a variance over p, on D(i) ∪ {i}:

    Σ_{j ∈ D(i)} p_j (x_jr - x_ir)      and      Var_p(x_r) ≤ (max x_r - min x_r)² / 4

by Popoviciu's inequality, over D(i) ∪ {i} and for every w (the paper's `max x_r²` is never
smaller). Let `g_r` and `B_r` be their sums over i. Then
`F + g_r δ + ½ B_r δ² + λ(|w_r + δ| - |w_r|)` is an upper bound of F for every δ. Its minimum is
`w_r ← S(B_r w_r - g_r, λ) / B_r`, `S(z, λ) = sign(z) max(0, |z| - λ)`. So no step increases F. A
query takes one pass: the sums over D(i) grow from label to label.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from app.ranking.arrays import Floats, Integers
from app.ranking.batch import Progress, silent
from app.ranking.batch.judgements import Judgements, is_sparse
from app.ranking.batch.ordertree import OrderTree
from app.ranking.lanes import Array, kernel

#: Stop once no coordinate is further from optimal than this share of the steepest slope at 0.
DOMINATION_TOLERANCE = 1e-3
#: Most sweeps over the non-zero coordinates after each sweep over all coordinates.
INNER_SWEEPS = 10


@dataclass(frozen=True, slots=True)
class SparseModel:
    """The result of the descent; `distance` is the largest violation of optimality in a sweep."""

    w: Floats
    value: float
    distance: float
    sweeps: int
    converged: bool

    @property
    def zeros(self) -> float:
        """The share of weights that are zero."""
        return float(np.mean(self.w == 0.0))


def train_domination(
    judged: Judgements,
    penalty: float,
    *,
    margin: float = 1.0,
    start: Floats | None = None,
    tolerance: float = DOMINATION_TOLERANCE,
    most: int = 1000,
    progress: Progress = silent,
) -> SparseModel:
    """Minimise F by sweeps from `start` (or 0); `penalty` is λ, `margin` is m.

    >>> X, labels = np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([0.0, 1.0])
    >>> judged = Judgements(X, labels, np.array([0, 2]))
    >>> model = train_domination(judged, penalty=0.5, margin=0.0, tolerance=1e-9)
    >>> model.w.round(6), model.zeros
    (array([0.549306, 0.      ]), 0.5)
    """
    loss = Domination(judged, margin)
    return lower(loss, penalty, start, tolerance=tolerance, most=most, progress=progress)


def lower(
    loss: "Domination",
    penalty: float,
    start: Floats | None = None,
    *,
    tolerance: float = DOMINATION_TOLERANCE,
    most: int = 1000,
    progress: Progress = silent,
) -> SparseModel:
    """Minimise F for one penalty; `loss` is the part that several penalties have in common."""
    descent = Descent(loss, penalty, start)
    enough = tolerance * loss.largest_penalty
    everything, distance, sweeps = range(loss.n), inf, 0
    while distance > enough and sweeps < most:
        distance, sweeps = descent.sweep(everything), sweeps + 1
        progress(sweeps, descent.value, distance, descent.w.copy())
        for _ in range(INNER_SWEEPS):
            if distance <= enough or descent.sweep(np.flatnonzero(descent.w)) <= 0.1 * distance:
                break
    return SparseModel(descent.w, descent.value, distance, sweeps, distance <= enough)


def largest_penalty(judged: Judgements, margin: float = 1.0) -> float:
    """Return the smallest λ with w = 0 as the optimum: `max_r |g_r|` at w = 0.

    >>> judged = Judgements(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([0, 2]))
    >>> largest_penalty(judged, margin=0.0)
    1.0
    """
    return Domination(judged, margin).largest_penalty


class Domination:
    """The part of the loss that does not depend on w and λ: order tree, columns, margins."""

    def __init__(self, judged: Judgements, margin: float = 1.0) -> None:
        if not 0.0 <= margin < inf:
            raise ValueError(f"margin: expected a number from 0, got {margin}")
        judged = judged.with_pairs()
        self.n, self._X = judged.n, judged.X
        self.tree = OrderTree.of(judged.labels, judged.starts)
        self.columns = Columns(judged.X, self.tree)
        self._at_zero: Floats = -margin * judged.labels[self.tree.by_label]

    def a(self, w: Floats) -> Floats:
        """Return `Xw - m y`, sorted by query and label."""
        a: Floats = (self._X @ w)[self.tree.by_label] + self._at_zero
        return a

    @cached_property
    def largest_penalty(self) -> float:
        """`max_r |g_r|` at w = 0."""
        columns = (self.columns[r] for r in range(self.n))
        slopes = (self.slope(x, queries, self._at_zero) for x, queries, _ in columns)
        return max(map(abs, slopes), default=0.0)

    def slope(self, x: Floats, queries: Integers, a: Floats) -> float:
        """Return `g_r`, where x is column r."""
        return float(total_slope(x, a, self.tree.label_starts, self.tree.first, queries))


class Descent:
    """Coordinate descent on w, one coordinate a step."""

    def __init__(self, loss: Domination, penalty: float, start: Floats | None = None) -> None:
        if not 0.0 <= penalty < inf:
            raise ValueError(f"penalty: expected a number from 0, got {penalty}")
        self._loss, self.penalty = loss, penalty
        self.w = np.zeros(loss.n) if start is None else np.array(start, np.float64)
        self._a = loss.a(self.w)

    @property
    def value(self) -> float:
        """`F(w)`."""
        tree = self._loss.tree
        loss = float(total_loss(self._a, tree.label_starts, tree.first))
        return loss + self.penalty * float(np.abs(self.w).sum())

    def step(self, r: int) -> float:
        """Minimise the bound along w_r; return w_r's previous distance from optimal, as a slope."""
        x, queries, B = self._loss.columns[r]
        if not B > 0.0:
            self.w[r] = 0.0  # a constant feature
            return 0.0
        g, old = self._loss.slope(x, queries, self._a), float(self.w[r])
        z = B * old - g
        self.w[r] = new = np.sign(z) * max(0.0, abs(z) - self.penalty) / B
        if new != old:
            move(x, new - old, self._a, self._loss.tree.starts, queries)
        if old == 0.0:
            return max(0.0, abs(g) - self.penalty)
        return abs(g + float(np.sign(old)) * self.penalty)

    def sweep(self, coordinates: Iterable[int]) -> float:
        """Take a step along each coordinate; return the largest distance from optimal."""
        return max((self.step(int(r)) for r in coordinates), default=0.0)


class Columns:
    """Column r of X, by query and label, with the queries where it is not constant, and `B_r`."""

    def __init__(self, X: Any, tree: OrderTree) -> None:
        self._sparse = is_sparse(X)
        self._X: Any = (
            X[tree.by_label].tocsc() if self._sparse else np.asfortranarray(X[tree.by_label])
        )
        self._room = np.zeros(X.shape[0])
        found = [self._bounds(self._column(r), tree) for r in range(X.shape[1])]
        self._queries = [np.flatnonzero(bounds) for bounds in found]
        self._bound = [float(bounds.sum()) for bounds in found]

    def __getitem__(self, r: int) -> tuple[Floats, Integers, float]:
        return self._column(r), self._queries[r], self._bound[r]

    def _column(self, r: int) -> Floats:
        if not self._sparse:
            column: Floats = self._X[:, r]
            return column
        low, high = self._X.indptr[r], self._X.indptr[r + 1]
        self._room[:] = 0.0
        self._room[self._X.indices[low:high]] = self._X.data[low:high]
        return self._room

    @staticmethod
    def _bounds(x: Floats, tree: OrderTree) -> Floats:
        bounds = np.zeros(len(tree.first) - 1)
        curvature(x, tree.label_starts, tree.first, bounds)
        return bounds


@kernel
def curvature(x: Array, label_starts: Array, first: Array, bounds: Array) -> None:
    """Write `Σ_i (max x - min x)² / 4` over D(i) ∪ {i} for each query."""
    for q in range(bounds.shape[0]):
        low, high = np.inf, -np.inf
        for label in range(first[q], first[q + 1]):
            a, b = label_starts[label], label_starts[label + 1]
            if label > first[q]:
                for t in range(a, b):
                    spread = max(high, x[t]) - min(low, x[t])
                    bounds[q] += 0.25 * spread * spread
            for t in range(a, b):
                low, high = min(low, x[t]), max(high, x[t])


@kernel
def total_slope(x: Array, a: Array, label_starts: Array, first: Array, queries: Array) -> float:
    """`Σ_i (μ - Z x_i) / (Z + exp(a_i))`, Z and μ the sums of exp(a_j) and exp(a_j) x_j over D(i).

    All exponents are relative to the largest in D(i), so Z is at least 1.
    """
    slope = 0.0
    for q in queries:
        top, Z, mu = -np.inf, 0.0, 0.0
        for label in range(first[q], first[q + 1]):
            low, high = label_starts[label], label_starts[label + 1]
            before = top
            for t in range(low, high):
                if label > first[q]:
                    slope += (mu - Z * x[t]) / (Z + np.exp(a[t] - before))
                top = max(top, a[t])
            shrink = np.exp(before - top)
            Z, mu = Z * shrink, mu * shrink
            if label < first[q + 1] - 1:
                for t in range(low, high):
                    weight = np.exp(a[t] - top)
                    Z, mu = Z + weight, mu + weight * x[t]
    return slope


@kernel
def total_loss(a: Array, label_starts: Array, first: Array) -> float:
    """`Σ_i log(1 + Z exp(-a_i))`."""
    loss = 0.0
    for q in range(first.shape[0] - 1):
        top, Z = -np.inf, 0.0
        for label in range(first[q], first[q + 1]):
            low, high = label_starts[label], label_starts[label + 1]
            before = top
            for t in range(low, high):
                if label > first[q]:
                    d = before + np.log(Z) - a[t]
                    loss += max(d, 0.0) + np.log1p(np.exp(-abs(d)))
                top = max(top, a[t])
            Z *= np.exp(before - top)
            for t in range(low, high):
                Z += np.exp(a[t] - top)
    return loss


@kernel
def move(x: Array, delta: float, a: Array, starts: Array, queries: Array) -> None:
    """`a ← a + δ x` for the queries where x is not constant."""
    for q in queries:
        for t in range(starts[q], starts[q + 1]):
            a[t] += delta * x[t]
