"""RankBoost (Freund et al. 2003) with stumps: "RankBoost" in Table 3.

The weak rankers are `h(x) = [x_f > θ]`, with θ at 31 quantiles of each feature. The pairs (i, j) of
a query with `y_i > y_j` have weights `D(i, j) ∝ exp(s_j - s_i)`, which sum to 1 over all pairs. A
round adds `α h` to the scores s, for the h with the largest |r|:

    r = Σ D(i, j) (h(x_i) - h(x_j)) = Σ_d π_d h(x_d)        α = ½ ln((1 + r) / (1 - r))
    π_d = Σ_{j: y_d > y_j} D(d, j) - Σ_{i: y_i > y_d} D(i, d)

The exponential loss `Σ exp(s_j - s_i)` falls at least by the factor `√(1 - r²)`. Weights of pairs
are products of `exp(-s_i)` and `exp(s_j)`, so π takes one pass over the documents, sorted by
label, and no list of pairs. NDCG@10 on held-out queries chooses the round.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.ranking.arrays import Floats
from app.ranking.batch.accuracy import ndcg_each
from app.ranking.batch.boosting import LARGEST_EDGE, vote_weight
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.ordertree import OrderTree
from app.ranking.lanes import Array, kernel
from app.ranking.measures import Discount
from app.ranking.solar import Rows

RANKBOOST_ROUNDS = 300
#: Thresholds for each feature.
THRESHOLDS = 31
#: No stump is better than chance below this edge, which is the rounding of a sum.
LEAST_EDGE = 1e-12


class Stump(NamedTuple):
    """A weak ranker `[x_f > θ]` and its weight α."""

    feature: int
    threshold: float
    alpha: float

    def votes(self, X: Floats) -> Floats:
        """Return `α h(x)` of each row."""
        votes: Floats = np.where(X[:, self.feature] > self.threshold, self.alpha, 0.0)
        return votes


@dataclass(frozen=True, slots=True)
class StumpRanker:
    """The scores `Σ_t α_t h_t(x)`.

    >>> StumpRanker((Stump(0, 1.0, 0.5), Stump(0, 2.0, 0.25))).score([[1.0], [2.0], [3.0]])
    array([0.  , 0.5 , 0.75])
    """

    stumps: tuple[Stump, ...]

    def score(self, documents: Rows) -> Floats:
        """Score each document, in float64: thresholds lie between float32 values."""
        X = np.asarray(documents, np.float64)
        scores = np.zeros(len(X))
        for stump in self.stumps:
            scores += stump.votes(X)
        return scores


def train_rankboost(
    judged: Judgements, held_out: Judgements, discount: Discount = "standard"
) -> StumpRanker:
    """Return the stumps up to the round that ranks the held-out queries best."""
    stumps = tuple(boost(judged, RANKBOOST_ROUNDS))
    scores, best = np.zeros(len(held_out.labels)), (0.0, 0)
    for count, stump in enumerate(stumps, start=1):
        scores += stump.votes(held_out.X)
        each = ndcg_each(scores, held_out.labels, held_out.starts, discount)
        best = max(best, (float(each.mean()), -count))
    return StumpRanker(stumps[: -best[1]])


def boost(judged: Judgements, rounds: int) -> Iterator[Stump]:
    """Yield the stump of each round; end early if none helps, or if one orders all pairs."""
    judged = judged.with_pairs()
    tree = OrderTree.of(judged.labels, judged.starts)
    X = judged.X[tree.by_label]
    thresholds = quantiles(X)
    bins = binned(X, thresholds)
    scores, pulls, edges = np.zeros(len(X)), np.empty(len(X)), np.empty(thresholds.shape)
    for _ in range(rounds if len(X) else 0):
        pair_pulls(scores, tree.label_starts, tree.first, pulls)
        stump_edges(bins, pulls, edges)
        feature, at = np.unravel_index(np.abs(edges).argmax(), edges.shape)
        edge = float(edges[feature, at])
        if abs(edge) < LEAST_EDGE:
            return
        stump = Stump(int(feature), float(thresholds[feature, at]), vote_weight(edge))
        scores += stump.votes(X)
        yield stump
        if abs(edge) >= LARGEST_EDGE:
            return


def quantiles(X: Floats) -> Floats:
    """Return the thresholds of each feature, ascending; equal ones are +inf at the end."""
    levels = np.arange(1, THRESHOLDS + 1) / (THRESHOLDS + 1)
    found = np.full((X.shape[1], THRESHOLDS), np.inf)
    for row, column in zip(found, X.T, strict=True):
        if len(column):
            different = np.unique(np.quantile(column, levels))
            row[: len(different)] = different
    return found


def binned(X: Floats, thresholds: Floats) -> NDArray[np.uint8]:
    """Return for each value the number of thresholds below it."""
    columns = zip(thresholds, X.T, strict=True)
    counts = [np.searchsorted(row, column, side="left") for row, column in columns]
    return np.array(counts, np.uint8).T.copy()


@kernel
def pair_pulls(scores: Array, label_starts: Array, first: Array, pulls: Array) -> float:
    """Write π of each document; return `Σ exp(s_j - s_i)`, the sum before normalisation.

    Documents are sorted by query and label. Exponents are relative to the middle of the query's
    scores, so products overflow only beyond a range of 1,400.
    """
    total = 0.0
    for q in range(first.shape[0] - 1):
        low, high = label_starts[first[q]], label_starts[first[q + 1]]
        middle = (scores[low:high].min() + scores[low:high].max()) / 2.0
        below = 0.0
        for label in range(first[q], first[q + 1]):
            a, b = label_starts[label], label_starts[label + 1]
            for d in range(a, b):
                pulls[d] = below * np.exp(middle - scores[d])
                total += pulls[d]
            for d in range(a, b):
                below += np.exp(scores[d] - middle)
        above = 0.0
        for label in range(first[q + 1] - 1, first[q] - 1, -1):
            a, b = label_starts[label], label_starts[label + 1]
            for d in range(a, b):
                pulls[d] -= above * np.exp(scores[d] - middle)
            for d in range(a, b):
                above += np.exp(middle - scores[d])
    for d in range(pulls.shape[0]):
        pulls[d] /= total
    return total


@kernel
def stump_edges(bins: Array, pulls: Array, edges: Array) -> None:
    """Write r of the stump at each threshold of each feature: sums of π over the bins above it."""
    n, most = edges.shape
    sums = np.zeros((n, most + 1))
    for d in range(bins.shape[0]):
        for f in range(n):
            sums[f, bins[d, f]] += pulls[d]
    for f in range(n):
        edge = 0.0
        for at in range(most - 1, -1, -1):
            edge += sums[f, at + 1]
            edges[f, at] = edge
