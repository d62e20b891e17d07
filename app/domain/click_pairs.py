"""What clicks on a list say: the pairs to learn, and whose order they bear out. Pure.

A list that was varied before it was shown (drawn, or neighbours exchanged) tells which document is
better; one that was not tells that only to the classical readings.
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
    """ValueError if a list cannot have been drawn or swapped as it says."""
    if event.odds is not None:
        if event.odds.shape != (len(event.documents) + 1,) or event.odds.dtype != np.float64:
            raise ValueError("odds: expected one of each document, and the rest")
        debiased.checked_odds(event.odds)
    if event.swaps is not None:
        fair.checked_swaps(event.swaps, len(event.documents))


def explored(event: Feedback) -> bool:
    """Whether the list was varied before it was shown."""
    if event.swaps is not None:
        return len(event.swaps) > 0
    return event.odds is not None and debiased.varied(event.odds)


class ClickPairs:
    """An event of clicks, with those that came before it on the same list."""

    def __init__(self, event: Feedback) -> None:
        self._event, self._shown = event, len(event.documents)
        self._clicks = all_clicks(event).tolist()

    def new_pairs(self, reading: str) -> Pairs:
        """The pairs that the clicks so far give, less those that an event before gave already."""
        pairs = self._pairs(len(self._clicks), reading)
        rounds = self._event.rounds
        if rounds is None or not rounds.size:
            return pairs
        learnt = {
            pair
            for many in self._different(as_positions(rounds, len(self._clicks) + 1), reading)
            for pair in self._pairs(many, reading).listed()
        }
        return pairs.some(np.array([pair not in learnt for pair in pairs.listed()], np.bool_))

    def _different(self, ends: "np.ndarray", reading: str) -> list[int]:
        """After how many clicks an event ended: each state of a list once, as others say no more.

        Which click came last matters to one reading alone.
        """
        by_last = reading == "last-click-skip-above"
        states = {
            (frozenset(self._clicks[:many]), self._clicks[many - 1] if by_last and many else None):
            many
            for many in ends.tolist()
        }  # fmt: skip
        return list(states.values())

    def _pairs(self, many: int, reading: str) -> Pairs:
        if reading not in EXPLORING:
            return from_clicks(self._clicks[:many], self._shown, reading)
        return self._all_fair if many == len(self._clicks) else self._fair(many)

    def _fair(self, many: int) -> Pairs:
        """What the first clicks say whoever stood higher; nothing, if the list was not varied."""
        clicks, event = self._clicks[:many], self._event
        if event.swaps is not None:
            return fair.pairs(clicks, event.swaps, self._shown)
        return Pairs.of([]) if event.odds is None else debiased.pairs(clicks, event.odds)

    @cached_property
    def _all_fair(self) -> Pairs:
        return self._fair(len(self._clicks))

    def wins(self) -> Floats:
        """What this event adds to the debiased wins: those of all clicks, less those of before.

        The weight of their pairs, of those that the model's plain order gets right, and of those
        that the order as submitted does. A list that was not varied judges nobody.
        """
        event = self._event
        if event.submitted is None or not explored(event):
            return np.zeros(3)
        before = len(self._clicks) - len(event.clicks if event.clicks is not None else ())
        won = self._won(self._all_fair)
        return won - self._won(self._fair(before)) if before else won

    def _won(self, pairs: Pairs) -> Floats:
        event = self._event
        assert event.submitted is not None  # noqa: S101  # mypy; `wins` has looked
        if not pairs.weights.size:
            return np.zeros(3)
        if event.swaps is not None:
            plain = fair.plain_places(event.swaps, self._shown)
        elif event.odds is not None:
            plain = debiased.plain_places(event.odds, event.submitted)
        both = debiased.wins(pairs, plain), debiased.wins(pairs, event.submitted)
        found = np.array([float(pairs.weights.sum()), *both])
        if event.swaps is not None:  # they say as much as pairs that were drawn either way as often
            found *= debiased.KAPPA / fair.WEIGHT
        return found
