"""Bounds of the loss of SOLAR-I and SOLAR-II, for any stream of pairs and any comparator u.

Let `r = 1/(2ωC)` for SOLAR-I, which has Σ = I throughout, and `r = γ/ω` for SOLAR-II. A step from a
loss ℓ > 0 has `β = x·Σx + r` and `w' = w + (ℓ/β)Σx`. Let `d = (w - u)·Σ⁻¹(w - u)`, and
`v = 1 - u·x`, so that `(w - u)·x = v - ℓ`. All sums are over the steps: other pairs change nothing.

SOLAR-I (Theorem 1 with weights): `d' = d - ℓ²/β + 2(ℓ/β)v - (ℓ/β)²r`, and the last two terms are at
most `ℓ(u)²/r` with the hinge loss ℓ(u) of u:

    Σ ℓ²/β ≤ d₁ + Σ ℓ(u)²/r

SOLAR-II with a full Σ, instead of Theorem 3: `Σ'⁻¹ = Σ⁻¹ + x xᵀ/r` gives `d' = d - ℓ²/β + v²/r`, an
equation, so only the last d is lost. The loss of u is squared on both sides of the margin:

    Σ ℓ²/β ≤ d₁ + Σ (1 - u·x)²/r

SOLAR-II with a diagonal Σ: `1/σ_k` grows by `g_k = x_k²/(β - σ_k x_k²)`, so the inequality of
SOLAR-I has the price of that growth, which depends on the path of w:

    Σ ℓ²/β ≤ d₁ + Σ ℓ(u)²/r + Σ Σ_k g_k (w'_k - u_k)²

Forgetting gives `Σ̃ = kΣ + (1 - k)D` with `D ⪰ 0`, so `k·d̃ ≤ d`: every term after it counts k times
as much, on both sides. `κ` is the product of these shares. With a diagonal Σ, `k·d̃ ≤ d` holds with
`k = min σ̃/σ`, which is 1 unless a variance exceeds its initial value. Other values of C, γ or ω
change no step of the proofs. A replaced model starts a new sum with its own d₁.

The published form of Theorem 3 does not hold, nor does it with ℓ(u)²/r in place of (1 - u·x)²/r:
`tests/test_loss_bound.py` has streams that violate them.
"""

from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from app.ranking import covariance as cov
from app.ranking.arrays import Bools, Bytes, Dense, Floats, Integers
from app.ranking.kernels import STEPPED

#: A loss may exceed its bound by this share before it counts as a violation: rounding errors. They
#: grow with β/r, as a step subtracts `Σx xᵀΣ/β` from Σ and leaves the share r/β of `x·Σx`.
BOUND_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class SteppedPairs:
    """Pairs that changed a model: rows p preferred to rows o, and `κ/r` of each.

    >>> pairs = SteppedPairs(np.eye(2), np.array([0]), np.array([1]), np.array([0.5]))
    >>> pairs.loss(np.array([2.0, 0.0]), hinge=True), pairs.loss(np.array([2.0, 0.0]), hinge=False)
    (0.0, 0.5)
    """

    documents: Dense
    p: Integers
    o: Integers
    information: Floats

    @classmethod
    def joined(cls, parts: "list[SteppedPairs]") -> "SteppedPairs":
        """Return all pairs as one value."""
        starts = np.cumsum([0, *(len(one.documents) for one in parts)])[:-1]
        shifted = [(one.p + at, one.o + at) for one, at in zip(parts, starts, strict=True)]
        return cls(
            np.concatenate([one.documents for one in parts]),
            np.concatenate([p for p, _ in shifted]),
            np.concatenate([o for _, o in shifted]),
            np.concatenate([one.information for one in parts]),
        )

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        return sum(one.nbytes for one in (self.documents, self.p, self.o, self.information))

    def margins(self, u: Floats) -> Floats:
        """Return `u·x` of each pair."""
        scores = self.documents.astype(np.float64) @ u
        margins: Floats = scores[self.p] - scores[self.o]
        return margins

    def pulled(self, weights: Floats) -> Floats:
        """Return `Σ weight·x`."""
        count = len(self.documents)
        each: Any = np.bincount(self.p, weights, count) - np.bincount(self.o, weights, count)
        pulled: Floats = each @ self.documents.astype(np.float64)
        return pulled

    def loss(self, u: Floats, *, hinge: bool) -> float:
        """Return `Σ κ·ℓ(u)²/r`, or `Σ κ(1 - u·x)²/r` without the hinge."""
        missing = 1.0 - self.margins(u)
        if hinge:
            missing = np.maximum(0.0, missing)
        return float(self.information @ (missing * missing))


