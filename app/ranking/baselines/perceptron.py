"""Pairwise PRank: the perceptron on gaps, "Prank (Pairwise)" in Table 2."""

from typing import Any

from app.ranking.arrays import aligned
from app.ranking.kernels import LARGEST_SQUARED_NORM, PASSIVE, REFUSED, STEPPED, gap
from app.ranking.lanes import kernel, load, store
from app.ranking.solar import GapBatch, LinearLearner, StepColumns


@kernel
def perceptron(
    w: Any, n: int, preferred: Any, p: Any, other: Any, o: Any, x: Any, loss: Any, outcome: Any
) -> None:
    """On a mistake, `w·x ≤ 0`: `w ← w + x`. The loss of a mistake is 1."""
    for t in range(p.shape[0]):
        margin, squared_norm = gap(w, n, preferred, p[t], other, o[t], x)
        loss[t], outcome[t] = 0.0, PASSIVE
        if not squared_norm <= LARGEST_SQUARED_NORM:
            outcome[t] = REFUSED
        elif margin <= 0.0:
            loss[t], outcome[t] = 1.0, STEPPED
            for k in range(0, w.shape[0], 4):
                store(w, k, load(w, k) + load(x, k))


class PairwisePerceptron(LinearLearner):
    """The perceptron: adds every gap that it ranks wrongly.

    >>> import numpy as np
    >>> learner = PairwisePerceptron(n=2)
    >>> learner.learn(np.array([[1.0, 2.0], [2.0, 2.0]])).stepped
    1
    >>> learner.weights
    array([1., 2.])
    """

    def _learn_dense(self, batch: GapBatch, columns: StepColumns) -> None:
        rows = (batch.preferred, batch.p, batch.other, batch.o)
        perceptron(self._w, self.n, *rows, aligned(self.n), *columns[:2])
