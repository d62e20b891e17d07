"""Means and standard errors from the sums of a model. Pure.

A mean over no query is None, and so is a standard error of fewer than two queries, or of a model
from before there were standard errors.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any

#: Relative error of sums.
ROUNDING = 1e-9
#: Orders with debiased wins; the lead is that of the model order over the submitted order.
ORDERS = ("model", "submitted", "lead")
#: Cut-off of NDCG → name of the sum.
CUTOFFS = {"1": "ndcg@1", "5": "ndcg@5", "10": "ndcg@10", "all": "ndcg"}


def mean(total: float, count: float) -> float | None:
    """Return the mean of `count` values.

    >>> mean(3.0, 4.0), mean(0.0, 0.0)
    (0.75, None)
    """
    return total / count if count > 0.0 else None


def standard_error(total: float, squares: float, count: float) -> float | None:
    """Return the standard error of the mean of `count` values: `√(s²/n)`.

    None for fewer than two values, and if there is no such list of values: between two versions,
    later clicks change the sums of queries that count before.

    >>> standard_error(3.0, 5.0, 2.0)
    0.5
    """
    spread = squares - total * total / count if count >= 2.0 else -1.0
    if spread < -ROUNDING * squares:
        return None
    return sqrt(max(0.0, spread) / (count - 1.0) / count)


def share_error(won: float, weight: float, squares: tuple[float, float, float]) -> float | None:
    """Return the standard error of the share `r = Σa/Σb` of weighted pairs, by queries.

    `squares` are Σa², Σab and Σb² over queries: `√Σ(a - r·b)² / Σb`. None if fewer than two
    queries have a weight.

    >>> round(share_error(1.0, 2.0, (1.0, 1.0, 2.0)), 6)  # two of weight 1; one won, one did not
    0.353553
    """
    share, (of_won, of_both, of_weight) = won / weight if weight > 0.0 else 0.0, squares
    if weight <= 0.0 or of_weight >= (1.0 - ROUNDING) * weight * weight:  # only one has a weight
        return None
    return sqrt(max(0.0, of_won - 2.0 * share * of_both + share * share * of_weight)) / weight


class Statistics:
    """The measures of a model, or of the queries between two of its versions.

    `sums` are by name (`ModelState.measures`). Without `with_errors` there are no standard errors.
    """

    def __init__(self, sums: Mapping[str, float], with_errors: bool) -> None:
        self._sums, self._with_errors = sums, with_errors

    @property
    def abandoned(self) -> int | None:
        """Number of abandoned rankings; None if they count as queries with 0."""
        return int(self._sums["abandoned"]) if self._with_errors else None

    def summary(self) -> dict[str, Any]:
        """All measures as plain fields; None where there is no number."""
        return {
            "queries": int(self.count("online")),
            "abandoned_lists": self.abandoned,
            **self.quality("online"),
            "baseline": self.quality("baseline"),
            "lead": self.quality("lead"),
            "explored": {"queries": int(self.count("explored")), **self.quality("explored")},
            "explored_share": mean(self.count("explored"), self.count("online")),
            "debiased_wins": {order: self.wins(order) for order in ORDERS},
            "debiased_wins_stderr": {order: self.wins_error(order) for order in ORDERS},
        }

    def total(self, side: str, measure: str) -> float:
        """Sum of a measure; `side` is online, baseline, lead or explored."""
        if side == "lead":
            return self.total("online", measure) - self.total("baseline", measure)
        return self._sums[measure if side == "online" else f"{side}_{measure}"]

    def squares(self, side: str, measure: str) -> float:
        """Sum of the squares of a measure."""
        return self._sums[f"square_{measure}" if side == "online" else f"square_{side}_{measure}"]

    def count(self, side: str) -> float:
        """Number of measured queries."""
        return self._sums["explored_queries" if side == "explored" else "queries"]

    def mean(self, side: str, measure: str) -> float | None:
        """Mean of a measure; None if it is beyond ±1, as later clicks may have changed the sum."""
        found = mean(self.total(side, measure), self.count(side))
        return found if found is None or abs(found) <= 1.0 + ROUNDING else None

    def error(self, side: str, measure: str) -> float | None:
        """Standard error of the mean of a measure."""
        if not self._with_errors:
            return None
        total, squares = self.total(side, measure), self.squares(side, measure)
        return standard_error(total, squares, self.count(side))

    def quality(self, side: str) -> dict[str, Any]:
        """Means and standard errors of NDCG by cut-off, and of MAP."""
        return {
            "ndcg": {k: self.mean(side, name) for k, name in CUTOFFS.items()},
            "ndcg_stderr": {k: self.error(side, name) for k, name in CUTOFFS.items()},
            "map": self.mean(side, "map"),
            "map_stderr": self.error(side, "map"),
        }

    def wins(self, order: str) -> float | None:
        """Debiased wins of an order: model or submitted, or the lead of the model."""
        return mean(self._won(order), self._sums["debiased_weight"])

    def wins_error(self, order: str) -> float | None:
        """Standard error of the debiased wins of an order, by queries."""
        if not self._with_errors:
            return None
        return share_error(self._won(order), self._sums["debiased_weight"], self._products(order))

    def _won(self, order: str) -> float:
        model, submitted = self._sums["debiased_wins"], self._sums["baseline_debiased_wins"]
        return {"model": model, "submitted": submitted, "lead": model - submitted}[order]

    def _products(self, order: str) -> tuple[float, float, float]:
        """Σa², Σab and Σb² over queries, of the won weight a and the whole weight b."""
        sums, whole = self._sums, self._sums["wins_weight_weight"]
        if order != "lead":
            return sums[f"wins_{order}_{order}"], sums[f"wins_{order}_weight"], whole
        both = sums["wins_model_model"] + sums["wins_submitted_submitted"]
        squares = both - 2.0 * sums["wins_model_submitted"]
        return squares, sums["wins_model_weight"] - sums["wins_submitted_weight"], whole
