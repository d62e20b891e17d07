"""FairPairs (Radlinski & Joachims 2006): neighbours shown either way round, each way as often.

The places (0,1), (2,3) … or (1,2), (3,4) … of a list are paired, and the two of each pair exchanged
with chance ½. Where exactly one of them is clicked, it is preferred: whatever makes people click
higher up favours both alike. The list shown is nearly the model's own.
"""

from collections.abc import Sequence

import numpy as np

from app.ranking.arrays import Integers
from app.ranking.pairs import Pairs

#: What a pair weighs: with the default γ = 1e4 as one of weight 1 with γ = 100.
WEIGHT = 100.0


def pairs(clicks: Sequence[int], swaps: Integers, shown: int) -> Pairs:
    """Of neighbours of which exactly one was clicked, that one over the other, from the top.

    Both clicks and swaps must be of a list of so many documents.

    >>> pairs([1, 2, 3], np.array([[0, 0], [2, 1]]), 4).listed()
    [(1, 0)]
    """
    uppers = swaps[:, 0]
    clicked = np.zeros(shown, np.bool_)
    clicked[list(clicks)] = True
    one = uppers[clicked[uppers] != clicked[uppers + 1]]
    preferred = np.where(clicked[one], one, one + 1)
    return Pairs(preferred, 2 * one + 1 - preferred, np.full(len(one), WEIGHT))


def plain_places(swaps: Integers, shown: int) -> Integers:
    """Where each document shown stood before the exchange.

    >>> plain_places(np.array([[0, 1], [2, 0]]), 4)
    array([1, 0, 2, 3])
    """
    places = np.arange(shown)
    upper = swaps[swaps[:, 1] == 1, 0]
    places[upper], places[upper + 1] = upper + 1, upper
    return places


def checked_swaps(swaps: Integers, shown: int) -> Integers:
    """Swaps of a list of so many documents, or ValueError."""
    if swaps.dtype != np.int64 or swaps.ndim != 2 or swaps.shape[1] != 2:
        raise ValueError("swaps: expected rows of a place and whether it was exchanged")
    uppers = swaps[:, 0]
    if len(uppers) and not (uppers[0] >= 0 and uppers[-1] < shown - 1):
        raise ValueError(f"swaps: expected places of neighbours below {shown}")
    if (uppers[1:] - uppers[:-1] < 2).any() or (swaps[:, 1] & ~1).any():
        raise ValueError("swaps: expected neighbours that no two pairs share, from the top")
    return swaps
