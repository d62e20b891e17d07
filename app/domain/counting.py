"""What feedback adds to the sums of a model: each query counts once, however its events arrive.

The labels of a query (`impressions.counted_labels`) say how it counts:

- none yet: it does not count
- an empty array: it is abandoned, as users have seen the ranking and clicked nothing
- labels: it is measured, in the order as served and in the order as submitted

An event adds what the labels after it give, minus what the labels before it gave. Squares and
products are summed too, for the standard errors (`domain/statistics.py`), unless the model is from
before there were any. Pure.
"""

from typing import NamedTuple

import numpy as np

from app.domain.model import SUMS, Positions
from app.ranking import measures
from app.ranking.arrays import Floats, frozen

AT = {name: index for index, name in enumerate(SUMS)}
_SERVED = slice(AT["ndcg@1"], AT["map"] + 1)
_BASELINE = slice(AT["baseline_ndcg@1"], AT["baseline_map"] + 1)
_MEASURED = slice(AT["queries"], AT["baseline_map"] + 1)
_EXPLORED = slice(AT["explored_queries"], AT["explored_map"] + 1)
_DUEL = slice(AT["duel_queries"], AT["duel_map"] + 1)
_EXPLORED_SQUARES = slice(AT["square_explored_ndcg@1"], AT["square_explored_map"] + 1)
_SQUARES = slice(AT["square_ndcg@1"], AT["square_lead_map"] + 1)
_WINS = slice(AT["debiased_weight"], AT["baseline_debiased_wins"] + 1)
_PRODUCTS = slice(AT["wins_weight_weight"], AT["wins_model_submitted"] + 1)
_VALUES = _SQUARES.stop - _SQUARES.start
NO_WINS = frozen(np.zeros(3))


class Counted(NamedTuple):
    """How much one query adds to the sums: `measured` are a count of 1 and its measures."""

    abandoned: float
    measured: Floats
    squares: Floats

    def minus(self, other: "Counted") -> "Counted":
        """Return the difference."""
        return Counted(
            self.abandoned - other.abandoned,
            self.measured - other.measured,
            self.squares - other.squares,
        )


NOT_COUNTED = Counted(0.0, frozen(np.zeros(_MEASURED.stop)), frozen(np.zeros(_VALUES)))
ABANDONED = NOT_COUNTED._replace(abandoned=1.0)


def counted(labels: Floats | None, shown: Positions | None, submission: Positions) -> Counted:
    """Measure a query by its labels, in the order shown (None: as they stand) and submitted."""
    if labels is None:
        return NOT_COUNTED
    if not labels.size:
        return ABANDONED
    found = np.empty(_MEASURED.stop)
    found[0] = 1.0
    measures.measure_into(found[_SERVED], labels, order=shown)
    measures.measure_into(found[_BASELINE], labels, order=submission)
    values = np.empty(_VALUES)
    values[:10] = found[1:]
    values[10:] = found[_SERVED] - found[_BASELINE]
    values *= values
    return Counted(0.0, found, values)


class Gains(NamedTuple):
    """What an event adds to the sums; `wins` and `wins_before` are those of `ClickPairs.wins`."""

    query: Counted
    wins: Floats
    wins_before: Floats
    explored: bool
    in_duel: bool = False

    def add_to(self, sums: Floats, with_squares: bool) -> None:
        """Add to the sums in place."""
        query = self.query
        sums[_MEASURED] += query.measured
        if self.explored:
            sums[_EXPLORED] += query.measured[: _SERVED.stop]
        if self.in_duel:
            sums[_DUEL] += query.measured[: _SERVED.stop]
        sums[_WINS] += self.wins - self.wins_before
        if with_squares:
            self._add_squares(sums)

    def _add_squares(self, sums: Floats) -> None:
        query = self.query
        sums[AT["abandoned"]] += query.abandoned
        sums[_SQUARES] += query.squares
        if self.explored:
            sums[_EXPLORED_SQUARES] += query.squares[:5]
        if self.wins is not NO_WINS:
            sums[_PRODUCTS] += _products(self.wins)
        if self.wins_before is not NO_WINS:
            sums[_PRODUCTS] -= _products(self.wins_before)

    @property
    def first_quality(self) -> float:
        """NDCG@10 of a query that counts for the first time; 0 for others, and for duels."""
        if self.in_duel:
            return 0.0
        return float(self.query.measured[AT["ndcg@10"]]) if self.query.measured[0] else 0.0


def _products(wins: Floats) -> Floats:
    """Return the products of the weight and of both won weights."""
    weight, model, submitted = wins.tolist()
    return np.array(
        [weight * weight, model * weight, submitted * weight, model * model,
         submitted * submitted, model * submitted]
    )  # fmt: skip
