"""Pairs from clicks on a ranking, and the debiased wins of the orders. Pure.

Clicks on a randomised ranking (sampled, or with swapped neighbours) reveal relevance rather than
position. From other rankings only the classical click strategies learn.
"""

from functools import cached_property

import numpy as np

from app.domain.impressions import all_clicks, as_positions
from app.domain.model_config import EXPLORING
from app.domain.records import Feedback
from app.ranking import debiased, fair
from app.ranking.arrays import Floats
from app.ranking.pairs import Pairs, from_clicks


def check_exploration(event: Feedback) -> None:
    """ValueError if the odds or swaps of a ranking are impossible."""
    if event.odds is not None:
        if event.odds.shape != (len(event.documents) + 1,) or event.odds.dtype != np.float64:
            raise ValueError("odds: expected one value per document and one for the rest")
        debiased.checked_odds(event.odds)
    if event.swaps is not None:
        fair.checked_swaps(event.swaps, len(event.documents))


def explored(event: Feedback) -> bool:
    """Check whether the ranking was randomised."""
    if event.swaps is not None:
        return len(event.swaps) > 0
    return event.odds is not None and debiased.is_randomised(event.odds)


class ClickPairs:
    """A click event, with the earlier clicks on the same ranking."""

    def __init__(self, event: Feedback) -> None:
        self._event, self._shown = event, len(event.documents)
        self._clicks = all_clicks(event).tolist()

    def new_pairs(self, strategy: str) -> Pairs:
        """Pairs of all clicks so far, without those that an earlier event already gave."""
        pairs = self._pairs(len(self._clicks), strategy)
        rounds = self._event.rounds
        if rounds is None or not rounds.size:
            return pairs
        learnt = {
            pair
            for many in self._earlier(as_positions(rounds, len(self._clicks) + 1), strategy)
            for pair in self._pairs(many, strategy).listed()
        }
        return pairs.some(np.array([pair not in learnt for pair in pairs.listed()], np.bool_))

    def _earlier(self, ends: "np.ndarray", strategy: str) -> list[int]:
        """Numbers of clicks after which an event ended, as far as their pairs differ.

        A document without a click had none before. So a pair of all clicks that an event gave is
        also among those of later events: the last one is enough. That is not so if only the click
        that came last gives pairs; states with the same clicks and last click then count once.
        """
        if strategy != "last-click-skip-above":
            return [int(ends.max())]
        states = {
            (frozenset(self._clicks[:many]), *self._clicks[:many][-1:]): many
            for many in ends.tolist()
        }
        return list(states.values())

    def _pairs(self, many: int, strategy: str) -> Pairs:
        if strategy not in EXPLORING:
            return from_clicks(self._clicks[:many], self._shown, strategy)
        return self._all_fair if many == len(self._clicks) else self._fair(many)

    def _fair(self, many: int) -> Pairs:
        """Pairs of the first clicks without position bias; none if there was no exploration."""
        clicks, event = self._clicks[:many], self._event
        if event.swaps is not None:
            return fair.pairs(clicks, event.swaps, self._shown)
        return Pairs.of([]) if event.odds is None else debiased.pairs(clicks, event.odds)

    @cached_property
    def _all_fair(self) -> Pairs:
        return self._fair(len(self._clicks))

    def wins(self) -> Floats:
        """Compute what this event adds to the debiased wins: all clicks minus earlier clicks.

        Returns the weight of all pairs, of those that the model order ranks correctly, and of
        those that the submitted order does. All are 0 if the ranking was not randomised.
        """
        event = self._event
        if event.submitted is None or not explored(event):
            return np.zeros(3)
        before = len(self._clicks) - len(event.clicks if event.clicks is not None else ())
        won = self._won(self._all_fair)
        return won - self._won(self._fair(before)) if before else won

    def _won(self, pairs: Pairs) -> Floats:
        event = self._event
        assert event.submitted is not None  # noqa: S101  # mypy; `wins` has checked
        if not pairs.weights.size:
            return np.zeros(3)
        if event.swaps is not None:
            model_order = fair.model_positions(event.swaps, self._shown)
        elif event.odds is not None:
            model_order = debiased.model_positions(event.odds, event.submitted)
        both = debiased.wins(pairs, model_order), debiased.wins(pairs, event.submitted)
        found = np.array([float(pairs.weights.sum()), *both])
        if event.swaps is not None:  # weigh as sampled pairs with both orders equally likely
            found *= debiased.KAPPA / fair.WEIGHT
        return found
