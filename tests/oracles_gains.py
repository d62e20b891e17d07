"""A naive oracle of lists: what comes of them event by event, and the pairs of each, one by one.

It reads of a record only what a client sent (clicks, gains, examined positions) and how the list
was shown. What a record carries of earlier events, and the arrays of the app, it does not use.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from app.domain.impressions import PriorFeedback
from app.domain.model_config import EXPLORING, ModelConfig
from app.domain.records import Feedback
from app.ranking.pairs import Pairs

#: The smallest weight, the smallest of a debiased pair, and the largest difference of grades.
LEAST, LEAST_DEBIASED, MOST_DIFFERENCE = 1e-12, 1e-6, 10.0
#: A pair of places, its weight, and the weight that it got before.
OraclePair = tuple[int, int, float, float]


@dataclass(frozen=True)
class Moment:
    """What had come of a list after an event."""

    grades: tuple[float, ...]
    clicks: tuple[int, ...] = ()
    gains: tuple[float, ...] = ()
    lasts: frozenset[int] = frozenset()
    deepest: int = 0


@dataclass
class OracleList:
    """A list, and each event on it so far."""

    shown: int
    moments: list[Moment] = field(default_factory=list)
    examined: list[int] = field(default_factory=list)
    has_gains: bool = False
    has_examined: bool = False

    @property
    def now(self) -> Moment:
        """What has come of the list."""
        return self.moments[-1] if self.moments else Moment((0.0,) * self.shown)

    def take(self, clicks: Any, gains: Any = None, examined: Any = None) -> None:
        """Take one more event, as a client sent it."""
        before, places = self.now, [int(one) for one in clicks]
        given = [1.0] * len(places) if gains is None else [float(one) for one in gains]
        grades, depth = list(before.grades), 0 if examined is None else int(examined[0])
        for place, gain in zip(places, given, strict=True):
            grades[place] = max(grades[place], gain)
        self.moments.append(
            Moment(
                tuple(grades), (*before.clicks, *places), (*before.gains, *given),
                before.lasts | set(places[-1:]), max(before.deepest, depth),
            )
        )  # fmt: skip
        self.examined.append(depth)
        self.has_gains |= gains is not None
        self.has_examined |= examined is not None

    def carried(self, counts_abandoned: bool) -> tuple[Any, ...]:
        """Return what a later record carries of the list: also what the store keeps of it."""
        rounds, now = [len(one.clicks) for one in self.moments], self.now
        counted: list[float] | None = None
        if self.moments:
            counted = [] if counts_abandoned and not now.clicks else list(now.grades)
        gains = list(now.gains) if self.has_gains else None
        return (
            list(now.clicks),
            rounds,
            counted,
            gains,
            [*self.examined] if self.has_examined else None,
        )

    def pairs(self, record: Feedback, strategy: str, kappa: float) -> list[OraclePair]:
        """Return the pairs that the last event teaches: each with the increase of its weight."""
        found = []
        for c, u, omega in self._candidates(record, strategy, kappa):
            before = max([0.0, *(_steps(one, record, strategy, c, u) for one in self.moments[:-1])])
            steps = _steps(self.now, record, strategy, c, u)
            if steps > before and omega * steps - omega * before >= LEAST:
                found.append((c, u, omega * steps - omega * before, omega * before))
        return found

    def _candidates(
        self, record: Feedback, strategy: str, kappa: float
    ) -> list[tuple[int, int, float]]:
        every = [(c, u) for c in range(self.shown) for u in range(self.shown)]
        if strategy not in EXPLORING:
            return [(c, u, 1.0) for c, u in every]
        if record.swaps is not None:
            omega = kappa if record.duel is not None and strategy == "debiased" else 100.0
            uppers = [int(one) for one in record.swaps[:, 0]]
            return [(*two, omega) for at in uppers for two in ((at, at + 1), (at + 1, at))]
        if record.odds is None:
            return []
        odds = [float(one) for one in record.odds]
        drawn = [(c, u) for c, u in every if c != u and odds[c] >= 0.0 and odds[u] >= 0.0]
        return [(c, u, _omega(odds, c, u, kappa)) for c, u in drawn]


def _omega(odds: list[float], c: int, u: int, kappa: float) -> float:
    """The weight of a debiased pair (`app/ranking/debiased.py` has the formula)."""
    first, last, ratio = min(c, u), max(c, u), 1.0
    left = odds[-1]
    lefts = [left := left + max(0.0, one) for one in reversed(odds[:-1])][::-1]
    for at in range(first + 1, last + 1):
        if odds[at] >= 0.0:
            more = (lefts[at] + odds[first] - odds[last]) / lefts[at] if lefts[at] else np.inf
            ratio *= more
    return max(LEAST_DEBIASED, kappa * 2.0 / (1.0 + ratio))


def _steps(moment: Moment, record: Feedback, strategy: str, c: int, u: int) -> float:
    """The difference of two grades, if the reading considers this pair; else 0."""
    difference = moment.grades[c] - moment.grades[u]
    if not moment.clicks or difference <= 0.0:
        return 0.0
    last, shown, depth = max(moment.clicks), len(moment.grades), moment.deepest
    considered = {
        "click-skip-above": u < c,
        "last-click-skip-above": u < c and c in moment.lasts,
        "click-skip-previous": u == c - 1,
        "click-no-click-next": u == c + 1 and u < (max(depth, last + 1) if depth else shown),
        "debiased": max(c, u) < max(depth, last + 2),
        "fair-pairs": True,
    }
    known = (strategy in EXPLORING and record.swaps is not None) or considered[strategy]
    return min(difference, MOST_DIFFERENCE) if known else 0.0


class OracleLists:
    """All lists of a log, by a name of each."""

    def __init__(self) -> None:
        self._lists: dict[str, OracleList] = {}

    def __getitem__(self, name: str) -> OracleList:
        return self._lists[name]

    def __iter__(self) -> Any:
        return iter(self._lists)

    def take(self, name: str, record: Feedback, config: ModelConfig, whole: bool = True) -> str:
        """Take the next record on a list; return how what it carries differs, "" if it does not.

        If the log is not `whole`, a list begins with what its first record carries.
        """
        assert record.clicks is not None
        if name not in self._lists:
            self._lists[name] = OracleList(len(record.documents))
            if not whole:
                _begin(self._lists[name], record)
        one = self._lists[name]
        expected = one.carried(config.counts_abandoned)
        found = tuple(
            None if array is None else array.tolist()
            for array in (
                record.clicked_before, record.rounds, record.counted, record.gains_before,
                record.examined_before,
            )
        )  # fmt: skip
        one.take(record.clicks, record.gains, record.examined)
        return "" if found == expected else f"{record.event} carries {found}, not {expected}"


def _begin(one: OracleList, record: Feedback) -> None:
    """Take the earlier events that a record carries."""
    assert record.clicked_before is not None
    assert record.rounds is not None
    start = 0
    for at, end in enumerate(record.rounds.tolist()):
        gains = None if record.gains_before is None else record.gains_before[start:end]
        examined = None if record.examined_before is None else record.examined_before[at : at + 1]
        one.take(record.clicked_before[start:end], gains, examined)
        start = end


def carried_by(blob: bytes) -> tuple[Any, ...]:
    """What the store keeps of a list, as `OracleList.carried` states it."""
    kept = PriorFeedback.load(blob)
    arrays = (kept.clicks, kept.rounds, kept.counted, kept.gains, kept.examined)
    return tuple(None if array is None else array.tolist() for array in arrays)


def same_pairs(found: Pairs, expected: list[OraclePair]) -> bool:
    """Whether the pairs of the app are those of the oracle, in their order and bit by bit."""
    weights = np.array([one[2] for one in expected]).tobytes()
    before = np.array([one[3] for one in expected])
    known = np.zeros(len(expected)) if found.before is None else found.before
    same = found.weights.tobytes() == weights and known.tobytes() == before.tobytes()
    return found.listed() == [one[:2] for one in expected] and same


def as_triplets(record: Feedback, pairs: list[OraclePair]) -> Feedback:
    """Return a record without clicks that teaches the same pairs."""
    count = len(record.documents)
    columns = ([one[at] for one in pairs] for at in range(3))
    preferred, other, weights = columns
    plain = Feedback(record.event, "triplets", record.documents, counted=np.zeros(count))
    return replace(
        plain, preferred=np.array(preferred, np.int64), other=np.array(other, np.int64),
        weights=np.array(weights, np.float64),
    )  # fmt: skip
