"""Documents of a query with their features, as scored, logged and learnt. Pure.

Features are float32 at the edge; every computation is float64. `query-minmax` scales a feature
over all submitted documents, as LETOR does: round to float32, normalise in float64, round to
float32. A constant feature is 0. Ramps of splines (`domain/splines.py`) and the submitted order are
added after that.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import msgpack

from app.domain.model import Documents, Positions
from app.domain.model_config import ModelConfig
from app.domain.names import MOST_COMPARED, unknown_name
from app.domain.splines import Ramps, with_ramps
from app.errors import InvalidInput
from app.ranking import serving
from app.ranking.arrays import Floats
from app.ranking.covariance import square

#: Numbers that are computed at once in float64: a larger array is computed in parts.
BLOCK = 65_536
#: Columns of `_order` that are kept, of the numbers of documents that were asked for last.
ORDER_COLUMNS = 32

_pack = msgpack.Encoder().encode


class Candidates(NamedTuple):
    """Documents of one query, in the submitted order."""

    ids: Sequence[str]
    documents: Documents


class Ranking(NamedTuple):
    """Shown documents, best first, and the scores of all submitted documents."""

    shown: Positions
    scores: Floats
    odds: Floats | None = None  # of a sampled ranking
    swaps: Positions | None = None  # of a ranking with randomly swapped neighbours
    explored: bool = False
    teams: Positions | None = None  # of a list of a duel; its swaps are rounds (interleaving.py)


class Exploration(NamedTuple):
    """Randomisation of a ranking: Plackett-Luce sample or FairPairs swaps, and its uniforms.

    `scale` and `amount` are those of a sample (`serving.sharpened`).
    """

    how: Literal["sampled", "swapped"]
    uniforms: Callable[[int], Floats]
    scale: float = 0.0
    amount: float = 1.0


def exploring_by(
    config: ModelConfig, uniforms: Callable[[int], Floats], scale: float
) -> Exploration:
    """Return how a model randomises its rankings."""
    how: Literal["sampled", "swapped"] = "swapped" if config.clicks == "fair-pairs" else "sampled"
    return Exploration(how, uniforms, scale, config.exploration or 1.0)


def as_documents(
    features: Floats,
    normalization: str,
    bound: float,
    *,
    ordered: bool = False,
    ramps: Ramps | None = None,
) -> Documents:
    """Convert rows of float64 to documents; InvalidInput if a feature exceeds the bound.

    Each of the `ramps` is one more feature. With `ordered` the submitted order is the last one.
    """
    return normalized(rounded(features, bound), normalization, ordered=ordered, ramps=ramps)


def rounded(features: Floats, bound: float, first: int = 0) -> Documents:
    """Round rows to float32; InvalidInput if a feature exceeds the bound. `first`: their start."""
    check_bound(features, bound, first)
    return features.astype(np.float32)


def check_bound(features: Floats | Documents, bound: float, first: int = 0) -> None:
    """Check that rows are within the bound; InvalidInput names the first value that is not."""
    if not features_within(features, bound):
        at, column = np.argwhere(~(np.abs(features) <= bound))[0]
        raise InvalidInput(
            f"documents[{first + at}].features[{column}]: expected a value within ±{bound:g}"
        )


def normalized(
    documents: Documents, normalization: str, *, ordered: bool, ramps: Ramps | None = None
) -> Documents:
    """Scale the features as the model does; add its ramps and, with `ordered`, the order."""
    if normalization == "query-minmax":
        documents = min_max(documents)
    if ramps is not None:
        documents = with_ramps(documents, ramps)
    return with_order(documents) if ordered else documents


def with_order(documents: Documents) -> Documents:
    """Add the feature `_order`, `1 - position / (documents - 1)`: 1 at the top, 0 at the end.

    >>> with_order(np.array([[7], [8], [9]], np.float32))
    array([[7. , 1. ],
           [8. , 0.5],
           [9. , 0. ]], dtype=float32)
    """
    count, n = documents.shape
    ordered = np.empty((count, n + 1), np.float32)
    ordered[:, :n] = documents
    ordered[:, n] = order_column(count)
    return ordered


@lru_cache(ORDER_COLUMNS)
def order_column(count: int) -> Documents:
    """Return the values of `_order` for a number of documents; not writeable, as it is kept."""
    column = (1.0 - np.arange(count) / max(1, count - 1)).astype(np.float32)
    column.flags.writeable = False
    return column


def features_within(features: Floats | Documents, bound: float) -> bool:
    """Check that all features are within ±bound; NaN is not."""
    return float(features.max()) <= bound and float(features.min()) >= -bound


def min_max(documents: Documents) -> Documents:
    """Scale each feature to `(x - min) / (max - min)` over the documents; 0 if it is constant.

    >>> min_max(np.array([[1, 5], [3, 5], [2, 5]], np.float32))
    array([[0. , 0. ],
           [1. , 0. ],
           [0.5, 0. ]], dtype=float32)
    """
    scaled = np.empty_like(documents)
    columns = max(1, BLOCK // len(documents))
    for start in range(0, documents.shape[1], columns):
        exact = documents[:, start : start + columns].astype(np.float64)
        least = exact.min(axis=0)
        spread = exact.max(axis=0) - least
        scaled[:, start : start + columns] = (exact - least) / np.where(spread > 0.0, spread, 1.0)
    return scaled


def scores(documents: Documents, weights: Floats) -> Floats:
    """Compute `w·φ` of each document. Unlike with BLAS, equal documents get equal bits.

    >>> scores(np.array([[1, 2], [3, 4]], np.float32), np.array([1.0, 0.5]))
    array([2., 5.])
    """
    count, n = documents.shape
    starts = range(0, max(1, count - 1), max(2, BLOCK // n))  # one row alone may get other bits
    parts = np.split(documents, starts[1:]) if len(starts) > 1 else [documents]
    found = [np.einsum("ij,j->i", part.astype(np.float64), weights) for part in parts]
    return found[0] if len(found) == 1 else np.concatenate(found)


#: The default: no document is pinned.
NO_PINS: Positions = np.zeros(0, np.int64)


def rank_candidates(
    documents: Documents,
    weights: Floats,
    top_k: int | None,
    explore: Exploration | None = None,
    pinned: Positions = NO_PINS,
) -> Ranking:
    """Rank the first `top_k` documents by score; randomise the ranking if `explore` is given.

    `pinned` documents keep their submitted positions.
    """
    found = scores(documents, weights)
    length = len(found) if top_k is None else min(top_k, len(found))
    if explore is None:
        return Ranking(_model_order(found, pinned, length), found)
    if explore.how == "swapped":
        return _swapped(found, pinned, length, explore)
    return _sampled(found, pinned, length, explore)


def _model_order(scores: Floats, pinned: Positions, length: int) -> Positions:
    """Order by score, with pinned documents at their positions."""
    if not pinned.size:
        return serving.top_k(scores, length)
    others = np.delete(np.arange(len(scores)), pinned)
    return serving.with_pinned(others[serving.order(scores[others])], pinned, length)


def _swapped(scores: Floats, pinned: Positions, length: int, explore: Exploration) -> Ranking:
    by_score = _model_order(scores, pinned, length)
    shown, swaps = serving.swapped(by_score, explore.uniforms(1 + length // 2), pinned)
    return Ranking(shown, scores, swaps=swaps, explored=len(swaps) > 0)


def _sampled(scores: Floats, pinned: Positions, length: int, explore: Exploration) -> Ranking:
    """Sample a ranking of the unpinned documents; each order is equally likely at equal scores."""
    if pinned.size:
        return _sampled_around_pinned(scores, pinned, length, explore)
    sharp = serving.sharpened(scores, explore.scale, explore.amount)
    noisy = serving.sampled(sharp, explore.uniforms(len(sharp)))
    first = serving.first_k if explore.scale else serving.top_k  # a scale gives finite numbers
    shown = first(noisy, length)
    return Ranking(shown, scores, serving.odds(sharp, shown), explored=len(sharp) > 1)


def _sampled_around_pinned(
    scores: Floats, pinned: Positions, length: int, explore: Exploration
) -> Ranking:
    """Sample the other documents around the pinned ones, which have no odds."""
    others = np.delete(np.arange(len(scores)), pinned)
    free = length - int((pinned < length).sum())
    if not others.size or not free:
        return Ranking(pinned[:length], scores)
    sampled = _sampled(scores[others], NO_PINS, free, explore)
    shown = serving.with_pinned(others[sampled.shown], pinned, length)
    odds = np.full(length + 1, serving.PINNED)
    odds[np.append(~np.isin(shown, pinned), True)] = sampled.odds
    return Ranking(shown, scores, odds, explored=sampled.explored)


def exploration_loss(ranking: Ranking, pinned: Positions = NO_PINS) -> float:
    """Return the share of NDCG@10 that randomisation costs a ranking, if its scores are true.

    It is the difference to the model order with the same pinned documents.
    """
    scores, shown = ranking.scores, ranking.shown
    lost = serving.expected_loss(scores, shown)
    if pinned.size:
        lost -= serving.expected_loss(scores, _model_order(scores, pinned, len(shown)))
    return max(0.0, lost)  # rounding may give -1e-17, an overflow NaN: both become 0


def deviations(documents: Documents, spread: Floats) -> Floats:
    """Compute the standard deviation `√(φᵀΣφ)` of each score; `spread`: triangle or diagonal.

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