class StartPoint:
    """Weights and covariance from which a learner starts: `d₁(u) = (u - w)·Σ⁻¹(u - w)`.

    `spread` is the packed triangle or the diagonal of Σ, or empty for Σ = I.

    >>> StartPoint(np.array([1.0]), np.array([0.5])).distance(np.array([3.0]))
    8.0
    """

    def __init__(self, w: Floats, spread: Floats) -> None:
        self.w = w
        self._variances = spread if spread.size else np.ones(w.size)
        self._factor: Any = None
        if spread.size > w.size:
            self._factor = _factor(cov.square(spread, w.size))

    def curvature(self, v: Floats) -> Floats:
        """Return `Σ⁻¹v`."""
        if self._factor is None:
            return v / self._variances
        from scipy.linalg import cho_solve  # noqa: PLC0415  # takes 0.2 s

        solved: Floats = cho_solve(self._factor, v)
        return solved

    def distance(self, u: Floats) -> float:
        """Return `d₁(u)`."""
        away = u - self.w
        return float(away @ self.curvature(away))


def _factor(sigma: Floats) -> Any:
    from scipy.linalg import LinAlgError, cho_factor  # noqa: PLC0415  # takes 0.2 s

    try:
        return cho_factor(sigma, lower=True)
    except LinAlgError:
        raise ValueError("covariance: expected one that is positive definite in float64") from None


class VarianceLoss:
    """`G(u) = Σ κ Σ_k g_k (w'_k - u_k)²`, the price of shrinking variances, for every u.

    It follows a learner with a diagonal Σ and keeps three sums for each feature.
    """

    def __init__(self, n: int) -> None:
        self._w, self._sigma = np.zeros(n), np.ones(n)
        self._growth, self._linear, self._constant = np.zeros(n), np.zeros(n), np.zeros(n)

    def restart(self, w: Floats, sigma: Floats) -> None:
        """Continue from another model."""
        self._w, self._sigma = w.copy(), sigma.copy()

    def step(self, x: Floats, loss: float, beta: float, discount: float) -> None:
        """Take the learner's step."""
        s = self._sigma * x
        self._w += loss / beta * s
        growth = discount * x * x / (beta - s * x)
        self._growth += growth
        self._linear += growth * self._w
        self._constant += growth * self._w * self._w
        self._sigma -= s * s / beta

    def forget(self, kept: float, initial: Floats) -> float:
        """Forget as the learner does; return the largest `k ≤ 1` with `k·σ ≤ σ̃`."""
        before = self._sigma
        self._sigma = kept * before + (1.0 - kept) * np.minimum(initial, 2.0 * before)
        return min(1.0, float((self._sigma / before).min()))

    def price(self, u: Floats) -> float:
        """Return `G(u)`."""
        return float((self._constant - 2.0 * u * self._linear + u * u * self._growth).sum())

    def pull(self, u: Floats) -> Floats:
        """Return `½∇G(u)`."""
        return u * self._growth - self._linear

    def curvature(self, v: Floats) -> Floats:
        """Return `½∇²G v`."""
        return v * self._growth

    def copied(self) -> "VarianceLoss":
        """Return a copy with the sums so far."""
        found = copy(self)
        for name in ("_growth", "_linear", "_constant"):
            setattr(found, name, getattr(self, name).copy())
        return found


