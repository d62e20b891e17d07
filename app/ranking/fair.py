"""FairPairs (Radlinski & Joachims 2006): neighbours in a ranking are swapped at random.

The positions (0,1), (2,3) … or (1,2), (3,4) … form pairs. Each pair is swapped with probability ½.
If exactly one document of a pair is clicked, it is preferred. Position bias cancels out, because
both documents have the higher position equally often. The ranking stays close to the model order.
"""

from collections.abc import Sequence

import numpy as np

from app.ranking.arrays import Integers
from app.ranking.pairs import Pairs

#: The weight of a pair: with the default γ = 1e4 it acts like weight 1 with γ = 100.
WEIGHT = 100.0


def pairs(clicks: Sequence[int], swaps: Integers, shown: int) -> Pairs:
    """Return the clicked neighbour over the other if exactly one was clicked, from the top.

    `clicks` and `swaps` must be valid for a ranking of `shown` documents.

    >>> pairs([1, 2, 3], np.array([[0, 0], [2, 1]]), 4).listed()
    [(1, 0)]
    """
    uppers = swaps[:, 0]
    clicked = np.zeros(shown, np.bool_)
    clicked[list(clicks)] = True
    one = uppers[clicked[uppers] != clicked[uppers + 1]]
    preferred = np.where(clicked[one], one, one + 1)
    return Pairs(preferred, 2 * one + 1 - preferred, np.full(len(one), WEIGHT))


def model_positions(swaps: Integers, shown: int) -> Integers:
    """Return the position of each shown document before the swaps.

    >>> model_positions(np.array([[0, 1], [2, 0]]), 4)
    array([1, 0, 2, 3])
    """
    positions = np.arange(shown)
    upper = swaps[swaps[:, 1] == 1, 0]
    positions[upper], positions[upper + 1] = upper + 1, upper
    return positions


def checked_swaps(swaps: Integers, shown: int) -> Integers:
    """Return swaps that are valid for a ranking of `shown` documents; else raise ValueError."""
    if swaps.dtype != np.int64 or swaps.ndim != 2 or swaps.shape[1] != 2:
        raise ValueError("swaps: expected int64 rows of (upper position, 0 or 1)")
    uppers = swaps[:, 0]
    if len(uppers) and not (uppers.min() >= 0 and uppers.max() < shown - 1):
        raise ValueError(f"swaps: expected pairs of positions from 0, below {shown}")
    if (uppers[1:] - uppers[:-1] < 2).any() or (swaps[:, 1] & ~1).any():
        raise ValueError("swaps: expected disjoint pairs in ascending order, each with 0 or 1")
    return swaps
