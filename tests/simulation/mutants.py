"""Planted bugs, each active for one block."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from app.domain import codec, reducer
from app.domain.facts import Served
from app.domain.impressions import PriorFeedback, on_request
from app.domain.records import Feedback
from app.ingest import appender
from app.learning import session
from app.ranking import graded
from app.ranking.tally import NO_PAIRS
from app.serving import weight_cache as weight_cache_module
from app.serving.served_model import ServedModel
from app.storage import calls, rollback
from app.storage.log import StoredImpression
from app.storage.states import NewVersion
from tests.simulation import duel_mutants, scripts, server
from tests.simulation.keyspace import Entry, Keyspace, text
from tests.simulation.planting import Mutant, member, script


def _commit_on_any_base(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """The commit does not compare its base."""
    epoch, seq, chain = db.hmget(keys[0], ["epoch", "seq", "chain"])
    changed = list(args)
    if epoch == text(args[0]) and seq is not None:
        changed[2:4] = [seq, chain]
    return scripts.commit(db, keys, changed)


def _commit_of_any_fence(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """A learner commits after a lease takeover."""
    return scripts.commit(db, keys, [args[0], db.get(keys[1]) or b"", *args[2:]])


def _commit_of_lost_records(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """The commit does not check that the log still has the learnt records."""
    return scripts.commit(db, keys, args[: 18 + int(args[17])])


def _commit_trims_too_far(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """The log is trimmed past the oldest version."""
    trim = args[11] + 3 if args[11] else 0
    return scripts.commit(db, keys, [*args[:11], trim, *args[12:]])


def _append_without_dedupe(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """A resent post is appended again."""
    db.drop(*(key for key in keys[3:] if ":e:" in key or ":d:" in key))
    return scripts.append(db, keys, args)


def _append_without_limit(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """The backlog has no limit."""
    return scripts.append(db, keys, [args[0], 1 << 40, *args[2:]])


def _append_without_work_limit(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """The work that waits has no limit."""
    return scripts.append(db, keys, [*args[:2], "", *args[3:]])


def _commit_of_other_work(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """The commit says that more work is done."""
    return scripts.commit(db, keys, [*args[:13], 2 * int(args[13] or 0), *args[14:]])


def _append_any_body(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """Another body with a known id counts as repeated."""
    code, *answers = scripts.append(db, keys, args)
    if code:
        return [code, *answers]
    answers[1::2] = [1 if one == 2 else one for one in answers[1::2]]
    return [0, *answers]


def _append_of_any_tenant(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """A tenant sends feedback on the request of another one."""
    changed, first = list(args), scripts.GIVEN + scripts.EACH * int(args[9])
    for at in range(first, len(args), scripts.CONDITIONS):
        number = text(args[at])
        if number.isdigit():
            changed[at + 1] = db.hget(keys[int(number) - 1], "t") or b""
    return scripts.append(db, keys, changed)


def _remember_for_any_tenant(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[int]:
    """A tenant replaces the impression of another one."""
    for key in keys[1:]:
        if db.exists(key):
            db.hdel(key, "t")
    return scripts.remember(db, keys, args)


def _forget_a_slice(self: scripts.Append) -> bytes:
    """A new slice removes the one before it."""
    written = _open_slice(self)
    if written:
        del self._slices[:-1]
        written = self._written()
        self._db.hset(self._state, "slices", written)
    return written


_open_slice = scripts.Append._open_slice


def _respect_void_lease(db: Keyspace, key: str) -> bytes | None:
    """A lease counts for as long as the server's clock says."""
    return db.get(key)


def _ignore_prior_feedback(
    event: Feedback, _: PriorFeedback, rule: bool
) -> tuple[Feedback, PriorFeedback]:
    """A record does not carry the earlier feedback of its request."""
    return on_request(event, PriorFeedback.load(b""), rule)


def _no_wait(_: calls.ScriptRunner, __: str) -> list[Any]:
    """WAIT is skipped."""
    return []


_wait_for_replicas = calls.ScriptRunner._wait_for_replicas


def _no_mark(self: calls.ScriptRunner, key: str) -> list[Any]:
    """WAIT on a connection that may have written nothing."""
    return _wait_for_replicas(self, key)[1:]


def _ignore_wait(_: calls.ScriptRunner, answers: list[Any]) -> Any:
    """The answer of WAIT is ignored."""
    return answers[0]


