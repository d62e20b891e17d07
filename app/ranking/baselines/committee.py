"""The Committee Perceptron (Elsas, Carvalho & Carbonell 2008): "Com-P" in Tables 2 and 3.

A hypothesis of the perceptron is good if it survives many pairs in a row. When a mistake ends its
run, it replaces the committee member with the shortest run, if its run is longer. The members vote
with the lengths of their runs as weights. A vote of linear hypotheses equals their weighted sum, so
scoring takes one product.
"""

from typing import Any

import numpy as np

from app.ranking.arrays import Floats, aligned
from app.ranking.kernels import LARGEST_SQUARED_NORM, PASSIVE, REFUSED, STEPPED, gap
from app.ranking.lanes import kernel
from app.ranking.solar import GapBatch, LinearLearner, StepColumns

SEATS = 20


@kernel
def survive(
    v: Any,
    n: int,
    members: Any,
    runs: Any,
    preferred: Any,
    p: Any,
    other: Any,
    o: Any,
    x: Any,
    loss: Any,
    outcome: Any,
) -> None:
    """Update hypothesis v; `runs[-1]` is its run, `runs[:-1]` are the runs of the members."""
    for t in range(p.shape[0]):
        margin, squared_norm = gap(v, n, preferred, p[t], other, o[t], x)
        loss[t], outcome[t] = 0.0, PASSIVE
        if not squared_norm <= LARGEST_SQUARED_NORM:
            outcome[t] = REFUSED
        elif margin > 0.0:
            runs[-1] += 1
        else:
            loss[t], outcome[t] = 1.0, STEPPED
            seat = np.argmin(runs[:-1])
            if runs[-1] > runs[seat]:
                members[seat], runs[seat] = v, runs[-1]
            runs[-1] = 0
            for k in range(n):
                v[k] += x[k]


class CommitteePerceptron(LinearLearner):
    """A weighted vote of the hypotheses that survived longest.

    >>> learner = CommitteePerceptron(n=1)
    >>> learner.learn(np.array([[1.0], [2.0], [-4.0], [-1.0]])).stepped
    2
    >>> learner.weights  # w = 1 survived one pair, then w = -3 survived one
    array([-2.])
    """

    def __init__(self, n: int, seats: int = SEATS) -> None:
        super().__init__(n)
        self._v, self._x = aligned(n), aligned(n)
        self._members = np.zeros((seats, len(self._v)))
        self._runs = np.zeros(seats + 1, dtype=np.int64)

    def _learn_dense(self, batch: GapBatch, columns: StepColumns) -> None:
        rows = (batch.preferred, batch.p, batch.other, batch.o)
        survive(self._v, self.n, self._members, self._runs, *rows, self._x, *columns[:2])
        self._w[:] = self._vote()

    def _vote(self) -> Floats:
        vote: Floats = (self._members * self._runs[:-1, None]).sum(axis=0)
        vote += self._v * self._runs[-1]
        return vote
