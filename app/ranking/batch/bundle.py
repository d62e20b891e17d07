"""Cutting planes: `½‖w‖² + L(w)` for a convex L that need not be smooth (eq. 33; Teo et al. 2010).

The solver does not depend on ranking. A loss gives points; a point gives its value, a subgradient,
and its slope along a line to another point. Each subgradient a at w gives a plane
`a·v + L(w) - a·w` below L. The minimum over all planes is a lower bound and gives the next w. A
line search from the best point, as in OCAS (Franc & Sonnenburg 2009), finds the next best point:
without it the planes touch L at points that oscillate far around the minimum.
"""

from collections.abc import Callable
from functools import cache
from typing import Protocol, Self

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.batch import Progress, silent
from app.ranking.batch.newton import Minimum
from app.ranking.batch.simplex import highest

#: Stop once the best value is within this share of the lower bound.
GAP_TOLERANCE = 1e-3
#: The next plane touches L at this share of the way from the best point to the planes' minimum.
AHEAD = 0.05
#: The line search ends after this number of slopes, or at this share of the first slope. (With a
#: tenth instead of half, MQ2008 took a third more CPU time at C = 0.01 and at C = 1.)
MOST_SLOPES, SLOPE_TOLERANCE = 12, 0.5
#: Planes that were inactive for this number of iterations are dropped.
IDLE_ITERATIONS = 20


class SubgradientPoint(Protocol):
    """A loss at one w."""

    w: Floats

    @property
    def value(self) -> float:
        """L(w)."""

    @property
    def subgradient(self) -> Floats:
        """An a with L(v) ≥ L(w) + a·(v - w) for all v."""

    def toward(self, other: Self) -> Callable[[float], tuple[Self, float]]:
        """Return a function of t: the point at `w + t (other - w)`, and the slope of L there."""


class Loss(Protocol):
    """A convex function, bounded below by 0."""

    @property
    def n(self) -> int:
        """The number of weights."""

    def at(self, w: Floats) -> SubgradientPoint:
        """The loss around w."""


class Planes:
    """Planes `max_m (a_m·w + b_m)` below a loss."""

    def __init__(self, n: int) -> None:
        self._a, self._b, self._gram = np.empty((0, n)), np.empty(0), np.empty((0, 0))
        self._shares, self._idle = np.empty(0), np.empty(0, np.int64)

    def add(self, point: SubgradientPoint) -> None:
        """Add the plane that touches the loss at this point."""
        a, held = point.subgradient, self._idle < IDLE_ITERATIONS
        kept, shares = self._a[held], self._shares[held]
        row = kept @ a
        gram = np.empty((len(kept) + 1, len(kept) + 1))
        gram[:-1, :-1], gram[-1, :-1], gram[:-1, -1] = self._gram[np.ix_(held, held)], row, row
        gram[-1, -1] = a @ a
        self._gram, self._a = gram, np.concatenate([kept, a[None]])
        self._b = np.append(self._b[held], point.value - float(a @ point.w))
        self._shares = np.append(shares, 0.0 if shares.any() else 1.0)
        self._idle = np.append(self._idle[held], 0)

    def minimise(self, precision: float) -> tuple[Floats, float]:
        """Return `argmin ½‖w‖² + max_m (a_m·w + b_m)` and a lower bound of the minimum.

        The dual is `max b·α - ½‖Σ α_m a_m‖²` with α ≥ 0, Σα = 1, and w = -Σ α_m a_m.
        """
        self._shares = highest(self._gram, self._b, self._shares / self._shares.sum(), precision)
        self._idle = np.where(self._shares > 0.0, 0, self._idle + 1)
        w: Floats = -(self._shares @ self._a)
        return w, float(self._b @ self._shares) - 0.5 * float(w @ w)


def minimise(
    loss: Loss,
    start: Floats | None = None,
    *,
    tolerance: float = GAP_TOLERANCE,
    most: int = 5000,
    progress: Progress = silent,
) -> Minimum:
    """Minimise from `start` (or 0) until the gap to the lower bound is `tolerance` of the value.

    The bound starts at 0, the lower bound of every loss.

    >>> class Steep:  # L(w) = max(0, 1 - 2w)
    ...     n = 1
    ...     def at(self, w):
    ...         point = Steep()
    ...         point.w, point.value = w, max(0.0, 1.0 - 2.0 * w[0])
    ...         point.subgradient = np.array([-2.0 if w[0] < 0.5 else 0.0])
    ...         return point
    ...     def toward(self, other):
    ...         def at(t):
    ...             point = self.at(self.w + t * (other.w - self.w))
    ...             return point, point.subgradient @ (other.w - self.w)
    ...         return at
    >>> minimise(Steep(), tolerance=1e-9).w.round(9)
    array([0.5])
    """
    best = loss.at(np.zeros(loss.n) if start is None else start)
    planes = Planes(loss.n)
    planes.add(best)
    value, bound, iteration = objective(best), 0.0, 0
    gap = value
    progress(0, value, gap, best.w)
    while gap > tolerance * value and iteration < most:
        iteration += 1
        w, below = planes.minimise(0.1 * gap)
        best, ahead = line_search(best, loss.at(w))
        planes.add(ahead)
        value, bound = objective(best), max(bound, below)
        gap = value - bound
        progress(iteration, value, gap, best.w)
    return Minimum(best.w, value, gap, iteration, 0, gap <= tolerance * value)


def objective(point: SubgradientPoint) -> float:
    """Return `½‖w‖² + L(w)`."""
    return 0.5 * float(point.w @ point.w) + point.value


def line_search(
    best: SubgradientPoint, aim: SubgradientPoint
) -> tuple[SubgradientPoint, SubgradientPoint]:
    """Return the lowest point on the line from `best` through `aim`, and one `AHEAD` of it."""
    along, step = best.toward(aim), aim.w - best.w
    squared, start = float(step @ step), float(best.w @ step)

    @cache
    def evaluated(t: float) -> tuple[SubgradientPoint, float]:
        point, slope = along(t)
        return point, slope + start + t * squared

    t = root(lambda t: evaluated(t)[1])
    lowest = min((best, evaluated(t)[0]), key=objective)
    return lowest, evaluated(t + AHEAD * (1.0 - t))[0]


def root(slope: Callable[[float], float], most: int = MOST_SLOPES) -> float:
    """Return an approximate root of a slope that grows with t ≥ 0; 0 if it is positive at 0.

    >>> round(root(lambda t: t * t - 2.0), 1)
    1.3
    """
    low, low_slope, high = 0.0, slope(0.0), 1.0
    if low_slope >= 0.0:
        return 0.0
    high_slope = slope(high)
    while high_slope < 0.0 and high < 1e6:
        low, low_slope, high = high, high_slope, 2.0 * high
        high_slope = slope(high)
    if high_slope < 0.0:
        return high
    enough = -SLOPE_TOLERANCE * low_slope
    for count in range(most):  # secant steps for smooth slopes, bisection for jumps
        t = 0.5 * (low + high) if count % 2 else secant(low, high, low_slope, high_slope)
        at = slope(t)
        if abs(at) <= enough:
            return t
        if at < 0.0:
            low, low_slope = t, at
        else:
            high, high_slope = t, at
    return secant(low, high, low_slope, high_slope)


def secant(low: float, high: float, low_slope: float, high_slope: float) -> float:
    """Return the zero of the line through (low, low_slope < 0) and (high, high_slope ≥ 0)."""
    return low - low_slope * (high - low) / (high_slope - low_slope)