async def _always_leads(*_: Any) -> bool:
    """A rollback followed by new records is not noticed."""
    return True


def _ignore_rollback(*_: Any) -> None:
    """The appender does not report a rollback of the log."""


async def _unreported_rollback(
    self: weight_cache_module.WeightCache, model: str, found: Any
) -> Any:
    """A rollback is served but not reported."""
    serving = self.serving[model] = ServedModel.of(model, found)
    self._report(Served(model, 0, False))
    return serving


_continue = reducer.Reducer._continue


def _part_counted_twice(self: reducer.Reducer, opened: Any, part: Any) -> None:
    """A learner continues with the weights of a part, but at the first pair."""
    _continue(self, opened, part)
    opened.learnt = 0


def _part_skipped(self: reducer.Reducer, opened: Any, part: Any) -> None:
    """A learner skips the pairs of a part, but continues with the weights before it."""
    before = self._learner
    _continue(self, opened, part)
    self._learner = before


def _part_outcomes_lost(self: reducer.Reducer, opened: Any, part: Any) -> None:
    """A learner forgets the outcomes of the pairs of a part."""
    _continue(self, opened, part)
    opened.tally = NO_PAIRS


def _part_of_any_fence(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    """A learner commits a part after a lease takeover."""
    return scripts.commit_part(db, keys, [args[0], db.get(keys[1]) or b"", *args[2:]])


_measured = reducer.Reducer._measured


def _counts_twice(self: reducer.Reducer, event: Any, submission: Any) -> Any:
    """Each round of clicks counts its query again."""
    query = _measured(self, event, submission)
    return query._replace(measured=np.append(1.0, query.measured[1:]))


def _stays_abandoned(self: reducer.Reducer, event: Any, submission: Any) -> Any:
    """A click on an abandoned ranking does not take it from the abandoned ones."""
    query = _measured(self, event, submission)
    return query._replace(abandoned=max(0.0, query.abandoned))


_retention = session.LeaderSession._retention


async def _hourly_trims(self: session.LeaderSession, version: NewVersion) -> Any:
    """The log begins after an hourly version."""
    drop, trim, followers = await _retention(self, version)
    return drop, self._reducer.seq if version.hourly else trim, followers


def _dedupe_not_replicated(steps: server.Copy, journal: Any, until: int) -> None:
    """The replica gets the log but not the dedupe keys."""
    for step in journal[steps.steps : until]:
        steps.db.apply({k: v for k, v in step.writes.items() if ":e:" not in k})
    steps.steps = max(steps.steps, until)


_graded_pairs = graded.new_pairs


def _learnt_again(found: Any, _: Any, reading: Any) -> Any:
    """A repetition of an event with gains is learnt again."""
    return _graded_pairs(found, [], reading)


def _ends_as_ranked(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[int]:
    """A list that was clicked and is ranked again ends like one without a click."""
    answer = scripts.remember(db, keys, args)
    for key, stored in zip(keys[1:], answer[1:], strict=False):
        if stored and db.hget(key, "a"):
            db.pexpire(key, args[0])
    return answer


def _longer_life_not_replicated(copy: server.Copy, journal: Any, until: int) -> None:
    """The replica gets the clicks on a list, but not its longer life."""
    for step in journal[copy.steps : until]:
        writes = dict(step.writes)
        for key in [key for key in writes if step.call.name == "append" and ":imp:" in key]:
            before, new = copy.db.data.get(key), writes[key]
            if before is not None and new is not None:
                writes[key] = Entry(new.value, before.ends)
        copy.db.apply(writes)
    copy.steps = max(copy.steps, until)


_build_on_request = appender._on_request


def _any_number_of_events(new: Any, event: Any, expected: bytes) -> Any:
    """A list takes more events of a token than it should."""
    return _build_on_request(new, replace(event, most_events=None), expected)


@contextmanager
def _open_to_any_tenant() -> Iterator[None]:
    """Neither the process nor the script compares tenants: each alone refuses."""
    open_to_all = patch.object(StoredImpression, "is_open_to", lambda *_: True)
    with open_to_all, patch.dict(scripts.ALL, {"append": _append_of_any_tenant}):
        yield


MUTANTS = {
    "commit on any base": Mutant(script("commit", _commit_on_any_base), ("I9", "I3", "I4")),
    "commit of any fence": Mutant(script("commit", _commit_of_any_fence), ("I10",)),
    "a void lease counts": Mutant(
        member(scripts, "valid", _respect_void_lease), ("I15",), "_step_clock"
    ),
    "commit of lost records": Mutant(
        script("commit", _commit_of_lost_records), ("I3",), "_fail_over", "fsync"
    ),
    "log trimmed too far": Mutant(script("commit", _commit_trims_too_far), ("I11",)),
    "append without dedupe": Mutant(script("append", _append_without_dedupe), ("I6",)),
    "feedback of any tenant": Mutant(_open_to_any_tenant, ("I23",)),
    "impressions replaced by any tenant": Mutant(
        script("remember", _remember_for_any_tenant), ("I23",)
    ),
    "a slice forgotten": Mutant(member(scripts.Append, "_open_slice", _forget_a_slice), ("I6",)),
    "any body counts as repeated": Mutant(script("append", _append_any_body), ("I7",)),
    "earlier clicks ignored": Mutant(
        member(appender, "on_request", _ignore_prior_feedback), ("I5",)
    ),
    "append without limit": Mutant(script("append", _append_without_limit), ("I18",)),
    "append without limit of work": Mutant(script("append", _append_without_work_limit), ("I18",)),
    "commit of other work": Mutant(script("commit", _commit_of_other_work), ("I18",)),
    "no WAIT": Mutant(
        member(calls.ScriptRunner, "_wait_for_replicas", _no_wait),
        ("I1",),
        "_fail_over",
        "replicated",
    ),
    "WAIT without a mark": Mutant(
        member(calls.ScriptRunner, "_wait_for_replicas", _no_mark),
        ("I1",),
        "_cut_off",
        "replicated",
    ),
    "WAIT ignored": Mutant(
        member(calls.ScriptRunner, "_first_answer", _ignore_wait),
        ("I1",),
        "_cut_off",
        "replicated",
    ),
    "a mark refused when full": Mutant(
        member(server, "REFUSED_WHEN_FULL", server.REFUSED_WHEN_FULL | {"mark"}),
        ("I8",),
        "_fill",
        "replicated",
    ),
    "unreported rollback": Mutant(
        member(weight_cache_module.WeightCache, "_take", _unreported_rollback),
        ("I12",),
        "_fail_over",
    ),
    "unreported rollback with new records": Mutant(
        member(rollback, "_leads", _always_leads), ("I12",), "_fail_over_unseen", "fsync"
    ),
    "an appender that ignores a rollback": Mutant(
        member(appender.Appender, "_note", _ignore_rollback), ("I12",), "_fail_over"
    ),
    "a query counted twice": Mutant(member(reducer.Reducer, "_measured", _counts_twice), ("I5",)),
    "a clicked ranking stays abandoned": Mutant(
        member(reducer.Reducer, "_measured", _stays_abandoned), ("I5",)
    ),
    "an hourly version trims the log": Mutant(
        member(session.LeaderSession, "_retention", _hourly_trims), ("I11",)
    ),
    "a part counted twice": Mutant(
        member(reducer.Reducer, "_continue", _part_counted_twice), ("I4",), "_kill"
    ),
    "a part lost": Mutant(member(reducer.Reducer, "_continue", _part_skipped), ("I4",)),
    "outcomes of a part lost": Mutant(
        member(reducer.Reducer, "_continue", _part_outcomes_lost), ("I4",)
    ),
    "certainty not stored": Mutant(member(codec, "dump_certainty", lambda _: {}), ("I4",)),
    "a part of any fence": Mutant(script("commit_part", _part_of_any_fence), ("I10",)),
    "dedupe keys not replicated": Mutant(
        member(server.Copy, "follow", _dedupe_not_replicated), ("I6",), "_fail_over"
    ),
    "a repetition with gains learnt again": Mutant(
        member(graded, "new_pairs", _learnt_again), ("I26",)
    ),
    "a clicked list ends like others": Mutant(
        script("remember", _ends_as_ranked), ("I26",), start=30
    ),
    "the longer life of a list not replicated": Mutant(
        member(server.Copy, "follow", _longer_life_not_replicated), ("I26",), "_fail_over"
    ),
    "more events than a token allows": Mutant(
        member(appender, "_on_request", _any_number_of_events), ("I26",), start=35
    ),
    **duel_mutants.MUTANTS,
}
