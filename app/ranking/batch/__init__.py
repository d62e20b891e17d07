"""Batch training: a model learns from all judged queries at once, without a list of pairs.

    judgements.py   rows, labels and the starts of the queries
    ordertree.py    sums over the pairs of a query, with a tree over its labels; loops in levels.py
                    direct_counting.py has the same sums in O(lk): PRSVM+, for comparisons
    ranksvm.py      linear RankSVM as an objective: value, gradient, Hessian product; for sparse
                    rows preconditioner.py adds about the diagonal of the Hessian
    newton.py       minimises smooth objectives (the squared hinge)
    bundle.py       minimises non-smooth objectives (the hinge) by cutting planes and simplex.py
    trainers.py     the three losses behind one interface: fit(parameter)
    partial_sums.py the squared hinge as a sum over parts, for data that is not in one place
    path.py         chooses the parameter on held-out queries
    accuracy.py     the share of correctly ordered pairs, and NDCG@10 of each query
    warmstart.py    the covariance of an online learner after a batch
    domination.py   sparse models by the domination loss
    listnet.py      ListNet, for comparisons only
    rankboost.py    RankBoost, for comparisons only
    adarank.py      AdaRank-NDCG, for comparisons only
    boosting.py     the weight of a weak ranker

The trainers call BLAS, so their last bits may differ between CPUs. The result enters a model's log
as a record and is not recomputed, so replays do not depend on it.
"""

from collections.abc import Callable
from typing import TypeAlias

from app.ranking.arrays import Floats

#: Called after every iteration with its number, the objective, the distance from the optimum (the
#: norm of the gradient, or the gap to the lower bound) and the weights. An exception ends training.
Progress: TypeAlias = Callable[[int, float, float, Floats], None]


def silent(iteration: int, objective: float, distance: float, w: Floats) -> None:
    """Ignore the progress."""