class LossBound:
    """Both sides of the inequality of a learner, except for the loss of the comparator.

    `loss` is the left side, `Σ κℓ²/β`. `squared_loss` is `Σ ωℓ²`; it is at most `factor`, the
    largest ωβ/κ, times the right side. `noise` is the largest rω, which is 1/(2C) or γ. `tied_loss`
    is `Σ ωℓ²` of pairs with equal features, the same for every u. `least` and `largest` are those
    of the weights ω. `kind` is the algorithm and its covariance.

    >>> from app.ranking.solar import SolarI
    >>> learner, bound = SolarI(1, C=0.5), LossBound(("solar-i", "full"), 1)
    >>> bound.start(learner.weights, np.zeros(0))
    >>> steps = learner.learn(np.array([[1.0]]))
    >>> rows, p, o = np.array([[1.0], [0.0]]), np.array([0]), np.array([1])
    >>> columns = steps.loss, steps.outcome, steps.variance
    >>> pairs = bound.learnt(rows, p, o, *columns, omega=np.ones(1), noise=1.0)
    >>> bound.loss, bound.right_side(np.ones(1), pairs.loss(np.ones(1), hinge=True))
    (0.5, 1.0)
    """

    def __init__(self, kind: tuple[str, str], n: int) -> None:
        self.kind = kind
        diagonal = kind == ("solar-ii", "diagonal")
        self.hinge = diagonal or kind[0] == "solar-i"
        self.starts = list[StartPoint]()
        self.pairs, self.loss = 0, 0.0
        self.squared_loss = self.tied_loss = 0.0
        self.factor = self.noise = self.largest = 0.0
        self.least, self.discount = inf, 1.0
        self._largest_growth = 0.0  # the largest β/r
        self._variances = VarianceLoss(n) if diagonal else None

    def start(self, w: Floats, spread: Floats) -> None:
        """Start from a model, or continue with another one; ValueError if Σ is not definite."""
        self.starts.append(StartPoint(w, spread))
        self.discount = 1.0
        if self._variances is not None:
            self._variances.restart(w, spread)

    def learnt(
        self, documents: Dense, p: Integers, o: Integers, loss: Floats, outcome: Bytes,
        variance: Floats, omega: Floats, noise: float,
    ) -> SteppedPairs:  # fmt: skip
        """Add learnt pairs, in order; return those that stepped. `noise` is 1/(2C) or γ."""
        moved = outcome == STEPPED
        self._count(loss, moved, omega)
        p, o, loss, omega = p[moved], o[moved], loss[moved], omega[moved]
        beta = variance[moved] + noise / omega
        self.loss += self.discount * float((loss * loss / beta).sum())
        largest = float((omega * beta).max(initial=0.0))
        self.factor, self.noise = max(self.factor, largest / self.discount), max(self.noise, noise)
        self._largest_growth = max(self._largest_growth, largest / noise)
        if self._variances is not None:
            for t in range(p.size):
                x = documents[p[t]].astype(np.float64) - documents[o[t]].astype(np.float64)
                self._variances.step(x, float(loss[t]), float(beta[t]), self.discount)
        return SteppedPairs(documents, p, o, self.discount * omega / noise)

    def _count(self, loss: Floats, moved: Bools, omega: Floats) -> None:
        """Add the weighted squared losses, of pairs that moved w and of pairs that could not."""
        self.pairs += int(moved.sum())
        squared = omega * loss * loss
        self.squared_loss += float(squared[moved].sum())
        self.tied_loss += float(squared[~moved].sum())
        felt = omega[loss > 0.0]
        self.least = min(self.least, float(felt.min(initial=inf)))
        self.largest = max(self.largest, float(felt.max(initial=0.0)))

    def forgot(self, kept: float, initial: Floats) -> None:
        """Note that the learner has forgotten; `initial` is the diagonal of its initial Σ."""
        if self._variances is not None:
            kept = self._variances.forget(kept, initial)
        self.discount *= kept

    @property
    def rounding(self) -> float:
        """The share of the bound that rounding errors may have."""
        return max(BOUND_ROUNDING, float(np.finfo(np.float64).eps) * self._largest_growth)

    def right_side(self, u: Floats, comparator_loss: float) -> float:
        """Return the right side, given `SteppedPairs.loss` of all pairs."""
        price = 0.0 if self._variances is None else self._variances.price(u)
        return sum(one.distance(u) for one in self.starts) + comparator_loss + price

    def pull(self, u: Floats) -> Floats:
        """Return half the gradient of the right side without the comparator's loss."""
        found: Floats = sum((one.curvature(u - one.w) for one in self.starts), np.zeros(u.size))
        return found if self._variances is None else found + self._variances.pull(u)

    def curvature(self, v: Floats) -> Floats:
        """Return half the Hessian of the right side without the comparator's loss, times v."""
        found: Floats = sum((one.curvature(v) for one in self.starts), np.zeros(v.size))
        return found if self._variances is None else found + self._variances.curvature(v)

    def copied(self) -> "LossBound":
        """Return a copy with the steps so far."""
        found = copy(self)
        found.starts = list(self.starts)
        found._variances = None if self._variances is None else self._variances.copied()
        return found


def exceeds(loss: float, bound: float, rounding: float = BOUND_ROUNDING) -> bool:
    """Whether a loss exceeds its bound by more than rounding errors."""
    return not loss <= bound * (1.0 + rounding)
