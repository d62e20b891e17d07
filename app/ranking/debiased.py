"""Debiased clicks (Oosterhuis & de Rijke 2018): pairs from a randomised ranking, with weights.

The ranking R is a Plackett-Luce sample, and R* is R with the positions a < b exchanged. Let
`e_i = exp(s_i - max s)`, `rest` the sum of e over the documents not shown, and
`T_i = rest + Σ_{j≥i} e_j`. The ratio of their probabilities and the weight of the pair are

    P(R)/P(R*) = Π_{i=a+1..b} (T_i + e_a - e_b) / T_i,    ρ = 1 / (1 + P(R)/P(R*)),    ω = κ·2ρ

A pair that was likely to appear in this order gets a small weight, which removes position bias.
The impression stores e, so this module calls no exp. Pinned documents are not sampled: they have
no e and no pairs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.ranking.arrays import Floats, Integers, owned
from app.ranking.lanes import kernel
from app.ranking.limits import KAPPA
from app.ranking.pairs import Pairs
from app.ranking.serving import PINNED

LEAST_WEIGHT = 1e-6


def pairs(clicks: Sequence[int], odds: Floats, kappa: float = KAPPA) -> Pairs:
    """Return each clicked document over each unclicked one, down to one below the last click.

    `odds` holds e of the shown documents, in the order shown, and then `rest`.

    >>> found = pairs([1], np.array([1.0, 1.0, 1.0, 0.0]))
    >>> found.listed(), found.weights
    ([(1, 0), (1, 2)], array([1., 1.]))
    """
    shown = len(odds) - 1
    clicked = np.zeros(shown, np.uint8)
    if clicks and not 0 <= min(clicks) <= max(clicks) < shown:
        raise ValueError(f"clicks: expected positions below {shown}")
    clicked[list(clicks)] = 1
    odds = owned(checked_odds(odds), np.float64)
    preferred, other = seen_pairs(clicked, odds)
    return Pairs(preferred, other, pair_weights(preferred, other, odds, kappa))


def checked_odds(odds: Floats) -> Floats:
    """Return valid odds; raise ValueError for others."""
    if not (np.isfinite(odds).all() and ((odds >= 0.0) | (odds == PINNED)).all() and odds[-1] >= 0):
        raise ValueError("odds: expected finite numbers of at least 0")
    return odds


@kernel
def seen_pairs(clicked: Any, odds: Any) -> Any:
    """Return each clicked position over each unclicked one, down to one below the last click.

    Pinned positions have no pairs, but a click on one counts as the last click.
    """
    last = -2
    for i in range(clicked.shape[0]):
        if clicked[i]:
            last = i
    seen = min(clicked.shape[0], last + 2)
    preferred = np.empty(seen * seen // 4, np.int64)  # the largest possible number of pairs
    other = np.empty_like(preferred)
    count = 0
    for c in range(seen):
        if clicked[c] and odds[c] >= 0.0:
            for u in range(seen):
                if not clicked[u] and odds[u] >= 0.0:
                    preferred[count], other[count] = c, u
                    count += 1
    return preferred[:count].copy(), other[:count].copy()


@kernel
def pair_weights(preferred: Any, other: Any, odds: Any, kappa: float) -> Any:
    """Return `ω` of each pair of positions; the last of `odds` is `rest`."""
    shown = len(odds) - 1
    left = np.empty(shown)  # T
    total = odds[shown]
    for i in range(shown - 1, -1, -1):
        total += max(0.0, odds[i])
        left[i] = total
    found = np.empty(len(preferred))
    for at in range(len(preferred)):
        a, b = min(preferred[at], other[at]), max(preferred[at], other[at])
        ratio = 1.0
        for i in range(a + 1, b + 1):
            if odds[i] < 0.0:
                continue
            if left[i] > 0.0:
                ratio *= (left[i] + odds[a] - odds[b]) / left[i]
            else:  # all e from here on underflow to 0
                ratio = np.inf
        found[at] = max(LEAST_WEIGHT, kappa * 2.0 / (1.0 + ratio))
    return found


def has_preference(odds: Floats) -> bool:
    """Whether the model prefers some order: with equal scores all e are 1, and `rest` is a count.

    >>> has_preference(np.array([1.0, 1.0, 3.0])), has_preference(np.array([0.5, 1.0, 3.0]))
    (False, True)
    """
    return bool((odds[:-1][odds[:-1] != PINNED] != 1.0).any() or odds[-1] % 1.0)


def wins(found: Pairs, positions: Integers) -> float:
    """Return `Σω·[the preferred document ranks higher]`; `positions[d]` is the position of d."""
    higher = positions[found.preferred] < positions[found.other]
    return float(found.weights[higher].sum())


def model_positions(odds: Floats, submitted: Integers) -> Integers:
    """Return the position of each shown document in the model order; ties keep submitted order.

    >>> model_positions(np.array([0.1, 1.0, 0.1, 0.0]), np.array([5, 7, 2]))
    array([2, 0, 1])
    """
    order = np.lexsort((submitted, -odds[:-1]))
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return positions
