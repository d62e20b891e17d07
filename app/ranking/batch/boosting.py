"""The weight of a weak ranker, as AdaBoost has it; for RankBoost and AdaRank."""

from math import atanh

#: A weak ranker with this edge r is right everywhere; α would be infinite at 1.
LARGEST_EDGE = 1.0 - 1e-9


def vote_weight(edge: float) -> float:
    """Return `α = ½ ln((1 + r) / (1 - r))`; finite, ±10.7, for |r| = 1.

    >>> round(vote_weight(0.5), 6), round(vote_weight(-1.0), 2)
    (0.549306, -10.71)
    """
    return atanh(max(-LARGEST_EDGE, min(LARGEST_EDGE, edge)))
