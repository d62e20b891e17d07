"""Debiased clicks (Oosterhuis & de Rijke 2018): what a click on a drawn list says, and how much.

The list shown was a Plackett-Luce sample. With `e_i = exp(s_i - max s)` as sampled from, `rest` the
sum of e over the documents not shown, and `T_i = rest + Σ_{j≥i} e_j`, the chance of the list next
to that of the same list with the places a < b exchanged is

    P(R)/P(R*) = Π_{i=a+1..b} (T_i + e_a - e_b) / T_i,    ρ = 1 / (1 + that),    ω = κ·2ρ

so a pair that was likely to be seen in this order weighs little. No exp in here: e is remembered.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.ranking.arrays import Floats, Integers, owned
from app.ranking.lanes import kernel
from app.ranking.pairs import Pairs

#: With the default γ = 1e4 a pair that was as likely to be seen either way weighs so much.
KAPPA = 10.0
LEAST = 1e-6


def pairs(clicks: Sequence[int], odds: Floats, kappa: float = KAPPA) -> Pairs:
    """Each clicked document from the top, over each unclicked one down to one below the last click.

    `odds` are the e of the documents shown, in the order shown, and then `rest`.

    >>> found = pairs([1], np.array([1.0, 1.0, 1.0, 0.0]))
    >>> found.listed(), found.weights
    ([(1, 0), (1, 2)], array([10., 10.]))
    """
    shown = len(odds) - 1
    clicked = sorted(set(clicks))
    if clicked and not 0 <= clicked[0] <= clicked[-1] < shown:
        raise ValueError(f"clicks: expected positions below {shown}")
    if not (np.isfinite(odds).all() and (odds >= 0.0).all()):
        raise ValueError("odds: expected finite numbers from 0")
    seen = range(min(shown, clicked[-1] + 2) if clicked else 0)
    listed = Pairs.of([(c, u) for c in clicked for u in seen if u not in set(clicked)])
    weights = pair_weights(listed.preferred, listed.other, owned(odds, np.float64), kappa)
    return Pairs(listed.preferred, listed.other, weights)


@kernel
def pair_weights(preferred: Any, other: Any, odds: Any, kappa: float) -> Any:
    """`ω` of each pair of places; the last of `odds` is `rest`."""
    shown = len(odds) - 1
    left = np.empty(shown)  # T
    total = odds[shown]
    for i in range(shown - 1, -1, -1):
        total += odds[i]
        left[i] = total
    found = np.empty(len(preferred))
    for at in range(len(preferred)):
        a, b = min(preferred[at], other[at]), max(preferred[at], other[at])
        ratio = 1.0
        for i in range(a + 1, b + 1):
            if left[i] > 0.0:
                ratio *= (left[i] + odds[a] - odds[b]) / left[i]
            else:  # what came after was out of float64's reach
                ratio = np.inf
        found[at] = max(LEAST, kappa * 2.0 / (1.0 + ratio))
    return found


def wins(found: Pairs, places: Integers) -> float:
    """`Σω·[the clicked one stands higher]` in an order: `places[d]` is where document d stands."""
    higher = places[found.preferred] < places[found.other]
    return float(found.weights[higher].sum())


def plain_places(odds: Floats, submitted: Integers) -> Integers:
    """Where each document shown stands among them without the draw; ties as submitted.

    >>> plain_places(np.array([0.1, 1.0, 0.1, 0.0]), np.array([5, 7, 2]))
    array([2, 0, 1])
    """
    order = np.lexsort((submitted, -odds[:-1]))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places
