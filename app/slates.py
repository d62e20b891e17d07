"""A query's documents with their features, as they are scored, remembered and learnt. Pure.

Features are float32 at the edge; every computation is float64. With `query-minmax` a feature is
scaled over all documents sent, as LETOR does it: round to float32, normalise in float64, round to
float32; a constant feature is 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from app.events import Documents, Floats, Positions
from app.ranking import serving
from app.ranking.covariance import square


class Slate(NamedTuple):
    """Documents of one query, in the order in which they were submitted."""

    ids: Sequence[str]
    documents: Documents


class Ranking(NamedTuple):
    """Which documents are shown, best first, and the scores of all that were submitted."""

    shown: Positions
    scores: Floats
    odds: Floats | None = None  # of a list that was drawn


def as_documents(features: Floats, normalization: str, bound: float) -> Documents:
    """Rows of float64 as documents; ValueError at the first feature beyond the bound."""
    if not within(features, bound):
        at, column = np.argwhere(~(np.abs(features) <= bound))[0]
        raise ValueError(f"documents[{at}].features[{column}]: expected at most ±{bound:g}")
    documents = features.astype(np.float32)
    return min_max(documents) if normalization == "query-minmax" else documents


def within(features: Floats, bound: float) -> bool:
    """Whether all features are numbers in ±bound (NaN is not)."""
    return bool(features.max() <= bound and features.min() >= -bound)


def min_max(documents: Documents) -> Documents:
    """`(x - min) / (max - min)` of each feature over the documents; 0 where all are the same.

    >>> min_max(np.array([[1, 5], [3, 5], [2, 5]], np.float32))
    array([[0. , 0. ],
           [1. , 0. ],
           [0.5, 0. ]], dtype=float32)
    """
    exact = documents.astype(np.float64)
    least = exact.min(axis=0)
    spread = exact.max(axis=0) - least
    scaled = (exact - least) / np.where(spread > 0.0, spread, 1.0)
    rounded: Documents = scaled.astype(np.float32)
    return rounded


def scores(documents: Documents, weights: Floats) -> Floats:
    """`w·φ` of each document; equal documents get equal bits wherever they stand, as BLAS's do not.

    >>> scores(np.array([[1, 2], [3, 4]], np.float32), np.array([1.0, 0.5]))
    array([2., 5.])
    """
    found: Floats = np.einsum("ij,j->i", documents.astype(np.float64), weights)
    return found


def rank(
    documents: Documents,
    weights: Floats,
    top_k: int | None,
    explore: np.random.Generator | None = None,
) -> Ranking:
    """The first `top_k` documents by score, or of a sample of orders if it may `explore`."""
    found = scores(documents, weights)
    most = len(found) if top_k is None else top_k
    if explore is None:
        return Ranking(serving.top_k(found, most), found)
    sharp = serving.sharpened(found)
    if sharp is None:
        return Ranking(serving.top_k(found, most), found)
    shown = serving.top_k(serving.sampled(sharp, explore), most)
    return Ranking(shown, found, serving.odds(sharp, shown))


def deviations(documents: Documents, spread: Floats) -> Floats:
    """The standard deviation `√(φᵀΣφ)` of each score; `spread` is a triangle or a diagonal.

    >>> deviations(np.array([[3, 4]], np.float32), np.array([1.0, 1.0]))
    array([5.])
    """
    exact = documents.astype(np.float64)
    n = exact.shape[1]
    if spread.size == n:
        variances = np.einsum("ij,j,ij->i", exact, spread, exact)
    else:
        variances = np.einsum("ij,ij->i", exact @ square(spread, n), exact)
    found: Floats = np.sqrt(np.maximum(variances, 0.0))
    return found


def by_name(features: Sequence[dict[str, float]], index: dict[str, int]) -> Floats:
    """Named features as rows: an absent one is 0; ValueError at an unknown one."""
    rows = np.zeros((len(features), len(index)))
    for at, named in enumerate(features):
        try:
            rows[at, [index[name] for name in named]] = list(named.values())
        except KeyError:
            raise ValueError(f"documents[{at}].features: expected names the model knows") from None
    return rows


def contributions(document: Any, weights: Floats, names: Sequence[str]) -> dict[str, float]:
    """What each feature adds to a document's score, `w_k φ_k`, where that is not 0."""
    added = document.astype(np.float64) * weights
    return {names[k]: float(added[k]) for k in np.flatnonzero(added).tolist()}
