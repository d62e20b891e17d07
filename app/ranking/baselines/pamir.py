"""PAMIR (Grangier & Bengio 2008): passive-aggressive updates on gaps with a capped step (PA-I)."""

from typing import Any

from app.ranking.arrays import Floats, aligned
from app.ranking.kernels import STEPPED, gap, judge
from app.ranking.lanes import fill, kernel, load, store
from app.ranking.solar import GapBatch, LinearLearner, StepColumns, between

#: The best power of ten on MQ2008: NDCG@10 0.509; 0.506 at 1e-4, 0.493 at 1e-2.
PAMIR_C = 1e-3


@kernel
def capped(
    w: Any,
    n: int,
    C: float,
    preferred: Any,
    p: Any,
    other: Any,
    o: Any,
    omega: Any,
    x: Any,
    loss: Any,
    outcome: Any,
) -> None:
    """`λ = min(ωC, ℓ/‖x‖²)`, `w ← w + λx`."""
    for t in range(p.shape[0]):
        margin, squared_norm = gap(w, n, preferred, p[t], other, o[t], x)
        hinge, verdict = judge(margin, squared_norm)
        loss[t], outcome[t] = hinge, verdict
        if verdict == STEPPED:
            step = fill(min(omega[t] * C, hinge / squared_norm))
            for k in range(0, w.shape[0], 4):
                store(w, k, load(w, k) + step * load(x, k))


class Pamir(LinearLearner):
    """PAMIR: the step satisfies the pair, but is at most C times the gap.

    >>> import numpy as np
    >>> learner = Pamir(n=2, C=0.25)
    >>> learner.learn(np.array([[1.0, 0.0], [4.0, 0.0]])).stepped
    1
    >>> learner.weights
    array([0.25, 0.  ])
    """

    def __init__(self, n: int, C: float = PAMIR_C, *, weights: Floats | None = None) -> None:
        super().__init__(n, weights)
        self._C = between(C, "C")

    def _learn_dense(self, batch: GapBatch, columns: StepColumns) -> None:
        capped(self._w, self.n, self._C, *batch, aligned(self.n), *columns[:2])
