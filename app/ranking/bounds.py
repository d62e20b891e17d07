"""An upper bound of `ω‖x‖²`, the information of a pair: a larger weight is scaled down to it.

One pair adds `(ω/γ)·x xᵀ` to the inverse of Σ. Without a bound, a few pairs with large weights or
large features make Σ so small that the model learns nothing more. The bound is absolute: a bound
relative to Σ would allow each pair to halve Σ.
"""

from typing import Any

import numpy as np

from app.ranking.arrays import Dense, as_floats, owned
from app.ranking.kernels import LARGEST_SQUARED_NORM, fitting, inside
from app.ranking.lanes import Array, fill, inlined, kernel, load, total
from app.ranking.limits import LEAST, MOST
from app.ranking.pairs import Pairs

#: Relative margin of the quick check: far above the rounding errors of both sums.
MARGIN = 1.0 + 1e-6


def bounded(documents: Dense, pairs: Pairs, bound: float | None) -> tuple[Pairs, int]:
    """Scale weights down to `ω‖x‖² ≤ bound`; return the pairs and how many were scaled.

    The bound is for the weight that a pair gets in all: a pair to which earlier feedback gave
    `before` gets `min(before + ω, bound/‖x‖²) - min(before, bound/‖x‖²)`, and is left out if that
    is 0. None: no bound. Pairs that the learner refuses are returned unchanged.

    >>> rows, pairs = np.array([[3.0, 4.0], [0.0, 0.0]]), Pairs.of([(0, 1), (1, 0)])
    >>> found, scaled = bounded(rows, pairs, bound=5.0)
    >>> found.weights, scaled
    (array([0.2, 0.2]), 2)
    """
    if bound is None or not pairs.preferred.size or not _is_readable(pairs):
        return pairs, 0
    p, o = owned(pairs.preferred, np.int64), owned(pairs.other, np.int64)
    omega = owned(pairs.weights, np.float64)
    before = np.zeros(p.size) if pairs.before is None else owned(pairs.before, np.float64)
    weights, scaled = scaled_weights(as_floats(documents), p, o, omega, before, bound)
    if not scaled:
        return pairs, 0
    found, left_out = Pairs(p, o, weights, pairs.before), weights == 0.0
    return (
        (found.some(~left_out), scaled - int(left_out.sum())) if left_out.any() else (found, scaled)
    )


def needed(documents: Dense, pairs: Pairs, bound: float | None) -> float | None:
    """Return the bound, or None if it is quickly seen that no pair exceeds it.

    The pairs must be valid. Then a part of them needs no look at the documents.
    """
    if bound is None or pairs.preferred.size <= 2 * len(documents):
        return bound
    weights = owned(pairs.in_all, np.float64)
    quick = no_pair_exceeds(as_floats(documents), weights, bound / MARGIN)
    return None if quick else bound


def _is_readable(pairs: Pairs) -> bool:
    """Whether a kernel can read these pairs; the learner reports what is wrong with others."""
    p, o = pairs.preferred, pairs.other
    return (
        p.dtype == o.dtype == np.int64 and p.ndim == 1 and p.shape == o.shape == pairs.weights.shape
    )


@inlined
def squared_gap(documents: Array, n: int, p: int, o: int) -> Any:
    """Return `‖documents[p] - documents[o]‖²` with the bits of `kernels.gap`."""
    fours, eights = n - n % 4, n - n % 8
    row, base = p * n, o * n
    even = odd = fill(0.0)
    for k in range(0, eights, 8):
        a = load(documents, row + k) - load(documents, base + k)
        b = load(documents, row + k + 4) - load(documents, base + k + 4)
        even, odd = even + a * a, odd + b * b
    if eights < fours:
        a = load(documents, row + eights) - load(documents, base + eights)
        even = even + a * a
    rest = 0.0
    for k in range(fours, n):
        last = np.float64(documents[row + k]) - np.float64(documents[base + k])
        rest += last * last
    return total(even + odd) + rest


@kernel
def no_pair_exceeds(documents: Array, omega: Array, bound: float) -> bool:
    """Whether `ω‖x‖² ≤ bound` for all pairs, by the ranges of the features; False: unknown.

    Takes one pass over the documents; there may be many more pairs.
    """
    low, high = documents[0].astype(np.float64), documents[0].astype(np.float64)
    for d in range(1, documents.shape[0]):
        for k in range(documents.shape[1]):
            low[k] = min(low[k], documents[d, k])
            high[k] = max(high[k], documents[d, k])
    widest = 0.0
    for k in range(documents.shape[1]):
        widest += (high[k] - low[k]) * (high[k] - low[k])
    return bool(omega.max() * widest <= bound)


@kernel
def scaled_weights(
    documents: Array, p: Array, o: Array, omega: Array, before: Array, bound: float
) -> Any:
    """Return `min(ω, bound/‖x‖² - before)` of each pair, and the number of scaled ones.

    The bound is at least LEAST, and a smaller weight is 0. Pairs and gaps that the learner refuses
    stay unchanged.
    """
    count, n = documents.shape
    if not (inside(p, count) and inside(o, count) and fitting(omega, LEAST, MOST)):
        return omega, 0
    rows, weights, scaled = documents.reshape(-1), omega, 0
    for t in range(p.shape[0]):
        squared_norm = squared_gap(rows, n, p[t], o[t])
        most = max(LEAST, bound / squared_norm) - before[t]
        if omega[t] > most and squared_norm <= LARGEST_SQUARED_NORM:
            if not scaled:
                weights = omega.copy()
            weights[t] = most if most >= LEAST else 0.0
            scaled += 1
    return weights, scaled
