"""Clicks with gains: a bought document over a clicked one, and how far down a list was examined.

A document's grade is the largest gain posted so far, 0 without a click. A pair prefers the higher
grade, with the weight `ω·min(g_c - g_u, 10)`; ω and the pairs that a reading considers are those of
clicks without gains (`clicks.py`, `debiased.py`, `fair.py`), which all gains of 1 give to the bit.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from app.ranking.arrays import Bools, Floats, Integers, owned
from app.ranking.debiased import checked_odds, pair_weights
from app.ranking.grades import ListFeedback
from app.ranking.limits import LEAST
from app.ranking.pairs import Pairs

#: The largest difference of grades that counts.
MOST_DIFFERENCE = 10.0


class PairReading(NamedTuple):
    """Which pairs of a list are considered, and their ω.

    With `odds` they are debiased clicks, with `swaps` (rounds of neighbours) fair pairs, else those
    of a classical strategy. `weight` is κ of debiased clicks, and ω of other pairs.
    """

    strategy: str
    weight: float = 1.0
    odds: Floats | None = None
    swaps: Integers | None = None

    def omega(self, preferred: Integers, other: Integers) -> Floats:
        """Return ω of pairs of positions."""
        if self.odds is None or self.swaps is not None:
            return np.full(len(preferred), self.weight)
        odds = owned(checked_odds(self.odds), np.float64)
        both = owned(preferred, np.int64), owned(other, np.int64)
        found: Floats = pair_weights(*both, odds, self.weight)
        return found

    def positions(self, found: ListFeedback) -> tuple[Integers, Integers]:
        """Return the pairs (preferred, other): memory and time by clicked times shown documents."""
        if not found.clicks.size:
            return _NONE, _NONE
        if self.swaps is not None:
            return _neighbours(found, self.swaps)
        clicked = np.flatnonzero(found.grades)
        places = np.arange(len(found.grades))
        at, other = np.nonzero(self.considered(found, clicked[:, None], places[None, :]))
        return clicked[at], other

    def considered(self, found: ListFeedback, preferred: Integers, other: Integers) -> Bools:
        """Return which pairs of positions are considered; the arrays are broadcast."""
        grades, strategy = found.grades, self.strategy
        higher: Bools = grades[preferred] > grades[other]
        if self.swaps is not None or not found.clicks.size:
            return higher
        last = int(found.clicks.max())
        if self.odds is not None:
            places = np.arange(len(grades))
            here = (places < max(found.examined, last + 2)) & (self.odds[:-1] >= 0.0)
            return higher & here[preferred] & here[other]
        if strategy == "click-skip-above":
            chosen: Bools = other < preferred
        elif strategy == "last-click-skip-above":
            chosen = (other < preferred) & np.isin(preferred, list(found.lasts))
        elif strategy == "click-skip-previous":
            chosen = other == preferred - 1
        else:
            depth = max(found.examined, last + 1) if found.examined else len(grades)
            chosen = (other == preferred + 1) & (other < depth)
        return higher & chosen


_NONE: Integers = np.zeros(0, np.int64)


def _neighbours(found: ListFeedback, swaps: Integers) -> tuple[Integers, Integers]:
    """Return of each pair of neighbours the one with the higher grade, and the other one."""
    upper, grades = swaps[:, 0], found.grades
    upper = upper[grades[upper] != grades[upper + 1]]
    preferred = np.where(grades[upper] > grades[upper + 1], upper, upper + 1)
    return preferred, 2 * upper + 1 - preferred


def pairs(found: ListFeedback, reading: PairReading) -> Pairs:
    """Return the pairs of what has come of a list.

    >>> bought = ListFeedback(np.array([0, 2]), np.array([1.0, 0.0, 4.0]))
    >>> some = pairs(bought, PairReading("click-skip-above"))
    >>> some.listed(), some.weights
    ([(2, 0), (2, 1)], array([3., 4.]))
    """
    preferred, other = reading.positions(found)
    steps = _steps(found.grades, preferred, other)
    return Pairs(preferred, other, reading.omega(preferred, other) * steps)


def new_pairs(found: ListFeedback, earlier: Iterable[ListFeedback], reading: PairReading) -> Pairs:
    """Return the pairs whose weight exceeds that of all earlier states of a list, by the increase.

    `before` of a pair is the largest weight in an earlier state, 0 for a new pair. An increase that
    is too small for a weight is left out.

    >>> clicked = ListFeedback(np.array([0]), np.array([1.0, 0.0, 0.0]))
    >>> bought = ListFeedback(np.array([0, 2]), np.array([1.0, 0.0, 4.0]))
    >>> some = new_pairs(bought, [clicked], PairReading("click-skip-above"))
    >>> some.listed(), some.weights
    ([(2, 0), (2, 1)], array([3., 4.]))
    """
    preferred, other = reading.positions(found)
    steps = _steps(found.grades, preferred, other)
    learnt = np.zeros(len(steps))
    for one in earlier:
        before = _steps(one.grades, preferred, other)
        before[~reading.considered(one, preferred, other)] = 0.0
        np.maximum(learnt, before, out=learnt)
    more = steps > learnt
    preferred, other = preferred[more], other[more]
    omega = reading.omega(preferred, other)
    before = omega * learnt[more]
    weights = omega * steps[more] - before
    return Pairs(preferred, other, weights, before).some(weights >= LEAST)


def _steps(grades: Floats, preferred: Integers, other: Integers) -> Floats:
    found: Floats = np.minimum(grades[preferred] - grades[other], MOST_DIFFERENCE)
    return found
