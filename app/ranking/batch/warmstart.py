"""The covariance of an online learner after a batch: SOLAR-II's Σ, or its diagonal.

By Sherman-Morrison the recursion of eq. 9 is `Σ⁻¹ = I + (1/γ) Σ x xᵀ` over the gaps of the updates.
After RankSVM these are the support vectors, the pairs inside their margin: `Σ⁻¹` is the Hessian of
eq. 11 with 2C = 1/γ. For a diagonal Σ, `Σ⁻¹` is the diagonal of the Hessian.
"""

from typing import Any

import numpy as np

from app.ranking.arrays import Floats, owned
from app.ranking.batch.judgements import Judgements, is_sparse
from app.ranking.batch.ranksvm import Residuals, squared_hinge
from app.ranking.lanes import Array, kernel

#: Columns of X that go through the tree before one product with all of X.
COLUMNS_AT_ONCE = 64
#: Comparisons per document above which a sparse column goes through the tree.
MOST_COMPARISONS = 16
#: Marks a column whose sum of squares is still to be computed by the tree.
NOT_COMPARED = -1.0


def covariance_after(judged: Judgements, w: Floats, gamma: float) -> Floats:
    """Return `(I + (1/γ) Σ_{SV pairs} (x_i - x_j)(x_i - x_j)ᵀ)⁻¹` as a packed lower triangle.

    The sum is `Xᵀ (A_wᵀA_w) X`, column by column through the order tree, without a list of pairs.

    >>> judged = Judgements(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([0, 2]))
    >>> covariance_after(judged, np.array([0.25]), gamma=4.0)
    array([0.5])
    """
    return covariance_of(scatter(judged, w), gamma)


def covariance_of(scattered: Floats, gamma: float) -> Floats:
    """Return `(I + (1/γ) scatter)⁻¹` as a packed lower triangle."""
    n = len(scattered)
    precision = scattered / _positive(gamma)
    precision[np.diag_indices(n)] += 1.0
    return inverse(precision)[np.tril_indices(n)]


def variances_after(judged: Judgements, w: Floats, gamma: float) -> Floats:
    """Return `1 / (1 + (1/γ) Σ_{SV pairs} (x_ik - x_jk)²)` for every feature k: a diagonal Σ.

    >>> judged = Judgements(np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([0.0, 1.0]),
    ...                     np.array([0, 2]))
    >>> variances_after(judged, np.array([0.25, 0.0]), gamma=4.0)
    array([0.5, 1. ])
    """
    return variances_of(spreads(judged, w), gamma)


def variances_of(spread: Floats, gamma: float) -> Floats:
    """Return `1 / (1 + (1/γ) spread)`."""
    variances: Floats = 1.0 / (1.0 + spread / _positive(gamma))
    return variances


def spreads(judged: Judgements, w: Floats) -> Floats:
    """Return `Σ_{SV pairs} (x_ik - x_jk)²` for every feature k: the diagonal of the scatter.

    A dense column goes through the tree, O(l log k), as `x·(A_wᵀA_w x)`. In a sparse column only
    the documents of a query that have the feature are compared, unless there are too many.
    """
    ranking = squared_hinge(judged, C=1.0)
    scores = ranking.scores(w)
    residuals = Residuals(ranking.tree, scores)

    def through_tree(column: Floats) -> float:
        x = ranking.tree.centred(column)
        return max(0.0, float(x @ residuals.laplacian(x)))

    if not is_sparse(judged.X):
        return np.array([through_tree(column) for column in judged.X.T])
    X = judged.X.tocsc()
    X.sum_duplicates()
    found = _compared(X, judged, scores, residuals.l_above + residuals.l_below)
    for k in np.flatnonzero(found == NOT_COMPARED):
        found[k] = through_tree(X[:, [k]].toarray()[:, 0])
    return found


