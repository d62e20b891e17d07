"""Rankings from scores: the model order, and exploration."""

from hashlib import shake_128
from math import inf, isfinite, sqrt

import numpy as np

from app.ranking.arrays import Floats, Integers

#: Below this many documents a full sort is faster (k = 10: 6 against 15 µs at 100, 15 each at 500);
#: above it, selecting the first k is (17 against 28 µs at 1000, 27 against 296 at 5000).
SORT_BELOW = 600
#: The largest sharpness `a` of a sample by the spread of the scores. With a = 8 the second of two
#: documents would be first once in nine million rankings, and a click on it would carry no
#: information; so a ranking of fewer documents uses their number as `a`.
SPREAD_SHARPNESS = 8.0
#: The discounts of NDCG@10, for the expected loss; `measures.py` has those of measured NDCG.
EXPECTED_DISCOUNTS = 1.0 / np.log2(np.arange(2.0, 12.0))
#: The e of a pinned document, which is not sampled.
PINNED = -1.0


def order(scores: Floats) -> Integers:
    """Return the documents from the best score to the worst; ties keep the submitted order.

    >>> order(np.array([0.5, 2.0, 0.5]))
    array([1, 0, 2])
    """
    scores = finite(scores)
    return np.argsort(-scores, kind="stable")


def top_k(scores: Floats, k: int) -> Integers:
    """Return the first k of `order(scores)`, without a sort of all documents.

    >>> top_k(np.array([0.5, 2.0, 0.5]), 2)
    array([1, 0])
    """
    return first_k(finite(scores), k)


def first_k(scores: Floats, k: int) -> Integers:
    """Return `top_k` of scores that are known to be finite."""
    if k < 1:
        raise ValueError(f"k: expected at least 1, got {k}")
    if len(scores) < SORT_BELOW or k > len(scores) // 4:
        return np.argsort(-scores, kind="stable")[:k]
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > least)
    ties = np.flatnonzero(scores == least)[: k - len(above)]
    best = above[np.argsort(-scores[above], kind="stable")]
    return np.concatenate([best, ties])


def sharpened(scores: Floats, scale: float = 0.0, exploration: float = 1.0) -> Floats:
    """Return `s = scale·scores`, the input of the sample; all 0 if all scores are equal.

    Without a scale (a model that has learnt nothing yet) the spread of the scores is the scale:
    `s = (a/exploration)·scores/std(scores)`.

    >>> sharpened(np.array([1.0, -1.0]), 3.0), sharpened(np.array([1.0, -1.0]))
    (array([ 3., -3.]), array([ 2., -2.]))
    """
    scores = np.asarray(scores, np.float64)
    least, most = float(scores.min()), float(scores.max())
    if not (isfinite(least) and isfinite(most)):  # then all are finite; NaN is both
        finite(scores)
    if least == most:  # std of equal numbers may be 1e-17
        return np.zeros(len(scores))
    if scale:
        overflows = not (isfinite(least * scale) and isfinite(most * scale))
        return np.zeros(len(scores)) if overflows else scores * scale
    centred = scores - scores.sum() / len(scores)
    spread = sqrt(centred @ centred / len(scores))  # takes a third of the time of numpy's std
    if not 0.0 < spread < inf:
        return np.zeros(len(scores))
    sharp: Floats = scores * (min(SPREAD_SHARPNESS, float(len(scores))) / exploration / spread)
    return sharp


def uniforms(seed: str, count: int) -> Floats:
    """Return deterministic uniforms in (0, 1) seeded by a string: 53 bits of SHAKE-128 each.

    >>> uniforms("books:1:my-request", 2)
    array([0.50550141, 0.14552937])
    """
    drawn = np.frombuffer(shake_128(seed.encode()).digest(8 * count), "<u8")
    found: Floats = ((drawn >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return found


def sampled(sharp: Floats, uniforms: Floats) -> Floats:
    """Return scores whose order is a Plackett-Luce sample: `s - log(-log u)`.

    `uniforms` are numbers in (0, 1). The order has the probability of a product of softmaxes.

    >>> order(sampled(np.array([1.0, 2.0]), np.array([0.9, 0.1])))
    array([0, 1])
    """
    noisy: Floats = sharp - np.log(-np.log(uniforms))
    return noisy


def swapped(shown: Integers, uniforms: Floats, fixed: Integers) -> tuple[Integers, Integers]:
    """FairPairs: return the ranking with neighbours swapped at random, and its swaps.

    The first uniform decides whether pairs start at position 0 or 1, each other one whether its
    pair is swapped. A row of swaps is (upper position, 0 or 1). Pairs with a `fixed` position are
    omitted.

    >>> swapped(np.array([7, 8, 9]), np.array([0.1, 0.2]), np.array([], np.int64))
    (array([8, 7, 9]), array([[0, 1]]))
    """
    uppers = np.arange(int(uniforms[0] >= 0.5), len(shown) - 1, 2)
    swaps = np.empty((len(uppers), 2), np.int64)
    swaps[:, 0], swaps[:, 1] = uppers, uniforms[1 : 1 + len(uppers)] < 0.5
    if fixed.size:
        swaps = swaps[~(np.isin(uppers, fixed) | np.isin(uppers + 1, fixed))]
    moved, upper = shown.copy(), swaps[swaps[:, 1] == 1, 0]
    moved[upper], moved[upper + 1] = shown[upper + 1], shown[upper]
    return moved, swaps


def odds(sharp: Floats, shown: Integers) -> Floats:
    """Return `e = exp(s - max s)` of the shown documents, and then the sum over all others.

    >>> odds(np.log([1.0, 4.0, 2.0, 2.0]), np.array([1, 2]))
    array([1.  , 0.5 , 0.75])
    """
    e = np.exp(sharp - sharp.max())
    hidden = np.ones(len(e), np.bool_)
    hidden[shown] = False
    found = np.empty(len(shown) + 1)
    found[:-1], found[-1] = e[shown], e[hidden].sum()
    return found


def expected_loss(scores: Floats, shown: Integers) -> float:
    """Return the share of NDCG@10 that a ranking loses against the model order, if scores are true.

    A document gains its score minus the lowest one. 0 if all scores are equal.

    >>> round(expected_loss(np.array([3.0, 2.0, 1.0]), np.array([1, 0, 2])), 3)
    0.14
    """
    depth = min(len(EXPECTED_DISCOUNTS), len(shown))
    gains, discounts = scores - scores.min(), EXPECTED_DISCOUNTS[:depth]
    best = float((gains[top_k(scores, depth)] * discounts).sum())
    return 1.0 - float((gains[shown[:depth]] * discounts).sum()) / best if best > 0.0 else 0.0


def with_pinned(best: Integers, pinned: Integers, length: int) -> Integers:
    """Return a ranking of `length` documents: pinned ones keep their submitted position.

    The others fill the remaining positions in the order of `best`.

    >>> with_pinned(np.array([3, 0, 2]), np.array([1]), 3)
    array([3, 1, 0])
    """
    shown = np.full(length, -1)
    held = pinned[pinned < length]
    shown[held] = held
    shown[shown < 0] = best[: length - len(held)]
    return shown


def finite(scores: Floats) -> Floats:
    """Return the scores as float64; ValueError if one of them is not finite."""
    scores = np.asarray(scores, np.float64)
    if not np.isfinite(scores).all():
        where = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ValueError(f"scores[{where}]: expected a finite number, got {scores[where]}")
    return scores
