"""A naive oracle of duels: it goes over a whole log, and counts each list from its own clicks.

It reads of a record of feedback only what a client sent: the request, the clicks, the teams. What a
record carries of earlier events, and the sums of the reducer, it does not use.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from math import prod

from app.domain.duels import Duel, DuelState, EndDuel, Tournament
from app.domain.records import Feedback, Record, Replace
from app.ranking import evidence


@dataclass
class OracleDuel:
    """A duel, from its record on; `outcomes` has those of each of its lists, event by event."""

    id: int
    record: Duel
    before: "OracleDuel | None" = None  # of the same tournament
    outcomes: dict[str, list[int]] = field(default_factory=dict)
    decided: list[int] = field(default_factory=list)  # in the order of the log
    ended: int = 0
    why: str = ""

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Lists, wins, losses, won, lost."""
        last = [outcomes[-1] for outcomes in self.outcomes.values()]
        people, verdict = (last.count(1), last.count(-1)), map(self.decided.count, (1, -1))
        return (len(last), *people, *verdict)  # type: ignore[return-value]

    @property
    def evidence(self) -> list[Fraction]:
        """E after each decided list: `2ⁿ·B(W+a, L+a)/B(a, a)`, from its definition."""
        won = list(accumulate(one == 1 for one in self.decided))
        return [_evidence(w, n - w) for n, w in enumerate(won, 1)]

    @property
    def verdict(self) -> int:
        """The side that led when E first reached 1/α; 0 if it never did."""
        least = 1 / Fraction(self.record.alpha)
        reached = [n for n, found in enumerate(self.evidence, 1) if found >= least]
        lead = sum(self.decided[: reached[0]]) if reached else 0
        return (lead > 0) - (lead < 0)

    @property
    def tournament(self) -> Tournament | None:
        """What its record says of a tournament."""
        return self.record.tournament

    @property
    def is_over(self) -> bool:
        """Whether a duel of a tournament is decided, or has had its part of the lists.

        Its later lists do not count, as its next step may be on its way.
        """
        of = self.tournament
        if of is None:
            return False
        return len(self.outcomes) >= of.max_lists // len(of.followers) or bool(self.verdict)

    @property
    def steps(self) -> "list[OracleDuel]":
        """The duels of its tournament so far, this one last."""
        return [*(self.before.steps if self.before else ()), self]


def _evidence(won: int, lost: int) -> Fraction:
    a = int(evidence.SPREAD)
    terms = [*range(a, a + won), *range(a, a + lost)]
    return Fraction(2 ** (won + lost) * prod(terms), prod(range(2 * a, 2 * a + won + lost)))


def duels(records: Iterable[Record]) -> list[OracleDuel]:
    """Return all duels of a log that begins with record 1."""
    return list(_Log().read(records))


class _Log:
    """What is known after some records."""

    def __init__(self) -> None:
        self._clicked: dict[str, set[int]] = {}
        self._duels: list[OracleDuel] = []

    def read(self, records: Iterable[Record]) -> Iterator[OracleDuel]:
        for seq, record in enumerate(records, 1):
            if isinstance(record, Duel):
                self._begin(seq, record)
            elif isinstance(record, Feedback):
                self._count(record)
            elif isinstance(record, Replace):
                self._end(seq, record.kind)
            elif isinstance(record, EndDuel) and self._now is not None:
                self._end(seq, record.why, record.duel)
        yield from self._duels

    @property
    def _now(self) -> OracleDuel | None:
        """The duel that is on."""
        return self._duels[-1] if self._duels and not self._duels[-1].ended else None

    def _begin(self, seq: int, record: Duel) -> None:
        now, of = self._now, record.tournament
        if of is None or not of.step:
            if now is None:
                self._duels.append(OracleDuel(seq, record))
        elif now is not None and now.tournament is not None:
            follows = (now.steps[0].id, now.tournament.step + 1) == (of.id, of.step)
            if follows:
                self._duels.append(OracleDuel(seq, record, now))

    def _end(self, seq: int, why: str, duel: int | None = None) -> None:
        now = self._now
        if now is not None and duel in (None, now.id):
            now.ended, now.why = seq, why

    def _count(self, record: Feedback) -> None:
        if record.duel is None or record.kind != "clicks":
            return
        clicked = self._clicked.setdefault(record.query, set())
        clicked |= set([] if record.clicks is None else record.clicks.tolist())
        now, (duel, *teams) = self._now, record.duel.tolist()
        if now is None or now.id != duel or now.is_over:
            return
        credit = sum(teams[at] for at in clicked)
        outcomes = now.outcomes.setdefault(record.query, [])
        outcomes.append((credit > 0) - (credit < 0))
        if outcomes[-1] and not any(outcomes[:-1]):
            now.decided.append(outcomes[-1])


def differences(state: DuelState | None, found: Sequence[OracleDuel]) -> list[str]:
    """Return the names of what a state counts otherwise than the oracle."""
    if state is None or not found:
        return [] if state is None and not found else ["duels"]
    now = found[-1]
    largest = float(max([Fraction(1), *now.evidence]))
    last = float(now.evidence[-1]) if now.evidence else 1.0
    pairs = {
        "id": (state.id, now.id),
        "settings": (state.settings, now.record),
        "lists, wins, losses, won, lost": (
            (state.lists, state.wins, state.losses, state.won, state.lost), now.counts,
        ),
        "evidence": (abs(state.evidence - last) <= 1e-12 * last, True),
        "largest": (abs(state.largest - largest) <= 1e-12 * largest, True),
        "verdict": (state.verdict, now.verdict),
        "end": ((state.ended, state.why), (now.ended, now.why)),
        "earlier steps": (
            [(*one[:7], one.verdict) for one in state.results],
            [_summary(one) for one in now.steps[:-1]],
        ),
    }  # fmt: skip
    return [f"{name}: {one} for {other}" for name, (one, other) in pairs.items() if one != other]


def _summary(one: OracleDuel) -> tuple[object, ...]:
    """The result of a step of a tournament, without its evidence."""
    return (one.record.champion, one.record.challenger, *one.counts, one.verdict)
