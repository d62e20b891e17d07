"""The list of a duel: the plain orders of two sides, interleaved. Pure.

Whether a request duels, and all coins, are uniforms of the request's name. They are apart from
those that draw rankings (`candidates.exploring_by`), so the same request gets the same list.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from app.domain.candidates import Ranking, scores
from app.domain.model import Documents, Positions
from app.ranking import interleaving, serving
from app.ranking.arrays import Floats


class Sides(NamedTuple):
    """The weights of both sides of a duel; None is the submitted order."""

    champion: Floats | None
    challenger: Floats | None


def duels(uniforms: Callable[[int], Floats], share: float) -> bool:
    """Whether a request duels: its first uniform is below the share."""
    return bool(uniforms(1)[0] < share)


def interleaved(
    documents: Documents,
    weights: Floats,
    sides: Sides,
    top_k: int | None,
    uniforms: Callable[[int], Floats],
    pinned: Positions,
) -> Ranking:
    """Interleave the orders of two sides; the scores are those of the model with `weights`.

    `pinned` documents keep their submitted positions. The uniforms after the first are the coins.
    """
    found, count = scores(documents, weights), len(documents)
    length = count if top_k is None else min(top_k, count)
    others = np.delete(np.arange(count), pinned) if pinned.size else np.arange(count)
    free = length - int((pinned < length).sum())
    each = [_scores(documents, side, found if side is weights else None) for side in sides]
    first, second = (_best(one, others, free) for one in each)
    coins = uniforms(1 + interleaving.most_rounds(free))[1:]
    draft = interleaving.team_draft(first, second, free, coins)
    if pinned.size:
        draft = interleaving.around_pinned(draft, pinned, length)
    return Ranking(draft.shown, found, None, draft.rounds, explored=True, teams=draft.teams)


def _scores(documents: Documents, side: Floats | None, known: Floats | None) -> Floats | None:
    """Return the scores of one side, unless they are known; None is the submitted order."""
    return known if side is None or known is not None else scores(documents, side)


def _best(found: Floats | None, others: Positions, count: int) -> Positions:
    """Return the first documents of one side's plain order among the others."""
    if found is None or not count:
        return others[:count]
    best: Positions = others[serving.top_k(found[others], count)]
    return best


def with_id(duel: int, teams: Positions) -> Positions:
    """Return the array of an impression (`Impression.duel`): the id, then the teams."""
    return np.append(np.int64(duel), teams)
