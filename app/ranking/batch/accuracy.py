"""Pairwise accuracy: the share of pairs in which the more relevant document scores higher."""

import numpy as np

from app.ranking.arrays import Floats, Integers
from app.ranking.batch.ordertree import OrderTree

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
