"""Pairs from clicks on a ranking, and the debiased wins of the orders. Pure.

Clicks on a randomised ranking (sampled, or with swapped neighbours) reveal relevance rather than
position. From other rankings only the classical click strategies learn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from app.domain.counting import NO_WINS
from app.domain.impressions import all_clicks, as_positions, list_feedback
from app.domain.model import Positions
from app.domain.model_config import EXPLORING
from app.domain.records import Feedback, is_graded
from app.ranking import debiased, fair, graded
from app.ranking.arrays import Floats
from app.ranking.grades import ListFeedback
from app.ranking.interleaving import FIRST, NO_TEAM, SECOND
from app.ranking.pairs import Pairs, from_clicks
from app.ranking.serving import PINNED


def check_exploration(event: Feedback) -> None:
    """ValueError if the odds, swaps or teams of a ranking are impossible."""
    if event.odds is not None:
        if event.odds.shape != (len(event.documents) + 1,) or event.odds.dtype != np.float64:
            raise ValueError("odds: expected one value per document and one for the rest")
        debiased.checked_odds(event.odds)
    if event.swaps is not None:
        fair.checked_swaps(event.swaps, len(event.documents))
    if event.duel is not None:
        _check_teams(event, event.duel)


def _check_teams(event: Feedback, duel: Positions) -> None:
    if duel.shape != (len(event.documents) + 1,) or duel.dtype != np.int64:
        raise ValueError("duel: expected its id and the team of each document")
    if event.submitted is None or event.odds is not None:
        raise ValueError("duel: expected a ranking that was served, and no odds")
    if duel[0] < 1 or not np.isin(duel[1:], (FIRST, NO_TEAM, SECOND)).all():
        raise ValueError("duel: expected an id from 1, and teams of -1, 0 or 1")
    if event.swaps is not None:
        uppers, teams = event.swaps[:, 0], duel[1:]
        above = np.where(event.swaps[:, 1] == 1, SECOND, FIRST)
        if not ((teams[uppers] == above) & (teams[uppers + 1] == -above)).all():
            raise ValueError("duel: expected a document of each team in the places of a round")


def explored(event: Feedback) -> bool:
    """Check whether the ranking was randomised; at equal scores, whether that changed it.

    Rankings of duels count apart.
    """
    if event.duel is not None:
        return False
    if judges(event):
        return True
    if event.odds is None or event.submitted is None:
        return False
    drawn = event.submitted[event.odds[:-1] != PINNED]
    return bool((drawn[1:] < drawn[:-1]).any())


def judges(event: Feedback) -> bool:
    """Check whether clicks on the ranking tell the model order from the submitted order."""
    if event.duel is not None:
        return False
    if event.swaps is not None:
        return len(event.swaps) > 0
    return event.odds is not None and debiased.has_preference(event.odds)


def _distinct(each: Sequence[ListFeedback]) -> Iterator[ListFeedback]:
    """Yield what had come of a list, without events that changed nothing; the last one always."""
    before: tuple[object, ...] = ()
    for at, one in enumerate(each, start=1):
        lowest = int(one.clicks.max(initial=-1))
        now = (one.grades.tobytes(), one.examined, one.lasts, lowest)
        if now != before or at == len(each):
            yield one
        before = now


class ClickPairs:
    """A click event, with the earlier clicks on the same ranking.

    `kappa` is the weight of a debiased pair whose two orders are equally likely.
    """

    def __init__(self, event: Feedback, kappa: float) -> None:
        self._event, self._shown, self._kappa = event, len(event.documents), kappa
        self._clicks = all_clicks(event).tolist()
        self._found: dict[int, Pairs] = {}  # fair pairs by the number of clicks
        self._graded = list_feedback(event) if is_graded(event) else None

    def new_pairs(self, strategy: str) -> Pairs:
        """Pairs of all clicks so far, without those that an earlier event already gave.

        With gains a pair may have given less weight before; it then comes with the increase.
        """
        if self._graded is not None:
            reading = self._reading(strategy)
            *earlier, now = _distinct(self._graded)
            return graded.new_pairs(now, earlier, reading) if reading else Pairs.of([])
        pairs = self._pairs(len(self._clicks), strategy)
        learnt = self._pairs(self._end_of_earlier(strategy), strategy)
        if not learnt.preferred.size:
            return pairs
        known = np.isin(self._numbered(pairs), self._numbered(learnt))
        return pairs.some(~known)

    def _end_of_earlier(self, strategy: str) -> int:
        """Number of clicks after the earlier event that gave all known pairs; 0 if none did.

        Clicks only grow. So each pair of an earlier event whose other document has no click yet is
        also a pair of the last earlier event. One strategy has pairs of the last click only: for
        it, this is the last earlier event with the same last click.
        """
        rounds, clicks = self._event.rounds, self._clicks
        if rounds is None or not rounds.size:
            return 0
        ends = as_positions(rounds, len(clicks) + 1).tolist()
        if strategy == "last-click-skip-above":
            ends = [many for many in ends if many and clicks[many - 1] == clicks[-1]]
        return max(ends, default=0)

    def _numbered(self, pairs: Pairs) -> Positions:
        """One number for each pair."""
        return pairs.preferred * self._shown + pairs.other

    def _pairs(self, many: int, strategy: str) -> Pairs:
        if strategy not in EXPLORING:
            return from_clicks(self._clicks[:many], self._shown, strategy)
        found = self._fair(many)
        if self._is_debiased_duel(strategy):
            found = replace(found, weights=np.full(len(found), self._kappa))
        return found

    def _reading(self, strategy: str) -> graded.PairReading | None:
        """Return how clicks with gains are read; None if the list teaches nothing."""
        event = self._event
        if strategy not in EXPLORING:
            return graded.PairReading(strategy)
        if event.swaps is not None:
            weight = self._kappa if self._is_debiased_duel(strategy) else fair.WEIGHT
            return graded.PairReading(strategy, weight, swaps=event.swaps)
        if event.odds is None:
            return None
        return graded.PairReading(strategy, self._kappa, event.odds)

    def _graded_wins(self, feedback: ListFeedback) -> Floats:
        reading = self._reading("debiased")
        return self._won(graded.pairs(feedback, reading)) if reading else NO_WINS

    def _is_debiased_duel(self, strategy: str) -> bool:
        return self._event.duel is not None and strategy == "debiased"

    def _fair(self, many: int) -> Pairs:
        """Pairs of the first clicks without position bias; none if there was no exploration."""
        if many not in self._found:
            self._found[many] = self._fair_anew(many)
        return self._found[many]

    def _fair_anew(self, many: int) -> Pairs:
        clicks, event = self._clicks[:many], self._event
        if event.swaps is not None:
            return fair.pairs(clicks, event.swaps, self._shown)
        if event.odds is None:
            return Pairs.of([])
        return debiased.pairs(clicks, event.odds, self._kappa)

    def wins(self) -> tuple[Floats, Floats]:
        """Compute the debiased wins of the ranking: by all clicks, and by the earlier ones alone.

        Each is the weight of all pairs, of those that the model order ranks correctly, and of
        those that the submitted order does. All are 0 if the ranking was not randomised.
        """
        event = self._event
        if event.submitted is None or not judges(event):
            return NO_WINS, NO_WINS
        if self._graded is not None:
            both = [self._graded_wins(one) for one in self._graded[-2:]]
            return both[-1], both[0] if len(both) > 1 else NO_WINS
        before = len(self._clicks) - len(event.clicks if event.clicks is not None else ())
        won = self._won(self._fair(len(self._clicks)))
        return won, self._won(self._fair(before)) if before else NO_WINS

    def _won(self, pairs: Pairs) -> Floats:
        event = self._event
        assert event.submitted is not None  # noqa: S101  # mypy; `wins` has checked
        if not pairs.weights.size:
            return NO_WINS
        if event.swaps is not None:
            model_order = fair.model_positions(event.swaps, self._shown)
        elif event.odds is not None:
            model_order = debiased.model_positions(event.odds, event.submitted)
        both = debiased.wins(pairs, model_order), debiased.wins(pairs, event.submitted)
        found = np.array([float(pairs.weights.sum()), *both])
        if event.swaps is not None:  # weigh as sampled pairs with both orders equally likely
            found *= self._kappa / fair.WEIGHT
        return found
