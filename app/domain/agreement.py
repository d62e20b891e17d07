"""How often the order of a follower agrees with that of its leader. Pure.

A worker, which loads no compiler, does not import this module, but `followers.py`.
"""

import numpy as np

from app.domain.records import Feedback
from app.ranking import debiased, fair
from app.ranking.arrays import Floats, Integers
from app.ranking.serving import PINNED

#: Orders are compared over the leader's first documents.
COMPARED = 10


def agreement(event: Feedback, scores: Floats) -> float | None:
    """Return the share of pairs of the leader's first documents that have the same order by scores.

    None if the leader's order is unknown (a list of a duel, own documents) or has fewer than two
    documents. Equal scores keep the submitted order.
    """
    leaders = _leader_positions(event)
    if leaders is None or event.submitted is None:
        return None
    count, places = len(leaders), np.empty(len(leaders), np.int64)
    first = np.argsort(leaders, kind="stable")
    if event.odds is not None:
        first = first[event.odds[first] != PINNED]
    first = first[:COMPARED]
    if len(first) < 2:
        return None
    places[np.lexsort((event.submitted, -scores))] = np.arange(count)
    found = places[first]
    kept = np.triu(found[:, None] < found[None, :], 1).sum()
    return float(kept) / (len(first) * (len(first) - 1) // 2)


def _leader_positions(event: Feedback) -> Integers | None:
    """Return the position of each shown document in the leader's plain order; None: unknown."""
    if event.submitted is None or event.duel is not None:
        return None
    if event.odds is not None:
        return debiased.model_positions(event.odds, event.submitted)
    if event.swaps is not None:
        return fair.model_positions(event.swaps, len(event.documents))
    return np.arange(len(event.documents))