def _compared(X: Any, judged: Judgements, scores: Floats, partners: Floats) -> Floats:
    query = np.repeat(np.arange(len(judged.starts) - 1), np.diff(judged.starts))
    found, starts, rows = np.empty(judged.n), owned(X.indptr, np.int64), owned(X.indices, np.int64)
    most = MOST_COMPARISONS * len(query)
    compare(starts, rows, X.data, query, judged.labels, scores, partners, most, found)
    return found


@kernel
def compare(
    starts: Array, rows: Array, values: Array, query: Array, labels: Array, scores: Array,
    partners: Array, most: int, found: Array,
) -> None:  # fmt: skip
    """Sum over the pairs inside, for each column that needs at most `most` comparisons.

    All terms are positive, so no digits cancel. Two documents with the feature add `(x_i - x_j)²`.
    One adds `x_i²` for each of its `partners` without the feature.
    """
    for k in range(found.shape[0]):
        if comparisons(rows, query, starts[k], starts[k + 1]) > most:
            found[k] = NOT_COMPARED
            continue
        total, high = 0.0, starts[k]
        while high < starts[k + 1]:
            low, high = high, end_of_query(rows, query, high, starts[k + 1])
            for t in range(low, high):
                i, met = rows[t], 0
                for u in range(low, high):
                    j = rows[u]
                    below = labels[i] > labels[j] and scores[i] - scores[j] < 1.0
                    above = labels[i] < labels[j] and scores[j] - scores[i] < 1.0
                    met += below or above
                    if below:
                        total += (values[t] - values[u]) ** 2
                total += (partners[i] - met) * values[t] ** 2
        found[k] = total


@kernel
def comparisons(rows: Array, query: Array, low: int, stop: int) -> int:
    """Return the number of comparisons of a column: (i, j) of the same query."""
    count = 0
    while low < stop:
        high = end_of_query(rows, query, low, stop)
        count += (high - low) ** 2
        low = high
    return count


@kernel
def end_of_query(rows: Array, query: Array, low: int, stop: int) -> int:
    """Return the end, in a column, of the documents of the query of the one at `low`."""
    high = low + 1
    while high < stop and query[rows[high]] == query[rows[low]]:
        high += 1
    return high


def scatter(judged: Judgements, w: Floats) -> Floats:
    """Return `Σ_{SV pairs} (x_i - x_j)(x_i - x_j)ᵀ`, n x n."""
    ranking = squared_hinge(judged, C=1.0)
    residuals = Residuals(ranking.tree, ranking.scores(w))
    X, n = judged.X, judged.n
    columns = X.tocsc() if is_sparse(X) else X
    found = np.empty((n, n))
    for low in range(0, n, COLUMNS_AT_ONCE):
        some = columns[:, low : low + COLUMNS_AT_ONCE]
        block: Floats = (some.toarray() if is_sparse(X) else some).T.copy()  # columns as rows
        for column in block:
            column[:] = residuals.laplacian(ranking.tree.centred(column))
        found[:, low : low + COLUMNS_AT_ONCE] = X.T @ block.T
    return 0.5 * (found + found.T)


def inverse(precision: Floats) -> Floats:
    """Return the inverse of a positive definite matrix; only its lower triangle is valid.

    The matrix is scaled to a unit diagonal first, so features of any scale keep their digits.
    """
    from scipy.linalg import lapack  # noqa: PLC0415  # takes 0.2 s; other training needs no scipy

    scale = 1.0 / np.sqrt(np.diagonal(precision))
    factor, failed = lapack.dpotrf(precision * np.outer(scale, scale), lower=1)
    if failed:
        raise ValueError(
            "covariance: expected features that are not collinear in float64, got collinear ones"
        )
    inverted, _ = lapack.dpotri(factor, lower=1)
    scaled: Floats = inverted * np.outer(scale, scale)
    return scaled


def _positive(gamma: float) -> float:
    if not 0.0 < gamma < np.inf:
        raise ValueError(f"gamma: expected a positive number, got {gamma}")
    return gamma
