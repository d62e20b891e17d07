"""Naive references for ListNet, RankBoost and AdaRank; never imported by `app`."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from tests.oracles import Floats, ndcg, ranking
from tests.oracles_batch import all_pairs


def ndcg_each(scores: Floats, labels: Floats, starts: Any, discount: str = "standard") -> Floats:
    """NDCG@10 of each query that has documents."""
    found = []
    for a, b in pairwise(starts):
        served = [float(labels[a + d]) for d in ranking(scores[a:b].tolist())]
        found += [ndcg(served, 10, discount)] if served else []
    return np.array(found)


def softmax(scores: Floats) -> Floats:
    e = np.exp(scores - scores.max())
    return np.asarray(e / e.sum())


def cross_entropy(w: Floats, X: Floats, labels: Floats, starts: Any) -> float:
    """ListNet's loss, query by query."""
    losses = [
        -float(softmax(labels[a:b]) @ np.log(softmax(X[a:b] @ w))) if a < b else 0.0
        for a, b in pairwise(starts)
    ]
    return math.fsum(losses) / len(losses)


def central_gradient(w: Floats, X: Floats, labels: Floats, starts: Any, h: float = 1e-5) -> Floats:
    """The gradient of the cross entropy by central differences."""
    steps = h * np.eye(len(w))
    ahead = [cross_entropy(w + step, X, labels, starts) for step in steps]
    behind = [cross_entropy(w - step, X, labels, starts) for step in steps]
    return np.asarray((np.array(ahead) - np.array(behind)) / (2.0 * h))


class NaivePairWeights:
    """RankBoost's distribution over an explicit list of pairs."""

    def __init__(self, labels: Floats, starts: Any) -> None:
        self.pairs = all_pairs(labels, starts)

    def loss(self, scores: Floats) -> float:
        return math.fsum(math.exp(scores[j] - scores[i]) for i, j in self.pairs)

    def edge(self, scores: Floats, h: Floats) -> float:
        """r of a weak ranker with these values."""
        sums = [math.exp(scores[j] - scores[i]) * (h[i] - h[j]) for i, j in self.pairs]
        return math.fsum(sums) / self.loss(scores)


def stumps(X: Floats) -> Iterator[Floats]:
    """The values of every stump: 31 quantiles of each feature."""
    for column in X.T:
        for k in range(1, 32):
            yield (column > np.quantile(column, k / 32)).astype(float)
