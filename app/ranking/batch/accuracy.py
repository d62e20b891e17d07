"""The quality of scores on judged queries: pairwise accuracy, and NDCG@10 of each query."""

import numpy as np

from app.ranking import measures, serving
from app.ranking.arrays import Floats, Integers
from app.ranking.batch.ordertree import OrderTree
from app.ranking.measures import Discount

#: Two different float64 differ by at least this, so `s_i - s_j < TIE` is `s_i ≤ s_j`, exactly.
TIE = float(np.nextafter(0.0, 1.0))


def pairwise_accuracy(scores: Floats, labels: Floats, starts: Integers) -> float:
    """Return `|{(i, j) ∈ P: s_i > s_j}| / |P|` in O(l log l); ties are wrong; 0 without pairs.

    >>> pairwise_accuracy(np.array([3.0, 1.0, 1.0]), np.array([2.0, 1.0, 0.0]), np.array([0, 3]))
    0.6666666666666666
    """
    tree = OrderTree.of(labels, starts)
    wrong, _ = tree.at(scores, TIE).counts()
    return (tree.pairs - float(wrong.sum())) / tree.pairs if tree.pairs else 0.0


def ndcg_each(
    scores: Floats, labels: Floats, starts: Integers, discount: Discount = "standard"
) -> Floats:
    """Return NDCG@10 of each query that has documents; ties keep the order of the documents.

    >>> scores, labels = np.array([2.0, 1.0, 0.0]), np.array([0.0, 1.0, 2.0])
    >>> ndcg_each(scores, labels, np.array([0, 2, 3])).round(4)
    array([0.6309, 1.    ])
    """
    starts = np.unique(starts)  # without empty queries
    query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((-serving.finite(scores), query))
    found = measures.measure_queries(labels, starts, order, discount)
    each: Floats = found[:, measures.MEASURE_NAMES.index("ndcg@10")]
    return each
