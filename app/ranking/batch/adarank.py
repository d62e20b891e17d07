"""AdaRank with NDCG@10 (Xu & Li 2007): "AdaRank-NDCG" in Table 3.

The weak rankers are single features. With E(f, q) the NDCG@10 of query q ranked by feature f, and
a distribution P over the queries (uniform at first), a round takes the feature with the largest
`r = Σ_q P(q) E(f, q)` and adds to its weight

    α = ½ ln(Σ P (1 + E) / Σ P (1 - E)) = ½ ln((1 + r) / (1 - r))

Then `P(q) ∝ exp(-NDCG@10 of the whole model on q)`. A feature taken five times in a row leaves.
NDCG@10 on held-out queries chooses the round.
"""

from collections.abc import Iterator

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.batch.accuracy import ndcg_each
from app.ranking.batch.boosting import LARGEST_EDGE, vote_weight
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.path import batch_quality
from app.ranking.measures import Discount

ADARANK_ROUNDS = 300
#: A feature leaves after it was taken this often in a row.
MOST_IN_A_ROW = 5


def train_adarank(
    judged: Judgements, held_out: Judgements, discount: Discount = "standard"
) -> Floats:
    """Return the w of the round that ranks the held-out queries best; 0 if no feature helps."""
    tried = list(add_features(judged, ADARANK_ROUNDS, discount)) or [np.zeros(judged.n)]
    return max(tried, key=lambda w: batch_quality(held_out, w, "ndcg@10", discount))


def add_features(
    judged: Judgements, rounds: int, discount: Discount = "standard"
) -> Iterator[Floats]:
    """Yield w after each round; end early without a feature, or with one that is always right."""

    def ndcg(scores: Floats) -> Floats:
        return ndcg_each(scores, judged.labels, judged.starts, discount)

    alone = np.array([ndcg(column) for column in judged.X.T])
    left = np.ones(judged.n, np.bool_)
    P = query_weights(np.zeros(alone.shape[1]))
    w, last, in_a_row = np.zeros(judged.n), -1, 0
    for _ in range(rounds):
        edges = np.where(left, alone @ P, 0.0)
        feature = int(edges.argmax())
        if edges[feature] <= 0.0:
            return
        w = w.copy()
        w[feature] += vote_weight(float(edges[feature]))
        yield w
        if edges[feature] >= LARGEST_EDGE:
            return
        in_a_row, last = (in_a_row + 1 if feature == last else 1), feature
        left[feature] = in_a_row < MOST_IN_A_ROW
        P = query_weights(ndcg(judged.X @ w))


def query_weights(ndcg: Floats) -> Floats:
    """Return P: `exp(-NDCG@10)` of each query, divided by the sum.

    >>> query_weights(np.array([1.0, 1.0, 1.0, 1.0]))
    array([0.25, 0.25, 0.25, 0.25])
    """
    weights = np.exp(-ndcg)
    share: Floats = weights / weights.sum()
    return share
