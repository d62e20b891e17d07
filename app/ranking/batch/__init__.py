"""Batch ranking: a model learnt from all judged queries at once, never pair by pair.

    judgements.py   rows, labels and where each query starts
    ordertree.py    sums over the pairs of a query, through a tree over its labels: floors.py
    ranksvm.py      linear RankSVM as an objective: value, gradient, Hessian product
    newton.py       minimises what is smooth (the squared hinge)
    bundle.py       minimises what is not (the hinge): planes, and simplex.py under them
    trainers.py     the three losses behind one interface: fit(parameter)
    path.py         chooses the parameter on held-out queries
    accuracy.py     the share of pairs in order
    warmstart.py    the covariance that an online learner starts with
    domination.py   sparse models by the domination loss

The trainers call BLAS: what they find may differ in the last bits from CPU to CPU. It enters a
model's log as a record and is never computed again, so no replay depends on it.
"""

from collections.abc import Callable
from typing import TypeAlias

from app.ranking.arrays import Floats

#: Told after every iteration: its number, the objective, how far from the end it is (the norm of
#: the gradient, or the gap to the lower bound), and the weights. What it raises ends the training.
Progress: TypeAlias = Callable[[int, float, float, Floats], None]


def silent(iteration: int, objective: float, distance: float, w: Floats) -> None:
    """Progress that nobody watches."""
