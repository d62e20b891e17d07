"""A query's documents with their features, as they are scored, remembered and learnt. Pure.

Features are float32 at the edge; every computation is float64. With `query-minmax` a feature is
scaled over all documents sent, as LETOR does it: round to float32, normalise in float64, round to
float32; a constant feature is 0.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np

from app.domain.model import Documents, Positions
from app.domain.names import MOST_COMPARED, unknown_name
from app.errors import InvalidInput
from app.ranking import serving
from app.ranking.arrays import Floats
from app.ranking.covariance import square


class Candidates(NamedTuple):
    """Documents of one query, in the order in which they were submitted."""

    ids: Sequence[str]
    documents: Documents


class Ranking(NamedTuple):
    """Which documents are shown, best first, and the scores of all that were submitted."""

    shown: Positions
    scores: Floats
    odds: Floats | None = None  # of a list that was drawn, or would have been: all scores equal
    swaps: Positions | None = None  # of a list whose neighbours may have changed places
    explored: bool = False


class Exploration(NamedTuple):
    """How a list is varied: drawn (Plackett-Luce), or swapped (FairPairs), and by which numbers."""

    how: Literal["drawn", "swapped"]
    uniforms: Callable[[int], Floats]


def as_documents(
    features: Floats, normalization: str, bound: float, *, ordered: bool = False
) -> Documents:
    """Rows of float64 as documents; InvalidInput at the first feature beyond the bound.

    With `ordered` the order as submitted is one more feature, the last.
    """
    if not features_within(features, bound):
        at, column = np.argwhere(~(np.abs(features) <= bound))[0]
        raise InvalidInput(f"documents[{at}].features[{column}]: expected at most ±{bound:g}")
    documents = features.astype(np.float32)
    if normalization == "query-minmax":
        documents = min_max(documents)
    return with_order(documents) if ordered else documents


def with_order(documents: Documents) -> Documents:
    """Documents with `_order`, `1 - place / (documents - 1)`: from 1 at the top to 0.

    >>> with_order(np.array([[7], [8], [9]], np.float32))
    array([[7. , 1. ],
           [8. , 0.5],
           [9. , 0. ]], dtype=float32)
    """
    order = 1.0 - np.arange(len(documents)) / max(1, len(documents) - 1)
    return np.column_stack([documents, order.astype(np.float32)])


def features_within(features: Floats, bound: float) -> bool:
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


#: Who is pinned, mostly.
NOBODY: Positions = np.zeros(0, np.int64)


def rank_candidates(
    documents: Documents,
    weights: Floats,
    top_k: int | None,
    explore: Exploration | None = None,
    pinned: Positions = NOBODY,
) -> Ranking:
    """The first `top_k` documents by score, varied if there is leave to `explore`.

    Documents that are `pinned` keep the places where they were submitted.
    """
    found = scores(documents, weights)
    places = len(found) if top_k is None else min(top_k, len(found))
    if explore is None:
        return Ranking(_placed(found, pinned, places), found)
    if explore.how == "swapped":
        return _swapped(found, pinned, places, explore)
    return _drawn(found, pinned, places, explore)


def _placed(scores: Floats, pinned: Positions, places: int) -> Positions:
    """The best at the top, and who is pinned at its place."""
    if not pinned.size:
        return serving.top_k(scores, places)
    others = np.delete(np.arange(len(scores)), pinned)
    return serving.woven(others[serving.order(scores[others])], pinned, places)


def _swapped(scores: Floats, pinned: Positions, places: int, explore: Exploration) -> Ranking:
    plain = _placed(scores, pinned, places)
    shown, swaps = serving.swapped(plain, explore.uniforms(1 + places // 2), pinned)
    return Ranking(shown, scores, swaps=swaps, explored=len(swaps) > 0)


def _drawn(scores: Floats, pinned: Positions, places: int, explore: Exploration) -> Ranking:
    """A sample of the orders of all that are not pinned; as submitted where scores are equal."""
    if pinned.size:
        return _drawn_around(scores, pinned, places, explore)
    sharp = serving.sharpened(scores)
    if sharp is None:
        shown = np.arange(places)
        return Ranking(shown, scores, serving.odds(np.zeros(len(scores)), shown))
    shown = serving.top_k(serving.sampled(sharp, explore.uniforms(len(sharp))), places)
    return Ranking(shown, scores, serving.odds(sharp, shown), explored=True)


def _drawn_around(scores: Floats, pinned: Positions, places: int, explore: Exploration) -> Ranking:
    """The same of the others, with those that are pinned at their places; they have no odds."""
    others = np.delete(np.arange(len(scores)), pinned)
    room = places - int((pinned < places).sum())
    if not others.size or not room:
        return Ranking(pinned[:places], scores)
    drawn = _drawn(scores[others], NOBODY, room, explore)
    shown = serving.woven(others[drawn.shown], pinned, places)
    odds = np.full(places + 1, serving.PINNED)
    odds[np.append(~np.isin(shown, pinned), True)] = drawn.odds
    return Ranking(shown, scores, odds, explored=drawn.explored)


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
    """Named features as rows: an absent one is 0; InvalidInput at an unknown one."""
    rows = np.zeros((len(features), len(index)))
    for at, named in enumerate(features):
        try:
            rows[at, [index[name] for name in named]] = list(named.values())
        except KeyError:
            unknown = next(name for name in named if name not in index)
            said = unknown_name("feature", unknown, list(islice(index, MOST_COMPARED)))
            raise InvalidInput(f"documents[{at}].features: {said}") from None
    return rows


def contributions(document: Any, weights: Floats, names: Sequence[str]) -> dict[str, float]:
    """What each feature adds to a document's score, `w_k φ_k`, where that is not 0."""
    added = document.astype(np.float64) * weights
    return {names[k]: float(added[k]) for k in np.flatnonzero(added).tolist()}
