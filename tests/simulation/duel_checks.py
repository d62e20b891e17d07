"""I25: the counts of a duel are those of a naive oracle; a tournament goes on once a step.

A promoted model is its follower, folded over every record before the promotion.
"""

from app.domain import codec
from app.domain.duels import Duel, EndDuel
from app.domain.records import Record, Replace
from app.ranking.arrays import Floats
from app.ranking.interleaving import SECOND
from tests import oracles_duel_log as duel_oracle
from tests.simulation.expected import FollowerEpoch, ModelEpoch, Replays, hold
from tests.simulation.follower_checks import FollowerChecks

PROMOTION = "promotion of "


class DuelChecks:
    """Checks of the duels of all models."""

    def __init__(self, replays: Replays, followers: FollowerChecks) -> None:
        self._replays, self._followers = replays, followers

    def committed(self, current: ModelEpoch) -> None:
        """Compare the duel of a committed state with the oracle."""
        state = current.state
        found = duel_oracle.duels(current.loaded(state.seq))
        differences = duel_oracle.differences(state.duel, found)
        hold(not differences, f"I25: at {state.seq}: {differences}")

    def appended(self, model: str, current: ModelEpoch, record: bytes) -> None:
        """Check a record that is about to follow."""
        loaded = codec.load_record(record)
        if isinstance(loaded, Replace) and loaded.reason.startswith(PROMOTION):
            self._promoted(model, current, loaded)
        of = loaded.tournament if isinstance(loaded, Duel) else None
        finishes = isinstance(loaded, EndDuel) and loaded.why == "finished"
        if (of is not None and of.step) or finishes:
            self._goes_on(current, loaded)

    def _promoted(self, model: str, current: ModelEpoch, record: Replace) -> None:
        name = record.reason.removeprefix(PROMOTION)
        follower = self._followers.existing(model).get(f"{model}/{name}")
        if follower is None:
            return  # a version, or one that was deleted meanwhile
        self._is_folded(current, follower, record)

    def _is_folded(self, current: ModelEpoch, follower: FollowerEpoch, record: Replace) -> None:
        until = len(current.records)
        folded, carried = self._replays.to(follower, until).model, record.model
        pairs: tuple[tuple[Floats, Floats], ...] = (
            (folded.weights, carried.weights), (folded.spread, carried.spread),
        )  # fmt: skip
        same = all(one.tobytes() == other.tobytes() for one, other in pairs)
        hold(same, f"I25: {record.reason} after {until}: not the follower folded up to there")
        kept = ("algorithm", "covariance", "gamma", "C", "clicks", "forgetting")
        for name in kept:
            own, found = getattr(folded.config, name), getattr(carried.config, name)
            hold(own == found, f"I25: {record.reason}: {name} is {found}, not {own}")

    def _goes_on(self, current: ModelEpoch, record: Record) -> None:
        """Check a step of a tournament: it is the next one, and due."""
        duels = duel_oracle.duels(current.loaded(len(current.records)))
        now = duels[-1] if duels else None
        if now is None or now.ended or now.tournament is None or not _is_of(record, now):
            return  # another record came first: this one will change nothing
        sides = (now.record.champion, now.record.challenger)
        due = now.is_over or self._gone(current, sides) or self._left(current, sides, now.id)
        hold(due, f"I25: {record} comes too early")
        ahead = self._ahead(current, sides, now.verdict)
        if isinstance(record, Duel) and record.tournament is not None:
            step = record.tournament.step
            hold(record.challenger == now.tournament.followers[step], f"I25: step {step}: {record}")
            hold(record.champion == ahead, f"I25: {record.champion!r} is ahead, not {ahead!r}")
        else:
            hold(not (ahead and now.tournament.promote), f"I25: {ahead!r} has won: {record}")

    def _ahead(self, current: ModelEpoch, sides: tuple[str, str], verdict: int) -> str:
        """Return the side that goes on: a winner that is there, else the champion if it is."""
        if verdict == SECOND and not self._gone(current, (sides[1], "")):
            return sides[1]
        return "" if self._gone(current, (sides[0], "")) else sides[0]

    def _gone(self, current: ModelEpoch, sides: tuple[str, str]) -> bool:
        """Whether a follower in the duel is stalled or deleted."""
        there = {
            address.partition("/")[2]
            for (address, _), one in self._followers.all.items()
            if one.leader is current and not one.ended and not one.stalled
        }
        return any(side and side not in there for side in sides)

    def _left(self, current: ModelEpoch, sides: tuple[str, str], since: int) -> bool:
        """Whether a follower in the duel was deleted after a record, and maybe made again."""
        return any(
            one.leader is current and one.ended and one.ended_after >= since
            for (address, _), one in self._followers.all.items()
            if address.partition("/")[2] in sides
        )

    def check_end(self, current: ModelEpoch) -> None:
        """Check that each step of each tournament was taken, and once."""
        for kind in (Duel, EndDuel):
            steps = [one for one in current.loaded(len(current.records)) if _step(one, kind)]
            hold(len(steps) == len(set(steps)), f"I25: a step of a tournament twice: {steps}")
        hold(not self.is_due(current), "I15: a tournament does not go on")

    def is_due(self, current: ModelEpoch) -> bool:
        """Whether a tournament is on whose present duel is over."""
        duels = duel_oracle.duels(current.loaded(len(current.records)))
        now = duels[-1] if duels else None
        if now is None or now.ended or now.tournament is None:
            return False
        sides = (now.record.champion, now.record.challenger)
        return now.is_over or self._gone(current, sides)


def _is_of(record: Record, now: duel_oracle.OracleDuel) -> bool:
    """Whether a step belongs to the duel that is on, and follows it."""
    if isinstance(record, EndDuel):
        return record.duel == now.id
    of = record.tournament if isinstance(record, Duel) else None
    follows = (now.steps[0].id, now.tournament.step + 1) if now.tournament else None
    return of is not None and (of.id, of.step) == follows


def _step(record: Record, kind: type) -> bool:
    """Whether a record is a step of a tournament that the learner appends."""
    if not isinstance(record, kind):
        return False
    if isinstance(record, Duel):
        return record.tournament is not None and record.tournament.step > 0
    return isinstance(record, EndDuel) and record.why == "finished"