def by_position(features: Sequence[list[float]], n: int) -> Floats | None:
    """Convert lists of `n` floats to rows; None if one has another length.

    msgpack packs all of them in one call, in half of the time of packing each. A packed row is its
    header, and for each float a type byte and 8 bytes. If the size and all headers are right, so is
    each row, from the first to the last.
    """
    packed, header = _pack(features), _array_header(n)
    first, size = len(_array_header(len(features))), len(header) + 9 * n
    if len(packed) != first + len(features) * size:
        return None
    headers = np.ndarray((len(features),), f"V{len(header)}", packed, first, (size,))
    if headers.tobytes() != header * len(features):
        return None
    start = first + len(header) + 1
    return np.ndarray((len(features), n), ">f8", packed, start, (size, 9)).astype(np.float64)


def _array_header(length: int) -> bytes:
    """Return the header of an array in msgpack."""
    if length < 16:
        return bytes([0x90 | length])
    return b"\xdc%b" % length.to_bytes(2) if length < 65_536 else b"\xdd%b" % length.to_bytes(4)


def by_name(features: Sequence[dict[str, float]], index: dict[str, int], first: int = 0) -> Floats:
    """Convert named features to rows; an absent one is 0, an unknown one InvalidInput.

    `first` is the position of the first row among the documents.
    """
    rows = np.zeros((len(features), len(index)))
    for at, named in enumerate(features):
        try:
            rows[at, [index[name] for name in named]] = list(named.values())
        except KeyError:
            unknown = next(name for name in named if name not in index)
            message = unknown_name("feature", unknown, list(islice(index, MOST_COMPARED)))
            raise InvalidInput(f"documents[{first + at}].features: {message}") from None
    return rows


def contributions(document: Any, weights: Floats, names: Sequence[str]) -> dict[str, float]:
    """Contribution `w_k φ_k` of each feature to a document's score, where it is not 0."""
    added = document.astype(np.float64) * weights
    return {names[k]: float(added[k]) for k in np.flatnonzero(added).tolist()}
