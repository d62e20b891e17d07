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
    epoch, state, seq, snaps, snapshot, followers, *left = keys
    if db.exists(state):
        return 0
    if db.exists(followers):
        return -1
    db.drop(*left)
    new = db.incr(epoch)
    fields = ("chain", "w", "spread", "sums", "meta")
    given = [part for pair in zip(fields, args, strict=True) for part in pair]
    for key in (state, snapshot):
        db.hset(key, "epoch", new, "seq", 0, "fence", 0, *given)
    db.hset(snapshot, "reason", "created", "time", _time(db))
    db.hset(state, "slices", f"0 0:3:{int(db.clock())}000", "sliced", "0:0")
    db.keep(seq, 0)
    db.zadd(snaps, 0, 0)
    db.publish(CHANGED_CHANNEL, _model(state))
    return new


def delete(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    if db.hget(keys[0], "epoch") != text(args[0]):
        return 0
    if db.exists(keys[12]):
        return -2
    kept = [member.decode() for index in keys[4:6] for member in db.zrange(index)]
    if kept != [_member(key) for key in keys[13:]]:
        return -1
    db.drop(*keys)
    db.publish(CHANGED_CHANNEL, _model(keys[0]))
    return 1


#: Values of a post, of each event and of its conditions; milliseconds that its time may be ahead.
GIVEN, EACH, CONDITIONS, AHEAD = 11, 5, 8, 300_000
FULL, SPARSE, LEAST_BITS, MOST_BITS, STEP = 64, 4, 3, 19, 4


class Slice(NamedTuple):
    """A slice of dedupe entries."""

    number: int
    bits: int
    opened: int


class Event(NamedTuple):
    """An event of a post: its keys and values."""

    name: str
    id: bytes
    digest: bytes
    record: bytes
    work: int
    request: str = ""
    repeated_only: bool = False
    tenant: bytes = b""
    expected: bytes = b""
    new: bytes = b""
    shown: bytes = b""
    time: bytes = b""
    keep: bytes = b""
    first_life_only: bool = False


class Append:
    """One call of the append script."""

    def __init__(self, db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> None:
        self._db, (self._state, self._seq, self._log) = db, keys[:3]
        sent = [text(one) for one in args]
        self._epoch, self._limit, self._most_work, self._time, self._must_end = sent[:5]
        self._waits, self._seen, self._ttl, count = (
            sent[5],
            sent[6],
            int(sent[8] or 0),
            int(sent[9]),
        )
        self._must_have = sent[10]
        self._window = int(sent[7]) if sent[7] else 0
        self._events = []
        for at in range(count):
            first = GIVEN + EACH * at
            id_hash, digest, record, work, number = sent[first : first + EACH]
            event = Event(keys[3 + at] if sent[8] else "", id_hash, digest, record, int(work))
            if number:
                first = GIVEN + EACH * count + CONDITIONS * (int(number) - 1)
                on, tenant, expected, new, shown, time, keep, first_life = sent[
                    first : first + CONDITIONS
                ]
                event = event._replace(
                    request=keys[int(on) - 1] if on.isdigit() else "", repeated_only=on == b"-",
                    tenant=tenant, expected=expected, new=new, shown=shown, time=time, keep=keep,
                    first_life_only=first_life == b"1",
                )  # fmt: skip
            self._events.append(event)
        self._now = int(db.clock() * 1000)

    def run(self) -> list[Any]:
        names = ["epoch", "seq", "slices", "sliced"]
        epoch, seq, slices, sliced = self._db.hmget(self._state, names)
        if epoch != self._epoch:
            return [1]
        start = int(self._db.get(self._seq) or 0)
        written = self._note_older_processes(slices or b"", sliced or b"", start)
        if self._window and written != self._seen:
            return [5, written]
        answer, fresh, skipped, changed = self._classify(start)
        if changed:
            return [4, b"", *skipped]
        if not fresh:
            return answer
        if fresh[-1][0] - int(seq or 0) > int(self._limit):
            return [2]
        return self._append(fresh, answer, start, int(seq or 0))

    def _append(
        self, fresh: Sequence[tuple[int, Event]], answer: list[Any], start: int, committed: int
    ) -> list[Any]:
        if self._must_end and start != int(self._must_end):
            return [3]
        if self._must_have and self._db.hmget(self._state, ["chain"]) != [self._must_have]:
            return [3]
        code = self._over_work(fresh, start, committed)
        if code:
            return [code]
        if start == committed:
            self._db.hset(self._state, "worked", f"{committed}:{self._charged}")
        self._store(fresh)
        self._db.hset(self._state, "charged", self._charged)
        tail = fresh[-1][0]
        self._db.keep(self._seq, tail)
        if self._window:
            answer[1] = self._open_slice()
        if self._window or not self._behind:
            self._db.hset(self._state, "sliced", f"{self._filled}:{tail}")
        if start == committed:
            self._db.publish(APPENDED_CHANNEL, _model(self._state))
        return answer

    def _over_work(self, fresh: Sequence[tuple[int, Event]], start: int, committed: int) -> int:
        """Return a code if the records take more work than may wait."""
        charged, worked = self._db.hmget(self._state, ["charged", "worked"])
        self._charged = int(charged or 0)
        at, _, done = (worked or b"").partition(b":")
        known = start != committed and done and int(at) == committed
        waiting = self._charged - int(done) if known else 0
        new = sum(event.work for _, event in fresh)
        if not self._most_work:
            return 0
        most = int(self._most_work)
        if new > most and len(fresh) > 1:
            return 7
        return 6 if waiting > 0 and waiting + new > most else 0

    def _note_older_processes(self, slices: bytes, sliced: bytes, start: int) -> bytes:
        """Ask for older entries too if an older process has appended; return the slices."""
        until, *words = slices.split() or [b"0"]
        self._legacy = int(until)
        self._slices = [Slice(*map(int, word.split(b":"))) for word in words]
        filled, _, last = sliced.partition(b":")
        self._filled, self._behind = int(filled or 0), last != text(start)
        if self._window and self._behind and self._legacy < self._now + self._window:
            self._legacy = self._now + 2 * self._window
            self._slices = self._slices or [Slice(0, LEAST_BITS, self._now)]
            slices = self._written()
            self._db.hset(self._state, "slices", slices, "sliced", f"{self._filled}:{start}")
        return slices

    def _written(self) -> bytes:
        until = self._legacy if self._now < self._legacy else 0
        words = [f"{one.number}:{one.bits}:{one.opened}" for one in self._slices]
        return " ".join([str(until), *words]).encode()

    def _bucket(self, id: bytes, one: Slice) -> str:  # noqa: A002
        bucket = int.from_bytes(id[:3], "little") % 2**one.bits
        return f"{self._state[:-5]}e:{self._epoch.decode()}:{one.number}:{bucket}"

    def _find(self, event: Event) -> tuple[int, bool] | None:
        if event.id:
            for one in reversed(self._slices):
                entry = self._db.find(self._bucket(event.id, one), {}).get(event.id)
                if entry:
                    return int(entry[8:]), entry[:8] == event.digest[:8]
            if not event.name or self._now >= self._legacy:
                return None
        entry = self._db.get(event.name)
        if not entry:
            return None
        seq, _, body = entry.partition(b":")
        return int(seq), body == event.digest

    def _classify(self, tail: int) -> tuple[list[Any], list[tuple[int, Event]], list[int], bool]:
        """Return the answer, the new events, the numbers of others, and whether it changed."""
        answer: list[Any] = [0, b""]
        fresh: list[tuple[int, Event]] = []
        skipped: list[int] = []
        known: dict[tuple[bytes, str], tuple[int, bytes]] = {}
        so_far: dict[str, bytes] = {}
        changed = False
        for at, event in enumerate(self._events, start=1):
            here = known.get((event.id, event.name))
            found = (here[0], here[1] == event.digest) if here else self._find(event)
            if found:
                answer += [1 if found[1] else 2, found[0]]
                skipped += [] if here else [at]
                continue
            code = self._refused(event)
            if code:
                answer += [code, 0]
                skipped.append(at)
            elif self._builds_on_other(event, so_far):
                changed = True
            else:
                tail += 1
                known[event.id, event.name] = (tail, event.digest)
                so_far |= {event.request: event.new} if event.request else {}
                answer += [0, tail]
                fresh.append((tail, event))
        return answer, fresh, skipped, changed

    def _refused(self, event: Event) -> int:
        if event.request:
            shown, tenant, ends = self._db.hmget(event.request, ["i", "t", "u"])
            if shown is None or tenant not in (None, event.tenant):
                return 3
            if event.first_life_only and ends and self._now >= int(ends):
                return 7
        elif event.repeated_only:
            return 6
        if event.time and int(event.time) < self._now - self._window:
            return 4
        return 5 if event.time and int(event.time) > self._now + AHEAD else 0

    def _builds_on_other(self, event: Event, so_far: dict[str, bytes]) -> bool:
        shown, accumulated = self._db.hmget(event.request, ["i", "a"])
        if event.request and (so_far.get(event.request) or accumulated or b"") != event.expected:
            return True
        return bool(event.shown) and _sha1(shown or b"") != event.shown

    def _store(self, fresh: Sequence[tuple[int, Event]]) -> None:
        waits = {b"w": b"1"} if self._waits == b"1" else {}
        for seq, event in fresh:
            self._charged += event.work
            fields = {b"r": event.record, b"t": self._time, b"k": text(self._charged), **waits}
            if event.request:
                fields[b"q"] = event.request.split(":", 4)[4].encode()
            self._db.xadd(self._log, seq, fields)
            if event.id:
                self._keep_entry(event, seq)
            legacy = event.name and self._now < self._legacy
            if not event.id or legacy:
                self._db.keep(event.name, b"%d:%s" % (seq, event.digest), self._ttl / 1000)
            if event.request:
                self._db.hset(event.request, "a", event.new)
            if event.keep:
                if not self._db.hget(event.request, "u"):
                    ends = self._now + self._db.pttl(event.request)
                    self._db.hset(event.request, "u", ends)
                _prolong(self._db, event.request, event.keep)

    def _keep_entry(self, event: Event, seq: int) -> None:
        newest = self._slices[-1]
        key = self._bucket(event.id, newest)
        entries = dict(self._db.find(key, {}))
        before = int(entries.get(b"") or 0)
        longest = max(before, self._window)
        entry = {event.id: event.digest[:8] + b"%d" % seq}
        self._db.put(key, {**entries, b"": b"%d" % longest, **entry})
        if self._late(newest) or before < longest:
            self._db.pexpire(key, 3 * longest / 2 + AHEAD)
        self._filled += 1

    def _late(self, newest: Slice) -> bool:
        return not newest.opened <= self._now < newest.opened + self._window / 2

    def _open_slice(self) -> bytes:
        """Open the next slice if the newest is full or old; return the slices, if so."""
        newest = self._slices[-1]
        size = 2**newest.bits
        if self._filled >= FULL * size:
            bits = min(MOST_BITS, newest.bits + STEP)
        elif self._late(newest):
            sparse = self._filled < SPARSE * size
            bits = max(LEAST_BITS, newest.bits - STEP) if sparse else newest.bits
        else:
            bits = -1
        before = len(self._slices)
        if bits >= 0:
            self._slices.append(Slice(newest.number + 1, bits, self._now))
            self._filled = 0
        self._slices = self._slices[self._expired() :]
        if bits < 0 and len(self._slices) == before:
            return b""
        written = self._written()
        self._db.hset(self._state, "slices", written)
        return written

    def _expired(self) -> int:
        """Return the number of slices whose entries have expired."""
        closed = [one.opened + self._window + AHEAD < self._now for one in self._slices[1:]]
        return max((at for at, old in enumerate(closed, start=1) if old), default=0)


def append(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
    return Append(db, keys, args).run()


def _sha1(content: bytes) -> bytes:
    return sha1(content, usedforsecurity=False).hexdigest().encode()


def commit(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    state, fence, log, index, kept, tail, watched = keys[:7]
    sent = [text(one) for one in args]
    epoch, own_fence, seq, chain, new_seq, new_chain = sent[:6]
    reason, trim, again, work = sent[10:14]
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
    known = int(sent[17])
    if not _has(db, log, sent[18 + known :]):
        return 4
    names = ("epoch", "fence", "seq", "chain", "w", "spread", "sums", "meta", "part")
    values = (epoch, own_fence, new_seq, new_chain, *sent[6:10], b"")
    fields = [part for pair in zip(names, values, strict=True) for part in pair]
    db.hset(state, *fields)
    if seq != new_seq:
        db.hset(state, "worked", b"%s:%s" % (new_seq, work))
    if reason:
        db.zadd(index, int(new_seq), _member(kept))
        db.hset(kept, *fields, "reason", reason, "time", _time(db))
    for old in keys[11 + known :]:
        db.drop(old)
        db.zrem(index, _member(old))
    _trim(db, keys, int(trim), sent[18 : 18 + known])
    _note_history(db, keys[7:10], *sent[14:17])
    db.publish(CHANGED_CHANNEL, f"{_model(state)} {int(new_seq)}")
    return 5 if db.exists(watched) else 0


def _trim(db: Keyspace, keys: Sequence[str], trim: int, names: Sequence[bytes]) -> None:
    """Trim the log, no further than a known follower needs it, and call the followers."""
    followers, known = db.hgetall(keys[10]), dict(zip(names, keys[11:], strict=False))
    calls = [name for name in followers if not followers[name]]
    needed = [db.zrange(known[name])[:1] for name in calls if name in known]
    least = min([trim, *(int(one[0]) for one in needed if one)])
    if least and followers.keys() == known.keys():
        db.xtrim(keys[2], least + 1)
    for name in calls:
        db.publish(APPENDED_CHANNEL, f"{_model(keys[0])}/{name.decode()}")


def register(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[bytes]:
    leader, *names = map(text, args)
    follows, models = db.hgetall(keys[1]), db.smembers(keys[0])
    if leader:
        taken = [one for one in names if one in models or follows.get(one, leader) != leader]
    else:
        taken = [one for one in names if one in follows]
    for name in names if not taken else ():
        if leader:
            db.hset(keys[1], name.decode(), leader)
        else:
            db.sadd(keys[0], name.decode())
    return taken


#: Keys and values of each follower in a call of `follow`.
KEYS_OF_FOLLOW, EACH_OF_FOLLOW = 4, 7


def follow(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[int]:
    state, snaps, followers, *rest = keys
    epoch, seq, chain = db.hmget(state, ["epoch", "seq", "chain"])
    if epoch != text(args[0]):
        return [-1]
    places, given = (
        zip(*[iter(rest)] * KEYS_OF_FOLLOW, strict=True),
        zip(*[iter(args[1:])] * EACH_OF_FOLLOW, strict=True),
    )
    each = list(zip(places, given, strict=True))
    oldest = int(next(iter(db.zrange(snaps)), seq or 0))
    for _, (name, start, own_chain, *_) in each:
        if db.hexists(followers, name):
            return [0]
        if not oldest <= start <= int(seq or 0) or (start == int(seq or 0) and own_chain != chain):
            return [-2]
    return [_begun(db, followers, names, values) for names, values in each]


def _begun(db: Keyspace, followers: str, keys: Sequence[str], values: Sequence[Any]) -> int:
    """Create a follower; return its epoch."""
    epoch, state, snaps, snapshot = keys
    name, start, *blobs = values
    new = db.incr(epoch)
    fields = ("chain", "w", "spread", "sums", "meta")
    given = [part for pair in zip(fields, blobs, strict=True) for part in pair]
    for key in (state, snapshot):
        db.hset(key, "epoch", new, "seq", start, "fence", 0, *given)
    db.hset(snapshot, "reason", "created", "time", _time(db))
    db.zadd(snaps, start, start)
    db.hset(followers, name, "")
    for channel in (CHANGED_CHANNEL, APPENDED_CHANNEL):
        db.publish(channel, f"{_model(state)}/{name}")
    return new


def unfollow(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    followers, state, _, snaps, *kept = keys
    if (db.hget(state, "epoch") or b"") != text(args[1]):
        return 0
    if [one.decode() for one in db.zrange(snaps)] != [_member(key) for key in kept]:
        return -1
    deleted = db.drop(state)
    db.drop(*keys[2:])
    db.hdel(followers, args[0])
    db.publish(CHANGED_CHANNEL, f"{_model(state)}/{args[0]}")
    return deleted


def commit_follower(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    state, fence, log, followers, leader, index, kept, *dropped = keys
    sent = [text(one) for one in args]
    epoch, own_fence, seq, chain, new_seq, new_chain = sent[:6]
    reason, again, name = sent[10:13]
    now = tuple(db.hmget(state, ["epoch", "seq", "chain"]))
    if now == (epoch, new_seq, new_chain) and again != b"1":
        return 1
    if now != (epoch, seq, chain):
        return 2
    if db.get(fence) != own_fence:
        return 3
    if db.hget(followers, name.decode()) != b"":
        return 5
    leads, leaders_chain = db.hmget(leader, ["seq", "chain"])
    ahead = int(new_seq) - int(leads or -1)
    if ahead > 0 or (ahead == 0 and leaders_chain != new_chain) or not _has(db, log, sent[13:]):
        return 4
    names = ("epoch", "fence", "seq", "chain", "w", "spread", "sums", "meta", "part")
    values = (epoch, own_fence, new_seq, new_chain, *sent[6:10], b"")
    fields = [part for pair in zip(names, values, strict=True) for part in pair]
    db.hset(state, *fields)
    if reason:
        db.zadd(index, int(new_seq), new_seq)
        db.hset(kept, *fields, "reason", reason, "time", _time(db))
    for old in dropped:
        db.drop(old)
        db.zrem(index, _member(old))
    db.publish(CHANGED_CHANNEL, f"{_model(state)}/{name.decode()} {int(new_seq)}")
    return 0


def shorten(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    followers, index, leader, *old = keys
    name, seq, *base = args
    if not db.hexists(followers, name):
        return 0
    if seq != "" and db.hmget(leader, ["epoch", "seq", "chain"]) != [*map(text, base)]:
        return 0
    newest = [int(one) for one in db.zrange(index)[-1:]]
    if seq == "" or not newest or newest[0] < seq:
        db.hset(followers, name, "stalled")
        db.publish(CHANGED_CHANNEL, f"{_model(followers)}/{name}")
        return 1
    for key in old:
        db.drop(key)
        db.zrem(index, _member(key))
    return 0


def keep_for_duel(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    state, keeps, version, kept = keys
    if db.hget(state, "epoch") != text(args[0]):
        return -1
    time = str(int(db.clock() * 1000))
    if db.exists(kept):
        db.hset(kept, "time", time)
        return 1
    names = ["epoch", "fence", "seq", "chain", "w", "spread", "sums", "meta"]
    found = db.hmget(version, names)
    if found[2] is None:
        return 0
    fields = [part for pair in zip(names, found, strict=True) if pair[1] for part in pair]
    db.hset(kept, *fields, "reason", "duel", "time", time)
    db.zadd(keeps, int(found[2]), _member(kept))
    return 1


def _note_history(
    db: Keyspace, rings: Sequence[str], time: bytes, point: bytes, weights: bytes
) -> None:
    sizes = ((10_000, 360), (600_000, 144), (3_600_000, 25))
    for key, row, (interval, most) in zip(rings, (point, point, weights), sizes, strict=True):
        if row:
            rows = db.find(key, ())
            if not rows or int(rows[-1][:13]) // interval != int(time) // interval:
                rows = (*rows, time + row)[-most:]
            db.put(key, rows)
        if point and db.exists(key):
            db.pexpire(key, 86_400_000)


def admit(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    now, model = int(db.clock() * 1000), text(args[0])
    db.zremrangebyscore(keys[0], 0, now - 87_300_000)
    db.zremrangebyscore(keys[0], now + 60_000, float("inf"))
    if model not in db.find(keys[0], {}) and db.zcard(keys[0]) >= int(args[1]):
        return 0
    db.zadd(keys[0], now, model)
    return 1


def keep(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    state, keeps, kept = keys
    epoch, most, call = map(text, args)
    names = ["epoch", "fence", "seq", "chain", "w", "spread", "sums", "meta"]
    found = db.hmget(state, names)
    if found[0] != epoch:
        return -1
    seq, earlier = db.hmget(kept, ["seq", "call"])
    if seq is not None:
        return int(seq) if earlier == call else -2
    prefix = b"%s-name-" % epoch
    if sum(member.startswith(prefix) for member in db.zrange(keeps)) >= int(most):
        return -3
    fields = [part for pair in zip(names, found, strict=True) if pair[1] for part in pair]
    db.hset(kept, *fields, "reason", "named", "time", _time(db), "call", call)
    db.zadd(keeps, int(found[2] or 0), _member(kept))
    return int(found[2] or 0)


def drop(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    if text(args[0]) and db.hget(keys[1], "time") != text(args[0]):
        return 0
    db.zrem(keys[0], _member(keys[1]))
    return db.drop(keys[1])


def commit_part(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    state, fence = keys
    epoch, own_fence, seq, chain, part = map(text, args)
    if tuple(db.hmget(state, ["epoch", "seq", "chain"])) != (epoch, seq, chain):
        return 2
    if db.get(fence) != own_fence:
        return 3
    db.hset(state, "part", part)
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
    own_fence, ttl = args
    if not db.exists(state):
        return -1
    if own_fence == "":
        if valid(db, held):
            return 0
        own_fence = db.incr(fence)
    elif _fence(db.get(held)) != text(own_fence):
        return 0
    db.keep(held, f"{own_fence}{int(ttl):010d}", int(ttl) / 1000)
    return int(own_fence)


def valid(db: Keyspace, key: str) -> bytes | None:
    """Return a lease unless it expires later than its length allows."""
    held, left = db.get(key), db.pttl(key)
    length = int(held[-10:]) if held and len(held) > 10 else 60_000
    return held if 0 <= left <= length + 1000 else None


def _fence(held: bytes | None) -> bytes:
    return (held[:-10] if held and len(held) > 10 else held) or b""


def release(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    return db.drop(keys[0]) if _fence(db.get(keys[0])) == text(args[0]) else 0


def _prolong(db: Keyspace, key: str, milliseconds: Any) -> None:
    """Expire later, if that is later."""
    if int(milliseconds) > db.pttl(key):
        db.pexpire(key, milliseconds)


def remember(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> list[int]:
    ttl, noted, deadline = args[:3]
    now, stored = int(db.clock() * 1000), list[int]()
    if deadline and now > int(deadline):
        return [now]
    for key, tenant, shown in zip(keys[1:], args[3::2], args[4::2], strict=True):
        before, owner = db.hmget(key, ["i", "t"])
        stored.append(int(owner in (None, text(tenant))))
        if not stored[-1]:
            continue
        if before != shown:
            db.drop(key)
            db.hset(key, "i", shown, "t", tenant)
            db.pexpire(key, ttl)
        else:
            stored[-1] = 2
            _prolong(db, key, ttl)
            ends = db.hget(key, "u")
            if ends and int(ends) < now + int(ttl):
                db.hset(key, "u", now + int(ttl))
    if noted and stored[noted - 1]:
        request = keys[noted].split(":", 4)[4].encode()
        db.put(keys[0], (request, *db.find(keys[0], ()))[:100], ttl / 1000)
    return [now, *stored]


def forget(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> int:
    now, expire, removed = int(db.clock() * 1000), int(args[0]), 0
    for key, tenant, digest in zip(keys, args[1::2], args[2::2], strict=True):
        shown, owner, accumulated = db.hmget(key, ["i", "t", "a"])
        mine = shown is not None and (owner, _sha1(shown)) == (text(tenant), text(digest))
        if mine and accumulated is None and now + db.pttl(key) <= expire + 2:
            removed += db.drop(key)
    return removed


def recall(
    db: Keyspace, keys: Sequence[str], args: Sequence[Any]
) -> list[list[bytes | None] | int]:
    found: list[list[bytes | None] | int] = []
    size, most, reserved = 0, int(args[0]), int(args[1])
    for key in keys:
        one = db.hmget(key, ["i", "a", "t"])
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
    db.keep(keys[1], args[2], int(args[1]) / 1000)
    for name in _void_names(db, keys[0], now):
        db.zrem(keys[0], name)
    return db.zcard(keys[0])


def _void_names(db: Keyspace, key: str, now: int) -> set[bytes]:
    """Return the learners whose registration expires later than its length allows."""
    found: dict[bytes, float] = db.find(key, {})
    lengths = {name: int(name.rpartition(b":")[2] if b":" in name else 60_000) for name in found}
    return {name for name, ends in found.items() if ends - now > lengths[name] + 1000}


def learners(db: Keyspace, keys: Sequence[str], _: Sequence[Any]) -> list[bytes]:
    now = int(db.clock() * 1000)
    void = _void_names(db, keys[0], now)
    found: dict[bytes, float] = db.find(keys[0], {})
    return [name for name, ends in found.items() if ends >= now and name not in void]


def mark(db: Keyspace, keys: Sequence[str], args: Sequence[Any]) -> bytes:
    db.keep(keys[0], 1, int(args[0]) / 1000)
    return b"OK"


def _model(state: str) -> str:
    return state[state.index("{") + 1 : state.index("}")]


def _member(key: str) -> str:
    return key.rpartition(":")[2]


def _time(db: Keyspace) -> str:
    return f"{int(db.clock())}000"


ALL: dict[str, Script] = {
    "create": create, "delete": delete, "append": append, "commit": commit,
    "commit_part": commit_part, "keep": keep, "drop": drop, "lease": lease,
    "release": release, "remember": remember, "forget": forget, "recall": recall,
    "present": present, "learners": learners, "mark": mark, "admit": admit,
    "register": register, "follow": follow, "unfollow": unfollow,
    "commit_follower": commit_follower, "shorten": shorten, "keep_for_duel": keep_for_duel,
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
