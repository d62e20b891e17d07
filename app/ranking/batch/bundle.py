"""Cutting planes: `½‖w‖² + L(w)` for a convex L that need not be smooth (eq. 33; Teo et al. 2010).

Knows nothing of ranking: a loss is asked for points, a point for its value and a subgradient, and
for its slope on the way to another. Every subgradient a at w is a plane `a·v + L(w) - a·w` below L;
the minimum below all planes is a bound, and the next w. From the best point so far the solver goes
only as far as it goes down, as Franc & Sonnenburg (OCAS, 2009) do: without that the planes come
from points that swing far around the minimum.
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
#: The next plane touches L this far from the best point to where the planes' minimum is.
AHEAD = 0.05
#: On the way there the slope is looked at so often, or until it is this share of what it was. (Half
#: is near enough: with a tenth MQ2008 took a third more CPU time at C = 0.01 and at C = 1.)
TURNS, FLAT = 12, 0.5
#: Planes that held nothing up for so many iterations are dropped.
IDLE = 20


class SubgradientPoint(Protocol):
    """A loss at one w."""

    w: Floats

    @property
    def value(self) -> float:
        """L(w)."""

    @property
    def subgradient(self) -> Floats:
        """Some a with L(v) ≥ L(w) + a·(v - w) for all v."""

    def toward(self, other: Self) -> Callable[[float], tuple[Self, float]]:
        """For t: the point at `w + t (other - w)`, and the slope of L there."""


class Loss(Protocol):
    """Something convex and bounded below by 0."""

    @property
    def n(self) -> int:
        """How many weights there are."""

    def at(self, w: Floats) -> SubgradientPoint:
        """The loss around w."""


class Planes:
    """`max_m (a_m·w + b_m)`, what is known of a loss from below."""

    def __init__(self, n: int) -> None:
        self._a, self._b, self._gram = np.empty((0, n)), np.empty(0), np.empty((0, 0))
        self._shares, self._idle = np.empty(0), np.empty(0, np.int64)

    def add(self, point: SubgradientPoint) -> None:
        """The plane that touches the loss at this point."""
        a, held = point.subgradient, self._idle < IDLE
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
        """`argmin ½‖w‖² + max_m (a_m·w + b_m)`, and a lower bound of that minimum, by its dual.

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
    """From `start` (or 0) until the gap from the best value to the lower bound is small enough.

    That is: at most `tolerance` of the value. The bound starts at 0, below which no loss is.

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
    """`½‖w‖² + L(w)`."""
    return 0.5 * float(point.w @ point.w) + point.value


def line_search(
    best: SubgradientPoint, aim: SubgradientPoint
) -> tuple[SubgradientPoint, SubgradientPoint]:
    """The lowest point from `best` toward `aim` or beyond, and one a little `AHEAD` of it."""
    along, step = best.toward(aim), aim.w - best.w
    squared, start = float(step @ step), float(best.w @ step)

    @cache
    def look(t: float) -> tuple[SubgradientPoint, float]:
        point, slope = along(t)
        return point, slope + start + t * squared

    t = root(lambda t: look(t)[1])
    lowest = min((best, look(t)[0]), key=objective)
    return lowest, look(t + AHEAD * (1.0 - t))[0]


def root(slope: Callable[[float], float], turns: int = TURNS) -> float:
    """Where a slope that grows with t ≥ 0 changes its sign, roughly; 0 if it is positive there.

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
    enough = -FLAT * low_slope
    for turn in range(turns):  # the secant where the slope is smooth, halves where it jumps
        t = 0.5 * (low + high) if turn % 2 else secant(low, high, low_slope, high_slope)
        at = slope(t)
        if abs(at) <= enough:
            return t
        if at < 0.0:
            low, low_slope = t, at
        else:
            high, high_slope = t, at
    return secant(low, high, low_slope, high_slope)


def secant(low: float, high: float, low_slope: float, high_slope: float) -> float:
    """Where the line through (low, low_slope < 0) and (high, high_slope ≥ 0) crosses zero."""
    return low - low_slope * (high - low) / (high_slope - low_slope)
