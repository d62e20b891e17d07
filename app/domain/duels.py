"""Duels: the lists of two sides are interleaved, and clicks tell which side is better. Pure.

A duel is a part of the state of its champion. There are two counts. `wins` and `losses` are by all
clicks so far: more clicks may change the outcome of a list. `won` and `lost` are for the verdict:
each list counts once, at the first event after which one side leads, and later clicks change
nothing, because a martingale must not look back (`ranking/evidence.py`). A duel of a tournament
counts nothing after its verdict or its part of the lists, so its next step, which is appended
later, follows from the counts that the table shows.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from app.ranking.arrays import Integers
from app.ranking.evidence import MOST_EVIDENCE, factor
from app.ranking.interleaving import FIRST, SECOND, outcomes_after

#: Challengers that are no followers: the submitted order, a kept version, and in a request for a
#: tournament all followers. A follower cannot have these names.
SUBMITTED, VERSION, FOLLOWERS = "submitted", "version", "followers"
RESERVED_NAMES = (SUBMITTED, VERSION, FOLLOWERS)
#: The limits of a duel.
MOST_SHARE = 0.5
LEAST_ALPHA, MOST_ALPHA = 1e-6, 0.2
#: A point of the curve follows the one before it after a tenth more decided lists.
_CURVE_STEP = 10


@dataclass(frozen=True, slots=True)
class Tournament:
    """What the duels of a tournament have in common, and which of them this is.

    `id` is the seq of its first record, and 0 in that record itself. `followers` are all that take
    part; the one at `step` is the challenger. `alpha` is that of the whole tournament.
    """

    id: int
    step: int
    followers: tuple[str, ...]
    max_lists: int
    alpha: float
    promote: bool

    @property
    def lists_each(self) -> int:
        """The part of the lists of each duel."""
        return self.max_lists // len(self.followers)

    @property
    def alpha_each(self) -> float:
        """The α of each duel: any two of the champion and the followers may meet."""
        count = len(self.followers)
        return self.alpha / (count * (count + 1) // 2)


@dataclass(frozen=True, slots=True)
class Duel:
    """A record that begins a duel: `share` of the requests get an interleaved list.

    `challenger` is the name of a follower, SUBMITTED, or VERSION (then `version` is its seq).
    `champion` is the name of a follower that is ahead in a tournament; else "", the model itself.
    """

    challenger: str
    share: float
    alpha: float
    version: int | None = None
    champion: str = ""
    tournament: Tournament | None = None

    @property
    def followers(self) -> tuple[str, ...]:
        """The names of the followers that take part, also in later duels of the tournament."""
        sides = (self.champion, self.challenger)
        found = tuple(name for name in sides if name and name not in RESERVED_NAMES)
        later = self.tournament.followers[self.tournament.step + 1 :] if self.tournament else ()
        return found + later


@dataclass(frozen=True, slots=True)
class EndDuel:
    """A record that ends the duel with this id, and why."""

    duel: int
    why: str = "ended"


class DuelResult(NamedTuple):
    """A duel of a tournament that is over; `verdict` is FIRST, SECOND, or 0 for undecided."""

    champion: str
    challenger: str
    lists: int
    wins: int
    losses: int
    won: int
    lost: int
    largest: float
    verdict: int


@dataclass(frozen=True, slots=True)
class DuelState:
    """The duel that is on, or the last one: `ended` is the seq of the record that ended it.

    `id` is the seq of its record. `evidence` is E, `largest` its maximum so far. `verdict` stands
    from the first time on that E reached 1/α. `curve` has (lists, won, lost) at growing distances.
    """

    id: int
    settings: Duel
    lists: int = 0
    wins: int = 0
    losses: int = 0
    won: int = 0
    lost: int = 0
    evidence: float = 1.0
    largest: float = 1.0
    verdict: int = 0
    curve: tuple[tuple[int, int, int], ...] = ()
    results: tuple[DuelResult, ...] = ()
    ended: int = 0
    why: str = ""

    @property
    def is_on(self) -> bool:
        """Whether lists still count."""
        return not self.ended

    @property
    def decided(self) -> int:
        """The number of lists that count for the verdict."""
        return self.won + self.lost

    @property
    def is_over(self) -> bool:
        """Whether a duel of a tournament has its verdict, or its part of the lists."""
        tournament = self.settings.tournament
        return tournament is not None and bool(self.verdict or self.lists >= tournament.lists_each)

    @property
    def result(self) -> DuelResult:
        """The result so far."""
        sides = self.settings.champion, self.settings.challenger
        counts = self.lists, self.wins, self.losses, self.won, self.lost
        return DuelResult(*sides, *counts, self.largest, self.verdict)

    def tournament(self) -> Tournament | None:
        """The tournament with its id, if the duel belongs to one."""
        found = self.settings.tournament
        return found if found is None or found.id else replace(found, id=self.id)


def begun(seq: int, record: Duel, before: DuelState | None) -> DuelState:
    """Return the duel that record `seq` begins; ValueError if another one is on."""
    _check(record)
    now = record.tournament
    if before is None or before.ended:
        if now is not None and (now.id or now.step):
            raise ValueError("tournament: expected a first duel, got a later one")
        return DuelState(seq, record)
    then = before.tournament()
    if now is None or then is None or (now.id, now.step) != (then.id, then.step + 1):
        raise ValueError("duel: expected no other duel that is on")
    return DuelState(seq, record, results=(*before.results, before.result))


def _check(record: Duel) -> None:
    """Refuse impossible settings with ValueError. α of a duel of a tournament may be small."""
    if not 0.0 < record.share <= MOST_SHARE:
        raise ValueError(f"share: expected a number above 0, at most {MOST_SHARE}")
    if not 0.0 < record.alpha <= MOST_ALPHA:
        raise ValueError(f"alpha: expected a number above 0, at most {MOST_ALPHA}")
    if (record.challenger == VERSION) != (record.version is not None):
        raise ValueError("version: expected one if the challenger is a version, else none")
    tournament = record.tournament
    if tournament and tournament.followers[tournament.step] != record.challenger:
        raise ValueError("challenger: expected the follower of this step of the tournament")


def ended(seq: int, record: EndDuel, before: DuelState | None) -> DuelState:
    """Return the duel after record `seq` ends it; ValueError if it is not on."""
    if before is None or before.ended or record.duel != before.id:
        raise ValueError("duel: expected the id of the duel that is on")
    return replace(before, ended=seq, why=record.why)


def ended_by(seq: int, why: str, before: DuelState | None) -> DuelState | None:
    """Return the duel after record `seq`, which replaces its champion: that ends it."""
    if before is None or before.ended:
        return before
    return replace(before, ended=seq, why=why)


def with_clicks(duel: DuelState, teams: Integers, clicks: Integers, ends: Integers) -> DuelState:
    """Count a list of a duel by all clicks so far; `ends` counts the clicks after earlier events.

    A list whose earlier events did not count does not count; nor does any in a duel that is over.

    >>> duel = DuelState(7, Duel("shop-b", 0.2, 0.05))
    >>> duel = with_clicks(duel, np.array([1, -1]), np.array([0]), np.array([], np.int64))
    >>> duel.lists, duel.wins, duel.losses, duel.won, duel.lost
    (1, 1, 0, 1, 0)
    >>> duel = with_clicks(duel, np.array([1, -1]), np.array([0, 1]), np.array([1]))
    >>> duel.lists, duel.wins, duel.losses, duel.won, duel.lost
    (1, 0, 0, 1, 0)
    """
    if duel.is_over:
        return duel
    found = outcomes_after(teams, clicks, np.append(ends, len(clicks))).tolist()
    *earlier, now = found
    before = earlier[-1] if earlier else 0
    lists = duel.lists + (not earlier)
    wins = duel.wins + (now == FIRST) - (before == FIRST)
    losses = duel.losses + (now == SECOND) - (before == SECOND)
    if min(wins, losses, lists - wins - losses) < 0:
        return duel
    duel = replace(duel, lists=lists, wins=wins, losses=losses)
    return _decided_by(duel, now) if now and not any(earlier) else duel


def _decided_by(duel: DuelState, winner: int) -> DuelState:
    """Count one more list for the verdict."""
    same = duel.won if winner == FIRST else duel.lost
    evidence = min(MOST_EVIDENCE, duel.evidence * factor(same, duel.decided))
    won, lost = duel.won + (winner == FIRST), duel.lost + (winner == SECOND)
    verdict = duel.verdict
    if not verdict and evidence * duel.settings.alpha >= 1.0:
        verdict = FIRST if won > lost else SECOND
    largest, curve = max(duel.largest, evidence), duel.curve
    last = sum(curve[-1][1:]) if curve else 0
    if (won + lost - last) * _CURVE_STEP >= last:
        curve = (*curve, (duel.lists, won, lost))
    return replace(
        duel, won=won, lost=lost, evidence=evidence, largest=largest, verdict=verdict, curve=curve
    )


class Promotion(NamedTuple):
    """The end of a tournament that puts its winner in place."""

    follower: str


def next_step(duel: DuelState | None, absent: Collection[str]) -> Duel | EndDuel | Promotion | None:
    """Return what follows in a tournament; None if the duel goes on, or is none of a tournament.

    `absent` are followers that cannot duel. A challenger is out, also one that has won, and a
    champion gives way to the model itself.
    """
    tournament = duel.tournament() if duel is not None and duel.is_on else None
    if duel is None or tournament is None:
        return None
    settings, gone = duel.settings, {duel.settings.champion, duel.settings.challenger} & {*absent}
    if not (duel.is_over or gone):
        return None
    won = (settings.challenger,) if duel.verdict == SECOND else ()
    ahead = next((one for one in (*won, settings.champion) if one not in absent), "")
    step = tournament.step + 1
    if step < len(tournament.followers):
        return replace(
            settings, challenger=tournament.followers[step], champion=ahead,
            tournament=replace(tournament, step=step),
        )  # fmt: skip
    if ahead and tournament.promote:
        return Promotion(ahead)
    return EndDuel(duel.id, "finished")


def results(duel: DuelState) -> Iterator[DuelResult]:
    """Yield the results of a tournament, that of the present duel last."""
    yield from duel.results
    yield duel.result
