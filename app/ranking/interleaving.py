"""Team-draft interleaving (Radlinski et al. 2008) of two orders of the same documents.

The draft begins where the two orders first differ. In each round a coin says which order chooses
first; each takes its best document that is not in the list yet. If the two first choices of a
round differ, they take the next two places, and the coin alone decides which one is above: they
are a pair of FairPairs (`fair.py`), exchanged with probability ½.
"""

from typing import NamedTuple

import numpy as np

from app.ranking.arrays import Floats, Integers

#: The teams of a place: documents before the first difference and pinned ones have none.
FIRST, SECOND, NO_TEAM = 1, -1, 0


class Draft(NamedTuple):
    """Documents in the order of a draft, the team of each, and the rounds that are fair pairs.

    A round is (upper place, 1 if the choice of the second order is above, else 0).
    """

    shown: Integers
    teams: Integers
    rounds: Integers


def team_draft(first: Integers, second: Integers, length: int, uniforms: Floats) -> Draft:
    """Interleave the first `length` documents of two orders; each round takes one of `uniforms`.

    Each order has at least its best `length` documents.

    >>> team_draft(np.array([5, 7, 8]), np.array([5, 8, 7]), 3, np.array([0.9]))
    Draft(shown=array([5, 8, 7]), teams=array([ 0, -1,  1]), rounds=array([[1, 1]]))
    """
    orders = first.tolist(), second.tolist()
    shown = orders[0][: common_prefix(first[:length], second[:length])]
    teams, rounds, taken = [NO_TEAM] * len(shown), list[tuple[int, int]](), set(shown)
    heads = [len(shown), len(shown)]  # places in both orders: all documents before are taken
    for uniform in uniforms.tolist():
        if len(shown) >= length:
            break
        best = [_next_free(orders[side], heads, side, taken) for side in (0, 1)]
        chooses = 0 if uniform < 0.5 else 1
        if best[0] != best[1] and len(shown) + 1 < length:
            rounds.append((len(shown), chooses))
        for side in (chooses, 1 - chooses)[: length - len(shown)]:
            chosen = _next_free(orders[side], heads, side, taken)
            shown.append(chosen)
            taken.add(chosen)
            teams.append(SECOND if side else FIRST)
    pairs = np.array(rounds, np.int64).reshape(-1, 2)
    return Draft(np.array(shown, np.int64), np.array(teams, np.int64), pairs)


def most_rounds(length: int) -> int:
    """Return the largest number of rounds of a list of `length` documents.

    >>> most_rounds(4), most_rounds(5)
    (2, 3)
    """
    return (length + 1) // 2


def common_prefix(first: Integers, second: Integers) -> int:
    """Return how many documents two orders have in common at the top.

    >>> common_prefix(np.array([3, 1, 2]), np.array([3, 2, 1]))
    1
    """
    differ = np.flatnonzero(first != second)
    return int(differ[0]) if differ.size else len(first)


def _next_free(order: list[int], heads: list[int], side: int, taken: set[int]) -> int:
    """Return the best document of an order that is not taken; move its head there."""
    while order[heads[side]] in taken:
        heads[side] += 1
    return order[heads[side]]


def around_pinned(draft: Draft, pinned: Integers, length: int) -> Draft:
    """Place a draft around pinned documents, which keep their submitted position and have no team.

    A round whose two places are parted by a pinned document is no pair.

    >>> draft = Draft(np.array([8, 7]), np.array([-1, 1]), np.array([[0, 1]]))
    >>> around_pinned(draft, np.array([1]), 3)[:2]
    (array([8, 1, 7]), array([-1,  0,  1]))
    """
    held = pinned[pinned < length]
    free = np.setdiff1d(np.arange(length), held)
    shown, teams = np.empty(length, np.int64), np.full(length, NO_TEAM)
    shown[held], shown[free], teams[free] = held, draft.shown, draft.teams
    upper = draft.rounds[:, 0]
    together = free[upper + 1] == free[upper] + 1
    rounds = np.column_stack([free[upper], draft.rounds[:, 1]])[together]
    return Draft(shown, teams, rounds.reshape(-1, 2))


def outcomes_after(teams: Integers, clicks: Integers, ends: Integers) -> Integers:
    """Return which team had more clicked documents after each of these numbers of clicks.

    FIRST, SECOND, or 0 for a tie. A document that is clicked twice counts once.

    >>> outcomes_after(np.array([0, 1, -1]), np.array([1, 2, 1]), np.array([0, 1, 2, 3]))
    array([0, 1, 0, 0])
    """
    credit = np.zeros(len(clicks) + 1, np.int64)
    _, first = np.unique(clicks, return_index=True)
    credit[first + 1] = teams[clicks[first]]
    found: Integers = np.sign(credit.cumsum()[ends])
    return found
