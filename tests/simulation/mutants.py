"""Bugs to be found: each is planted for as long as its block lasts."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

from app.domain import reducer
from app.domain.facts import Served
from app.domain.impressions import PriorFeedback, on_request
from app.domain.records import Feedback
from app.ingest import appender
from app.serving import weight_cache as weight_cache_module
from app.storage import calls, rollback
from tests.simulation import scripts, server
from tests.simulation.keyspace import Keyspace, text


def _commit_on_any_base(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """The commit does not compare what it builds on."""
    epoch, seq, chain = db.hmget(keys[0], ["epoch", "seq", "chain"])
    ours = list(args)
    if epoch == text(args[0]) and seq is not None:
        ours[2:4] = [seq, chain]
    return scripts.commit(db, keys, ours)


def _commit_of_any_fence(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """Who was overtaken commits all the same."""
    return scripts.commit(db, keys, [args[0], db.get(keys[1]) or b"", *args[2:]])


def _commit_of_lost_records(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """The commit does not ask whether the log still has what was learnt."""
    return scripts.commit(db, keys, args[:14])


def _commit_trims_too_far(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """The log is trimmed past the oldest version that is kept."""
    trim = args[12] + 3 if args[12] else 0
    return scripts.commit(db, keys, [*args[:12], trim, *args[13:]])


def _append_without_dedupe(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """A post that is sent again is entered again."""
    db.drop(*keys[3::2])
    return scripts.append(db, keys, args)


def _append_without_limit(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """The backlog may be any."""
    return scripts.append(db, keys, [args[0], 1 << 40, *args[2:]])


def _append_any_body(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """Another body with a known id passes for the same."""
    code, *answers = scripts.append(db, keys, args)
    return [code, *([1 if one == 2 else one, seq] for one, seq in answers)]


def _builds_on_nothing(event: Feedback, _: PriorFeedback) -> tuple[Feedback, PriorFeedback]:
    """A record does not carry what came of its request before."""
    return on_request(event, PriorFeedback.load(b""))


def _no_wait(_: calls.ScriptRunner, __: str) -> list[Any]:
    """WAIT is skipped."""
    return []


_wait_for_replicas = calls.ScriptRunner._wait_for_replicas


def _no_mark(self: calls.ScriptRunner, key: str) -> list[Any]:
    """WAIT on a connection that may have written nothing."""
    return _wait_for_replicas(self, key)[1:]


def _unheeded(_: calls.ScriptRunner, answers: list[Any]) -> Any:
    """What WAIT answers is nobody's."""
    return answers[0]


async def _always_leads(*_: Any) -> bool:
    """A store that went back and on again passes for one that went on."""
    return True


def _posts_on(*_: Any) -> None:
    """A poster sees no log go back."""


async def _goes_back_quietly(self: weight_cache_module.WeightCache, model: str, found: Any) -> Any:
    """What goes back is served, but nobody is told."""
    serving = self.serving[model] = weight_cache_module.ServedModel.of(model, found)
    self._tell(Served(model, 0, False))
    return serving


_measured = reducer.Reducer._measured


def _counts_twice(self: reducer.Reducer, event: Any, submission: Any) -> Any:
    """Each round of clicks counts its query once more."""
    gained = _measured(self, event, submission)
    gained[0] = 1.0
    return gained


def _half_the_dedupe_is_lost(steps: server.Copy, journal: Any, until: int) -> None:
    """A replica gets the log but not the dedupe keys."""
    for step in journal[steps.steps : until]:
        steps.db.apply({k: v for k, v in step.writes.items() if ":d:" not in k})
    steps.steps = max(steps.steps, until)


def _script(name: str, mutant: scripts.Script) -> Callable[[], Any]:
    return lambda: patch.dict(scripts.ALL, {name: mutant})


def _in(owner: Any, name: str, mutant: Any) -> Callable[[], Any]:
    return lambda: patch.object(owner, name, mutant)


class Mutant(NamedTuple):
    """How a bug is planted, what may find it, and where that happens often if it is rare."""

    plant: Callable[[], Any]
    numbers: tuple[str, ...]
    only: str = ""
    level: server.Level | None = None


MUTANTS = {
    "commit on any base": Mutant(_script("commit", _commit_on_any_base), ("I9", "I3", "I4")),
    "commit of any fence": Mutant(_script("commit", _commit_of_any_fence), ("I10",)),
    "commit of lost records": Mutant(
        _script("commit", _commit_of_lost_records), ("I3",), "_fail_over", "fsync"
    ),
    "log trimmed too far": Mutant(_script("commit", _commit_trims_too_far), ("I11",)),
    "append without dedupe": Mutant(_script("append", _append_without_dedupe), ("I6",)),
    "any body passes": Mutant(_script("append", _append_any_body), ("I7",)),
    "clicks before forgotten": Mutant(_in(appender, "on_request", _builds_on_nothing), ("I5",)),
    "append without limit": Mutant(_script("append", _append_without_limit), ("I18",)),
    "no WAIT": Mutant(
        _in(calls.ScriptRunner, "_wait_for_replicas", _no_wait), ("I1",), "_fail_over", "replicated"
    ),
    "WAIT without a mark": Mutant(
        _in(calls.ScriptRunner, "_wait_for_replicas", _no_mark), ("I1",), "_cut_off", "replicated"
    ),
    "WAIT unheeded": Mutant(
        _in(calls.ScriptRunner, "_first_answer", _unheeded), ("I1",), "_cut_off", "replicated"
    ),
    "a mark that needs room": Mutant(
        _in(server, "NEED_ROOM", server.NEED_ROOM | {"mark"}), ("I8",), "_fill", "replicated"
    ),
    "going back uncounted": Mutant(
        _in(weight_cache_module.WeightCache, "_take", _goes_back_quietly), ("I12",), "_fail_over"
    ),
    "back and on again uncounted": Mutant(
        _in(rollback, "_leads", _always_leads), ("I12",), "_fail_over_unseen", "fsync"
    ),
    "a poster that posts on": Mutant(
        _in(appender.Appender, "_note", _posts_on), ("I12",), "_fail_over"
    ),
    "a query counted twice": Mutant(_in(reducer.Reducer, "_measured", _counts_twice), ("I5",)),
    "dedupe keys not replicated": Mutant(
        _in(server.Copy, "follow", _half_the_dedupe_is_lost), ("I6",), "_fail_over"
    ),
}
