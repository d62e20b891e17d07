"""Planted bugs of followers and duels, each active for one block."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from app.domain import duel_counts, duel_fields, duels, reducer
from app.domain.duels import Duel
from app.domain.impressions import all_clicks
from app.domain.records import Replace
from app.learning import duel_upkeep, folding
from app.storage.followers import Followers, LeaderProgress
from app.storage.keys import internal_event
from tests.simulation import scripts
from tests.simulation.keyspace import Entry, Keyspace, text
from tests.simulation.planting import Mutant, member, script


def _commit_on_any_base(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """The commit of a follower does not compare its base."""
    epoch, seq, chain = db.hmget(keys[0], ["epoch", "seq", "chain"])
    same = epoch == text(args[0]) and seq is not None
    return scripts.commit_follower(db, keys, [*args[:2], seq, chain, *args[4:]] if same else args)


def _commit_of_any_fence(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """A learner commits a follower after a lease takeover."""
    return scripts.commit_follower(db, keys, [args[0], db.get(keys[1]) or b"", *args[2:]])


def _trim(db: Keyspace, keys: Sequence[str], trim: int, _: Sequence[bytes]) -> None:
    """The log is trimmed without a look at the followers."""
    if trim:
        db.xtrim(keys[2], trim + 1)


def _no_stalling(db: Keyspace, keys: Sequence[str], _: Sequence[Any]) -> int:
    """A follower drops all of its versions that the log shall not have, also the newest."""
    for key in keys[3:]:
        db.drop(key)
        db.zrem(keys[1], key.rpartition(":")[2])
    return 0


def _always_stalled(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """A follower that only has to drop versions is stalled."""
    return scripts.shorten(db, keys, [args[0], ""])


def _shortened_again(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """A follower is shortened by a command of its leader that is sent again after a failover."""
    now = db.hmget(keys[2], ["epoch", "seq", "chain"])
    return scripts.shorten(db, keys, [*args[:2], *now] if len(args) > 2 else args)


def _leaves_mark(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """A deleted follower stays in the list of its leader."""
    found = db.hgetall(keys[0])
    answer = scripts.unfollow(db, keys, args)
    db.hset(keys[0], *(part for pair in found.items() for part in pair))
    return answer


_replace = reducer.Reducer._replace


def _follows_rollbacks(self: reducer.Reducer, record: Replace) -> None:
    """A follower takes over the model of every replacement."""
    _replace(self, replace(record, reason="warm start") if self._follows else record)


def _passes_warm_starts_by(self: reducer.Reducer, record: Replace) -> None:
    """A follower takes over nothing."""
    _replace(self, replace(record, reason="") if self._follows else record)


def _goes_on_after_replacement(self: reducer.Reducer, record: Any) -> None:
    """A replacement leaves the duel on."""
    duel = self._duel
    _replace(self, record)
    self._duel = duel


_counted = duels.with_clicks


def _each_event_decides(duel: duels.DuelState, *given: Any) -> duels.DuelState:
    """Each event decides a list again."""
    found, (teams, clicks, _) = duel, given
    return _counted(found, teams, clicks, clicks[:0])


def _later_clicks_decide(
    duel: duels.DuelState, teams: Any, clicks: Any, ends: Any
) -> duels.DuelState:
    """A list counts for the verdict by the event before the last one, too."""
    now = _counted(duel, teams, clicks, ends)
    if len(ends) and now.decided == duel.decided and now.wins != duel.wins:
        return duels._decided_by(now, 1 if now.wins > duel.wins else -1)
    return now


def _counts_on(duel: duels.DuelState, *given: Any) -> duels.DuelState:
    """Lists count until the next step of a tournament, also after the verdict and all lists."""
    now = _counted(replace(duel, settings=replace(duel.settings, tournament=None)), *given)
    return replace(now, settings=duel.settings)


def _ended_counts(duel: duels.DuelState, event: Any, teams: Any) -> duels.DuelState:
    """Clicks on the lists of a duel that has ended count for the last one."""
    if not duel.ended:
        return _after(duel, event, teams)
    ends = event.rounds if event.rounds is not None else event.clicks[:0]
    return duels.with_clicks(duel, teams[1:], all_clicks(event), ends)


def _any_duel(duel: duels.DuelState, event: Any, teams: Any) -> duels.DuelState:
    """Clicks on the lists of an earlier duel count for the one that is on."""
    shown = teams.copy()
    shown[0] = duel.id
    return _after(duel, event, shown)


_dump_state = duel_fields.dump_duel_state


def _without_verdict(duel: duels.DuelState) -> dict[str, Any]:
    """The first verdict is not kept."""
    return {**_dump_state(duel), "verdict": 0, "largest": 1.0}


_after = duel_counts.after_event
_progress = Followers.progress


async def _ahead(self: Followers, leader: str) -> LeaderProgress:
    """A follower learns whatever the log has; nothing compares it with its leader."""
    (epoch, _, chain), versions = await _progress(self, leader)
    tail = int(await self._client.get(f"solar:{{{leader}}}:seq"))
    return LeaderProgress((epoch, tail, chain), versions)


def _commit_ahead(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """The commit does not look at the leader."""
    db.data["leader"] = Entry({b"seq": text(args[4]), b"chain": text(args[5])})
    return scripts.commit_follower(db, [*keys[:4], "leader", *keys[5:]], args)


@contextmanager
def _passes_its_leader() -> Iterator[None]:
    """Neither the learner nor the script compares a follower with its leader."""
    with member(Followers, "progress", _ahead)(), script("commit_follower", _commit_ahead)():
        yield


_replacement = folding.FollowerFold.replacement


def _forgets_last(self: folding.FollowerFold, records: Sequence[bytes], *about: Any) -> bytes:
    """A promotion forgets the last record before it."""
    return _replacement(self, records[:-1], *about)


def _any_step(kind: str, name: str) -> str:
    """Each learner takes the step of a tournament again."""
    return internal_event(kind, f"{name}-{next(_COUNT)}")


async def _no_step(*_: Any) -> None:
    """A tournament stays at its first duel."""


def _loser_stays(duel: duels.DuelState | None, absent: Any) -> Any:
    """The loser of a duel goes on as the champion."""
    found = _next_step(duel, absent)
    if duel is None or not isinstance(found, Duel) or not duel.verdict:
        return found
    sides = (duel.settings.champion, duel.settings.challenger)
    return replace(found, champion=sides[found.champion == sides[0]])


_next_step = duels.next_step
_COUNT = count()
MUTANTS = {
    "a promotion that forgets a record": Mutant(
        member(folding.FollowerFold, "replacement", _forgets_last), ("I25",), duels=True, start=137
    ),
    "a step of a tournament taken twice": Mutant(
        member(duel_upkeep, "internal_event", _any_step), ("I25",), duels=True, start=45
    ),
    "a tournament that does not go on": Mutant(
        member(duel_upkeep.DuelUpkeep, "_step", _no_step), ("I15",), duels=True, start=25
    ),
    "the loser of a duel is ahead": Mutant(
        member(duels, "next_step", _loser_stays), ("I25",), duels=True, start=389
    ),
    "a follower's commit on any base": Mutant(
        script("commit_follower", _commit_on_any_base), ("I9", "I24"), duels=True
    ),
    "a follower's commit of any fence": Mutant(
        script("commit_follower", _commit_of_any_fence), ("I10",), "_kill", duels=True, start=425
    ),
    "a follower passes its leader": Mutant(_passes_its_leader, ("I24",), duels=True),
    "a log trimmed without a look at followers": Mutant(
        member(scripts, "_trim", _trim), ("I24",), duels=True
    ),
    "a follower without a version": Mutant(script("shorten", _no_stalling), ("I24",), duels=True),
    "a follower stalled too soon": Mutant(
        script("shorten", _always_stalled), ("I24",), duels=True, start=333
    ),
    "a follower shortened again after a failover": Mutant(
        script("shorten", _shortened_again), ("I24",), duels=True, start=3209
    ),
    "a deleted follower in the list": Mutant(
        script("unfollow", _leaves_mark), ("I24",), duels=True
    ),
    "a follower that takes over a rollback": Mutant(
        member(reducer.Reducer, "_replace", _follows_rollbacks), ("I24",), duels=True
    ),
    "a follower that passes a warm start by": Mutant(
        member(reducer.Reducer, "_replace", _passes_warm_starts_by), ("I17", "I24"), duels=True
    ),
    "a duel that a replacement does not end": Mutant(
        member(reducer.Reducer, "_replace", _goes_on_after_replacement), ("I25",), duels=True
    ),
    "a list decided by each event": Mutant(
        member(duel_counts, "with_clicks", _each_event_decides), ("I25",), duels=True
    ),
    "a list decided by later clicks": Mutant(
        member(duel_counts, "with_clicks", _later_clicks_decide), ("I25",), duels=True
    ),
    "a duel that counts until the next one": Mutant(
        member(duel_counts, "with_clicks", _counts_on), ("I25",), duels=True
    ),
    "an ended duel that counts": Mutant(
        member(duel_counts, "after_event", _ended_counts), ("I25",), duels=True
    ),
    "lists of an earlier duel count": Mutant(
        member(duel_counts, "after_event", _any_duel), ("I25",), duels=True
    ),
    "the state of a duel not stored": Mutant(
        member(duel_fields, "dump_duel_state", _without_verdict), ("I4",), duels=True
    ),
}
