"""The scripts of `app/storage/scripts`, in Python: the same keys, arguments and answers.

The contract tests of `tests/test_store.py` run on both.
"""

import re
from collections.abc import Callable, Sequence
from hashlib import sha1
from typing import Any, NamedTuple

from app.storage.calls import SCRIPTS
from app.storage.keys import APPENDED_CHANNEL, CHANGED_CHANNEL
from tests.simulation.keyspace import Keyspace, text

Script = Callable[[Keyspace, Sequence[str], Sequence[Any]], Any]


def create(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    epoch, state, seq, snaps, snapshot = keys
    if db.exists(state):
        return 0
    new = db.incr(epoch)
    fields = ("chain", "w", "spread", "sums", "meta")
    given = [part for pair in zip(fields, args, strict=True) for part in pair]
    for key in (state, snapshot):
        db.hset(key, "epoch", new, "seq", 0, "fence", 0, *given)
    db.keep(seq, 0)
    db.zadd(snaps, 0, 0)
    db.publish(CHANGED_CHANNEL, _model(state))
    return new


def delete(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    if db.hget(keys[0], "epoch") != text(args[0]):
        return 0
    kept = [int(seq) for seq in db.zrange(keys[4])]
    if kept != [_number(key) for key in keys[5:]]:
        return -1
    db.drop(*keys)
    db.publish(CHANGED_CHANNEL, _model(keys[0]))
    return 1


class Fresh(NamedTuple):
    """An event to append."""

    seq: int
    seen: str
    request: str
    record: bytes
    new: bytes


def append(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    state, seq, log = keys[:3]
    epoch, limit, dedupe, time, must_end, waits = args[:6]
    now = db.hmget(state, ["epoch", "seq"])
    if now[0] != text(epoch):
        return [1]
    start = int(db.get(seq) or 0)
    try:
        answer, fresh, known = _classify(db, keys[3:], args[6:], start)
    except _Changed:
        return [4]
    if not fresh:
        return answer
    tail = fresh[-1].seq
    if tail - int(now[1] or 0) > int(limit):
        return [2]
    if must_end != "" and start != int(must_end):
        return [3]
    fields = {b"t": text(time)} | ({b"w": b"1"} if waits else {})
    for one in fresh:
        db.xadd(log, one.seq, {b"r": one.record, **fields})
        db.keep(one.seen, known[one.seen], int(dedupe) / 1000)
        if one.new:
            db.hset(one.request, "a", one.new)
    db.keep(seq, tail)
    if start == int(now[1] or 0):
        db.publish(APPENDED_CHANNEL, _model(state))
    return answer


class _Changed(Exception):
    """An event builds on outdated feedback."""


def _classify(
    db: Keyspace, keys: Sequence[str], args: Sequence[Any], tail: int
) -> tuple[list[Any], list[Fresh], dict[str, bytes]]:
    """Return the answer, the new events and their dedupe keys."""
    answer: list[Any] = [0]
    fresh: list[Fresh] = []
    known: dict[str, bytes] = {}
    so_far: dict[str, bytes] = {}
    for at in range(len(keys) // 2):
        seen, request = keys[2 * at : 2 * at + 2]
        digest, record, expected, new, shown = args[5 * at : 5 * at + 5]
        before = known.get(seen) or db.get(seen)
        if before:
            first, _, body = before.partition(b":")
            answer.append([1 if body == digest else 2, int(first)])
            continue
        if new and not db.exists(request):
            answer.append([3, 0])
            continue
        if new and (so_far.get(request) or db.hget(request, "a") or b"") != expected:
            raise _Changed
        if shown and _sha1(db.hget(request, "i") or b"") != text(shown):
            raise _Changed
        tail += 1
        known[seen] = b"%d:%s" % (tail, digest)
        so_far |= {request: new} if new else {}
        answer.append([0, tail])
        fresh.append(Fresh(tail, seen, request, record, new))
    return answer, fresh, known


def _sha1(content: bytes) -> bytes:
    return sha1(content, usedforsecurity=False).hexdigest().encode()


def commit(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    state, fence, log, snaps, snapshot, tail = keys[:6]
    sent = [text(one) for one in args]
    epoch, own_fence, seq, chain, new_seq, new_chain = sent[:6]
    version, trim, again = sent[10:13]
    now = tuple(db.hmget(state, ["epoch", "seq", "chain"]))
    done = now == (epoch, new_seq, new_chain)
    if done and (again != b"1" or seq != new_seq):
        return 1
    if now != (epoch, seq, chain):
        return 2
    if int(new_seq) > int(db.get(tail) or -1):
        return 2
    if db.get(fence) != own_fence:
        return 3
    if not _has(db, log, sent[13:]):
        return 4
    names = ("epoch", "fence", "seq", "chain", "w", "spread", "sums", "meta")
    values = (epoch, own_fence, new_seq, new_chain, *sent[6:10])
    fields = [part for pair in zip(names, values, strict=True) for part in pair]
    db.hset(state, *fields)
    if version == b"1":
        db.zadd(snaps, int(new_seq), new_seq)
        db.hset(snapshot, *fields)
    for old in keys[6:]:
        db.drop(old)
        db.zrem(snaps, _number(old))
    if trim != b"0":
        db.xtrim(log, int(trim) + 1)
    db.publish(CHANGED_CHANNEL, f"{_model(state)} {int(new_seq)}")
    return 0


def _has(db: Keyspace, log: str, learnt: Sequence[bytes]) -> bool:
    """Whether the log has the learnt records: seq, SHA-1 and time of each."""
    there = dict(db.find(log, ()))
    for seq, digest, time in zip(*[iter(learnt)] * 3, strict=True):
        found = there.get(int(seq))
        if not found or (_sha1(found[b"r"]), found[b"t"]) != (digest, time):
            return False
    return True


def lease(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    state, fence, held = keys
    own_fence, ttl = text(args[0]), args[1]
    if not db.exists(state):
        return -1
    holder = db.get(held)
    if holder and holder != own_fence:
        return 0
    if holder:
        db.pexpire(held, ttl)
        return int(holder)
    if own_fence:
        return 0
    new = db.incr(fence)
    db.keep(held, new, int(ttl) / 1000)
    return new


def release(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    return db.drop(keys[0]) if db.get(keys[0]) == text(args[0]) else 0


def remember(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    for key, shown in zip(keys, args[1:], strict=True):
        if db.hget(key, "i") != shown:
            db.drop(key)
            db.hset(key, "i", shown)
        db.pexpire(key, args[0])
    return len(keys)


def recall(
    db: Keyspace, keys: Sequence[str], args: Sequence[Any]
) -> list[list[bytes | None] | int]:
    found: list[list[bytes | None] | int] = []
    size, most, reserved = 0, int(args[0]), int(args[1])
    for key in keys:
        one = db.hmget(key, ["i", "a"])
        more = sum(len(part or b"") for part in one)
        if len(found) < reserved or size + more <= most:
            size += more
            found.append(one)
        elif reserved:
            break
        else:
            found.append(more)
    return found


def present(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    now = int(db.clock() * 1000)
    db.zremrangebyscore(keys[0], 0, now)
    db.zadd(keys[0], now + int(args[1]), args[0])
    return db.zcard(keys[0])


def learners(db: Keyspace, keys: Sequence[str], _: Sequence[Any]) -> int:
    now = int(db.clock() * 1000)
    return sum(score >= now for score in db.find(keys[0], {}).values())


def mark(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> bytes:
    db.keep(keys[0], 1, int(args[0]) / 1000)
    return b"OK"


def _model(state: str) -> str:
    return state[state.index("{") + 1 : state.index("}")]


def _number(key: str) -> int:
    return int(key.rpartition(":")[2])


ALL: dict[str, Script] = {
    "create": create, "delete": delete, "append": append, "commit": commit, "lease": lease,
    "release": release, "remember": remember, "recall": recall, "present": present,
    "learners": learners, "mark": mark,
}  # fmt: skip
_SOURCES = {name: (SCRIPTS / f"{name}.lua").read_bytes() for name in ALL}
#: Scripts by the SHA-1 of their source.
BY_DIGEST = {_sha1(source).decode(): name for name, source in _SOURCES.items()}
#: Scripts that a full server runs.
ALLOW_OOM = {
    name
    for name, source in _SOURCES.items()
    if re.search(rb"allow-oom|no-writes", source.split(b"\n")[0])
}
