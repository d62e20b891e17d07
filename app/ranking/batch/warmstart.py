"""What an online learner starts with after a batch: the covariance of SOLAR-II.

Sherman-Morrison turns the recursion of eq. 9 into `Σ⁻¹ = I + (1/γ) Σ x xᵀ` over the gaps that were
learnt from. After RankSVM these are the support vectors, the pairs inside their margin: the Hessian
of eq. 11 with 2C = 1/γ.
"""

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import issparse

from app.ranking.arrays import Floats
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.ranksvm import Residuals, squared_hinge

#: So many columns of X go through the tree before one product with all of X.
BLOCK = 64


def covariance_after(judged: Judgements, w: Floats, gamma: float) -> Floats:
    """`(I + (1/γ) Σ_{SV pairs} (x_i - x_j)(x_i - x_j)ᵀ)⁻¹` as a packed lower triangle.

    No pair is listed: the sum is `Xᵀ (A_wᵀA_w) X`, column by column through the order tree.

    >>> judged = Judgements(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([0, 2]))
    >>> covariance_after(judged, np.array([0.25]), gamma=4.0)
    array([0.5])
    """
    if not 0.0 < gamma < np.inf:
        raise ValueError(f"gamma: expected a positive number, got {gamma}")
    precision = scatter(judged, w) / gamma
    precision[np.diag_indices(judged.n)] += 1.0
    return inverse(precision)[np.tril_indices(judged.n)]


def scatter(judged: Judgements, w: Floats) -> Floats:
    """`Σ_{SV pairs} (x_i - x_j)(x_i - x_j)ᵀ`, n x n."""
    ranking = squared_hinge(judged, C=1.0)
    residuals = Residuals(ranking.tree, ranking.scores(w))
    X, n = judged.X, judged.n
    columns = X.tocsc() if issparse(X) else X
    found = np.empty((n, n))
    for low in range(0, n, BLOCK):
        some = columns[:, low : low + BLOCK]
        block: Floats = (some.toarray() if issparse(X) else some).T.copy()  # a column is a row here
        for column in block:
            column[:] = residuals.laplacian(ranking.tree.centred(column))
        found[:, low : low + BLOCK] = X.T @ block.T
    return 0.5 * (found + found.T)


def inverse(precision: Floats) -> Floats:
    """The inverse of a positive definite matrix; its lower triangle is what counts.

    Scaled to a unit diagonal first: features of very different size cost no digits then.
    """
    scale = 1.0 / np.sqrt(np.diagonal(precision))
    factor, failed = lapack.dpotrf(precision * np.outer(scale, scale), lower=1)
    if failed:
        raise ValueError("covariance: expected features that float64 can tell apart, got others")
    inverted, _ = lapack.dpotri(factor, lower=1)
    scaled: Floats = inverted * np.outer(scale, scale)
    return scaled
