"""ListNet (Cao et al. 2007) with a linear model: "ListNet" in Table 3.

With `P_y = softmax(y)` and `P_s = softmax(Xw)` over the documents of a query (the probabilities of
being the top one), the loss is the cross entropy of both, the mean over all Q queries:

    L(w) = (1/Q) Σ_q Σ_{i ∈ q} -P_y(i) log P_s(i)        ∇L(w) = (1/Q) Xᵀ (P_s - P_y)

Adam (Kingma & Ba 2015) takes one step a round, with the gradient of all queries. NDCG@10 on
held-out queries chooses the round and the rate.
"""

from collections.abc import Iterator

import numpy as np

from app.ranking.arrays import Floats, Integers, owned
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.path import batch_quality
from app.ranking.lanes import Array, kernel
from app.ranking.measures import Discount

LISTNET_RATES = (0.01, 0.1)
LISTNET_ROUNDS = 400
#: Adam's decay rates of both means, and the number that keeps its quotient finite.
DECAY, DECAY_SQUARES, TINY = 0.9, 0.999, 1e-8


def train_listnet(
    judged: Judgements, held_out: Judgements, discount: Discount = "standard"
) -> Floats:
    """Return the w of the rate and the round that rank the held-out queries best."""
    loss = ListNetLoss(judged)
    tried = [w for rate in LISTNET_RATES for w in descend(loss, rate, LISTNET_ROUNDS)]
    return max(tried, key=lambda w: batch_quality(held_out, w, "ndcg@10", discount))


class ListNetLoss:
    """The gradient of ListNet's loss on judged queries.

    >>> judged = Judgements(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([0, 2]))
    >>> ListNetLoss(judged).gradient(np.array([0.5])).round(12)
    array([0.])
    """

    def __init__(self, judged: Judgements) -> None:
        self.n, self._X = judged.n, judged.X
        self._starts = owned(judged.starts, np.int64)
        self._target = top_one(judged.labels, self._starts)

    def gradient(self, w: Floats) -> Floats:
        """Return `∇L(w)`."""
        residual = top_one(self._X @ w, self._starts) - self._target
        slope: Floats = self._X.T @ residual / (len(self._starts) - 1)
        return slope


def descend(loss: ListNetLoss, rate: float, rounds: int) -> Iterator[Floats]:
    """Yield w after each step of Adam from 0."""
    w, mean, squares = np.zeros(loss.n), np.zeros(loss.n), np.zeros(loss.n)
    for step in range(1, rounds + 1):
        slope = loss.gradient(w)
        mean = DECAY * mean + (1.0 - DECAY) * slope
        squares = DECAY_SQUARES * squares + (1.0 - DECAY_SQUARES) * slope * slope
        spread = np.sqrt(squares / (1.0 - DECAY_SQUARES**step))
        w = w - rate * mean / (1.0 - DECAY**step) / (spread + TINY)
        yield w


def top_one(scores: Floats, starts: Integers) -> Floats:
    """Return `exp(s_i) / Σ_j exp(s_j)` over the documents of each query.

    >>> top_one(np.array([5.0, 5.0, 1e9]), np.array([0, 2, 3]))
    array([0.5, 0.5, 1. ])
    """
    found = np.empty(len(scores))
    softmax_each(owned(scores, np.float64), starts, found)
    return found


@kernel
def softmax_each(scores: Array, starts: Array, found: Array) -> None:
    """Write the softmax of each query; exponents are relative to the largest score."""
    for q in range(starts.shape[0] - 1):
        top, total = -np.inf, 0.0
        for d in range(starts[q], starts[q + 1]):
            top = max(top, scores[d])
        for d in range(starts[q], starts[q + 1]):
            found[d] = np.exp(scores[d] - top)
            total += found[d]
        for d in range(starts[q], starts[q + 1]):
            found[d] /= total
