"""A model's log and state in Redis.

Appending, committing and leasing are one Lua script each (`scripts/`), and each may be sent twice
without harm: an append is deduplicated by its event, a commit compares (seq, chain) before it sets.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from redis import exceptions as foreign
from redis.asyncio import Redis

from app.errors import Backlog, BadBlob, Changed, Fenced, ModelExists, NoSuchModel
from app.events import SUMS, Model, Settings, Standing, State
from app.ranking.covariance import diagonal, triangle_size
from app.store import codec, jobs
from app.store.jobs import Jobs
from app.store.keys import MODELS, Keys, check_name
from app.store.version import refuse_old
from app.store.wall import connect, refusal, translated

SCRIPTS = Path(__file__).parent / "scripts"
OURS = ("append", "commit", "create", "delete", "lease", "release", "remember")
APPENDED, REPEATED, OTHER_BODY, FORGOTTEN = range(4)
#: Dedupe keys live at least this long.
LEAST_DEDUPE = 3_600.0


#: Epoch, seq and chain of a state.
Position: TypeAlias = tuple[int, int, bytes]


class Event(NamedTuple):
    """One event of a post: its record, and for feedback on a request what it builds on.

    `expected` is the accumulation (what has come of the request so far) that the record was made
    from, `new` the one that it makes; both empty for an event without a request. `shown` is the
    SHA-1 (hex) of the impression it was made from, empty if that does not matter.
    """

    event: str
    digest: bytes
    record: bytes
    request: str = ""
    expected: bytes = b""
    new: bytes = b""
    shown: str = ""


class Appended(NamedTuple):
    """What became of an event (APPENDED … FORGOTTEN), and its seq."""

    outcome: int
    seq: int


class Entry(NamedTuple):
    """A record in the log, and when it was appended (ms since 1970, by the poster's clock).

    Its `mark` is the same only where all posts up to its own are the same; `before` is the mark
    of the post before.
    """

    seq: int
    record: bytes
    time: int
    waited_for: bool = False
    mark: bytes = b""
    before: bytes = b""

    def follows(self, mark: bytes) -> bool:
        """Whether the record before this one has that mark, as far as both have marks."""
        return not (mark and self.mark) or mark in (self.mark, self.before)

    @property
    def replaces(self) -> bool:
        """Whether the record replaces the model; seen without decoding it."""
        return codec.kind_is(self.record, "replace")


@dataclass(frozen=True, slots=True)
class Stored:
    """A state as the store has it, with the model's epoch."""

    epoch: int
    state: State


class Aside(NamedTuple):
    """What a commit says beside the state, for those who look on.

    `time` is when its last record was appended (ms since 1970), `trace` that of Σ.
    """

    time: int = 0
    trace: float = 0.0


class Weights(NamedTuple):
    """What a replica needs to rank and to tell how it goes: no covariance."""

    epoch: int
    seq: int
    chain: bytes
    settings: Settings
    weights: Any
    sums: Any
    aside: Aside


class Impression(NamedTuple):
    """What was shown for a request (opaque here), and what has come of it so far."""

    shown: bytes
    accumulated: bytes


class Store:
    """All that the service keeps."""

    def __init__(self, client: Redis) -> None:
        self._client: Any = client  # redis-py types answers for every protocol at once
        self._scripts: dict[str, Any] = {
            name: client.register_script(_source(name)) for name in (*OURS, *jobs.SCRIPTS)
        }
        self.jobs = Jobs(client, self._scripts)

    @classmethod
    def open(cls, url: str) -> "Store":
        """The store behind a URL: `redis://`, `rediss://` or `unix://`."""
        return cls(connect(url))

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.aclose()

    # ---- models ----

    async def create(self, model: str, state: State) -> int:
        """A new model in state 0; returns its epoch."""
        keys = Keys(check_name(model))
        with translated():
            await self._client.sadd(MODELS, model)  # before and after: we may be cut short, and
            epoch = await self._scripts["create"](  # somebody may delete the name in between
                [keys.epoch, keys.state, keys.seq, keys.snapshots, keys.snapshot(0)],
                [state.chain, *_dump_state(state)],
            )
            await self._client.sadd(MODELS, model)
        if not epoch:
            raise ModelExists(f"model {model}: expected a new name, got one that exists")
        return int(epoch)

    async def delete(self, model: str) -> bool:
        """End a model with all that it has learnt; whether there was one."""
        keys = Keys(check_name(model))
        with translated():
            epoch, gone = await self._client.hget(keys.state, "epoch"), -1
            while gone < 0:  # a learner may keep one more version meanwhile
                kept = [keys.snapshot(seq) for seq in await self.versions(model)]
                names = [keys.state, keys.seq, keys.log, keys.lease, keys.snapshots, *kept]
                gone = int(await self._scripts["delete"](names, [epoch or ""]))
            await self._client.srem(MODELS, model)
            if await self._client.exists(keys.state):  # created again meanwhile
                await self._client.sadd(MODELS, model)
        return bool(gone)

    async def models(self) -> list[str]:
        """The names of all models."""
        with translated():
            return sorted(name.decode() for name in await self._client.smembers(MODELS))

    # ---- the log ----

    async def append(
        self,
        model: str,
        epoch: int,
        events: Sequence[Event],
        *,
        limit: int,
        time: int,
        dedupe: float = LEAST_DEDUPE,
        tail: int | None = None,
        wait: bool = False,
    ) -> list[Appended]:
        """Enter all events of a post into the log, each once: one script, one call.

        All or none: Changed if one of them builds on what is no longer so. With `tail` only if the
        log ends there, else Fenced. With `wait` the learner commits at once: somebody waits.
        """
        if not events:
            return []
        keys = Keys(model)
        names = [keys.state, keys.seq, keys.log]
        values: list[Any] = [epoch, limit, int(max(dedupe, LEAST_DEDUPE) * 1000), time]
        values += ["" if tail is None else tail, int(wait), _digest(events)]
        for event in events:
            request = keys.impression(epoch, event.request) if event.request else keys.state
            names += [keys.event(epoch, event.event), request]
            values += [event.digest, event.record, event.expected, event.new, event.shown]
        with translated():
            code, *answers = await self._scripts["append"](names, values)
        if code == 1:
            raise NoSuchModel(f"model {model}: there is none of this name (any more)")
        if code == 2:
            raise Backlog(f"model {model}: more than {limit} records wait to be learnt")
        if code == 3:
            raise Fenced(f"model {model}: the log no longer ends at {tail}")
        if code == 4:
            raise Changed(f"model {model}: a request has got other feedback meanwhile")
        return [Appended(*answer) for answer in answers]

    async def known(self, model: str, epoch: int, events: Sequence[str]) -> set[str]:
        """Which of these events are in the log already, as far as that is remembered."""
        keys = Keys(model)
        with translated():
            found = await self._client.mget([keys.event(epoch, event) for event in events])
        return {event for event, seen in zip(events, found, strict=True) if seen}

    async def read(self, model: str, after: int, count: int, wait: float = 0.0) -> list[Entry]:
        """The next records after seq `after`; waits up to so many seconds for the first."""
        keys, start = Keys(model), f"{after}-0"
        with translated():
            found = await self._client.xread(
                {keys.log: start}, count=count, block=max(1, int(wait * 1000)) if wait else None
            )
        return [
            _entry(identity, fields) for _, entries in found or () for identity, fields in entries
        ]

    async def log_size(self, model: str) -> tuple[int, int]:
        """How many records the log has, and about how many bytes they take."""
        key = Keys(model).log
        with translated():
            length = int(await self._client.xlen(key))
            return length, int(await self._client.memory_usage(key) or 0) if length else 0

    async def tail(self, model: str) -> int:
        """The seq of the last record."""
        with translated():
            tail = await self._client.get(Keys(model).seq)
        if tail is None:
            raise NoSuchModel(f"model {model}: there is none of this name")
        return int(tail)

    async def standings(self, models: Sequence[str]) -> dict[str, Standing]:
        """How many models stand, as far as they exist: one round trip."""
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for keys in map(Keys, models):  # one by one: a Cluster's pipeline knows no MGET
                for key in (keys.seq, keys.lease, keys.fence, keys.training):
                    pipeline.get(key)
            found = iter(await pipeline.execute() if models else [])
        each = zip(models, found, found, found, found, strict=True)
        return {
            name: Standing(int(tail), int(lease or 0), int(fence or 0), trains is not None)
            for name, tail, lease, fence, trains in each
            if tail is not None
        }

    # ---- state ----

    async def load(self, model: str) -> Stored:
        """The committed state, whole; BadBlob if it is damaged."""
        return await self._load(model, Keys(model).state)

    async def version(self, model: str, seq: int) -> Stored:
        """The state after record `seq`, if it was kept."""
        return await self._load(model, Keys(model).snapshot(seq))

    async def _load(self, model: str, key: str) -> Stored:
        with translated():
            fields = await self._client.hgetall(key)
        if not fields:
            raise NoSuchModel(f"model {model}: there is none of this name, or not at this version")
        try:
            return Stored(int(fields[b"epoch"]), _load_state(fields))
        except (KeyError, TypeError, ValueError) as error:
            raise BadBlob(f"expected a whole state, got one without {error}") from error

    async def position(self, model: str) -> Position:
        """Where the committed state is: the base of the next commit."""
        with translated():
            epoch, seq, chain = await self._client.hmget(
                Keys(model).state, ["epoch", "seq", "chain"]
            )
        if epoch is None:
            raise NoSuchModel(f"model {model}: there is none of this name")
        return int(epoch), int(seq), chain

    async def claimed(self, model: str) -> tuple[int, bytes]:
        """Where the committed state says that it is, even if the fields beside it are damaged."""
        with translated():
            seq, chain, w = await self._client.hmget(Keys(model).state, ["seq", "chain", "w"])
        with suppress(BadBlob, KeyError, ValueError):
            return _claim(codec.load(w or b"", "w").fields)
        return int(seq), chain

    async def load_weights(self, model: str) -> Weights:
        """What a replica needs to rank, without the covariance."""
        with translated():
            fields = await self._client.hmget(
                Keys(model).state, ["epoch", "seq", "chain", "meta", "w", "sums"]
            )
        if fields[0] is None:
            raise NoSuchModel(f"model {model}: there is none of this name")
        epoch, seq, chain, meta, w, sums = fields
        settings = codec.load_settings(codec.load(meta or b"", "meta").fields)
        weights = _weights(w or b"", int(seq), chain)
        _, said, arrays = codec.load(sums or b"", "sums")
        aside = Aside(int(said.get("time", 0)), float(said.get("trace", 0.0)))
        sums = _whole(arrays["values"])
        return Weights(int(epoch), int(seq), chain, settings, weights, sums, aside)

    async def versions(self, model: str) -> list[int]:
        """The seqs of the kept versions, oldest first."""
        with translated():
            return [int(seq) for seq in await self._client.zrange(Keys(model).snapshots, 0, -1)]

    async def commit(
        self,
        model: str,
        base: Position,
        fence: int,
        state: State,
        *,
        version: bool = False,
        drop: Sequence[int] = (),
        trim: int = 0,
        again: bool = False,
        time: int = 0,
        mark: bytes = b"",
    ) -> None:
        """Put `state` in the place of `base`, or Fenced.

        With `version` it is kept as one, `drop` are versions that go, and the log is trimmed up to
        and with record `trim`. `again` writes what is committed already once more. `time` is when
        the last record was appended, and `mark` its mark: the log must have it still.
        """
        keys, (epoch, seq, chain) = Keys(model), base
        names = [keys.state, keys.fence, keys.log, keys.snapshots, keys.snapshot(state.seq)]
        names += [keys.seq, *(keys.snapshot(old) for old in drop)]
        values = [epoch, fence, seq, chain, state.seq, state.chain, *_dump_state(state, time)]
        values += [keys.channel, int(version), trim, int(again), mark]
        with translated():
            code = await self._scripts["commit"](names, values)
        if code in (2, 3):
            why = "the state is another" if code == 2 else "another learner has taken over"
            raise Fenced(f"model {model}: the commit of {state.seq} was refused: {why}")

    async def lease(self, model: str, fence: int, ttl: float) -> int:
        """Take or keep the lease; our fence, or 0 if another learner holds it."""
        keys = Keys(model)
        with translated():
            got = await self._scripts["lease"](
                [keys.state, keys.fence, keys.lease], [fence or "", int(ttl * 1000)]
            )
        if got < 0:
            raise NoSuchModel(f"model {model}: there is none of this name")
        return int(got)

    async def release(self, model: str, fence: int) -> None:
        """Give the lease back, if it is ours."""
        with translated():
            await self._scripts["release"]([Keys(model).lease], [fence])

    async def watch(self, model: str, poll: float = 0.25) -> AsyncIterator[None]:
        """Wakes at every hint of a commit, and at least every `poll` seconds; never fails."""
        while True:
            try:
                async with self._client.pubsub() as subscription:
                    await subscription.subscribe(Keys(model).channel)
                    while True:
                        await subscription.get_message(timeout=poll)
                        yield
            except (foreign.RedisError, OSError):
                await asyncio.sleep(poll)
                yield

    # ---- impressions ----

    async def remember(self, model: str, epoch: int, shown: dict[str, bytes], ttl: float) -> None:
        """Keep what was shown for some requests, for `ttl` seconds: one round trip."""
        keys = Keys(model)
        names = [keys.impression(epoch, request) for request in shown]
        with translated():
            await self._scripts["remember"](names, [int(ttl * 1000), *shown.values()])

    async def recall(
        self, model: str, epoch: int, requests: Sequence[str]
    ) -> list[Impression | None]:
        """What was shown for each request, None where that is unknown or forgotten."""
        keys = Keys(model)
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for request in requests:
                pipeline.hmget(keys.impression(epoch, request), ["i", "a"])
            found = await pipeline.execute()
        return [Impression(shown, so_far or b"") if shown else None for shown, so_far in found]

    # ---- the server ----

    async def memory_share(self) -> float:
        """How much of the server's memory limit is used, 0 without a limit; also a sign of life."""
        limit, used = await self._memory()
        return used / limit if limit else 0.0

    async def _memory(self) -> tuple[int, int]:
        """The server's memory limit (0: none that we know of) and how much is used."""
        with translated():
            try:
                found = await self._client.info("memory")
            except foreign.NoPermissionError:  # INFO is denied
                await self._client.exists(MODELS)
                return 0, 0
        return int(found.get("maxmemory", 0)), int(found.get("used_memory", 0))

    async def room_for_a_log(self) -> int:
        """How many bytes a log may take, so that all of them leave three quarters of the server."""
        limit, _ = await self._memory()
        with translated():
            models = int(await self._client.scard(MODELS))
        return limit // (4 * max(1, models)) if limit else 1 << 62

    async def complaints(self) -> list[str]:
        """What is wrong with the server's settings; what could not be asked is said too.

        OldServer if it is older than we need.
        """
        wanted = {
            "appendonly": ("yes", "without AOF a restart loses acknowledged feedback"),
            "appendfsync": (
                "always",
                "a power cut loses what was acknowledged since the last fsync",
            ),
            "maxmemory-policy": ("noeviction", "the server may evict a model"),
        }
        version = await self._checked_version()
        unknown = [] if version else ["INFO names no version: whether it is too old goes unchecked"]
        with translated():
            try:
                found = await self._client.config_get(*wanted)
            except foreign.ResponseError as error:  # denied or renamed: a managed server, an ACL
                unchecked = f"expected {', '.join(wanted)} go unchecked"
                return [*unknown, f"CONFIG GET was refused ({refusal(error)}): {unchecked}"]
        return unknown + [
            f"{name}: expected {value}, got {found.get(name)}: {why}"
            for name, (value, why) in wanted.items()
            if found.get(name) != value
        ]

    async def refuse_old_server(self) -> None:
        """OldServer if the server is older than we need; one that will not say passes."""
        await self._checked_version()

    async def _checked_version(self) -> str:
        with translated():
            try:
                version = str((await self._client.info("server")).get("redis_version", ""))
            except foreign.ResponseError as error:  # may not be asked, or our client's first word
                hello = "unknown command `HELLO`" in str(error)
                version = "5 or older (it knows no HELLO)" if hello else ""
        refuse_old(version, "the store")
        return version


@cache
def _source(name: str) -> str:
    return (SCRIPTS / f"{name}.lua").read_text()


def _entry(identity: bytes, fields: dict[bytes, bytes]) -> Entry:
    seq = int(identity.split(b"-")[0])
    marks = fields.get(b"m", b""), fields.get(b"b", b"")
    return Entry(seq, fields[b"r"], int(fields.get(b"t", 0)), b"w" in fields, *marks)


def _digest(events: Sequence[Event]) -> bytes:
    """Of all records of a post."""
    digest = blake2b(digest_size=16)
    for event in events:
        digest.update(event.record)
    return digest.digest()


def _dump_state(state: State, time: int = 0) -> list[bytes]:
    model = state.model
    aside = Aside(time, _trace(model))._asdict()
    return [
        codec.dump("w", {"seq": state.seq, "chain": state.chain.hex()}, {"values": model.weights}),
        codec.dump("spread", {}, {"values": model.spread}),
        codec.dump("sums", aside, {"values": state.sums}),
        codec.dump("meta", codec.dump_settings(model.settings), {}),
    ]


def _trace(model: Model) -> float:
    n = model.settings.n
    at = diagonal(n) if model.spread.size == triangle_size(n) else slice(None)
    return float(model.spread[at].sum())


def _load_state(fields: dict[bytes, bytes]) -> State:
    settings = codec.load_settings(codec.load(fields[b"meta"], "meta").fields)
    seq, chain = int(fields[b"seq"]), fields[b"chain"]
    weights, spread = _weights(fields[b"w"], seq, chain), _array(fields[b"spread"], "spread")
    sums = _whole(_array(fields[b"sums"], "sums"))
    return State(seq, chain, Model(settings, weights, spread), sums)


def _whole(sums: Any) -> Any:
    """Sums that were kept before there were as many: the others are 0."""
    return (
        np.concatenate([sums, np.zeros(len(SUMS) - len(sums))]) if len(sums) < len(SUMS) else sums
    )


def _weights(blob: bytes, seq: int, chain: bytes) -> Any:
    """The weights, if they are those of this place in the log."""
    _, fields, arrays = codec.load(blob, "w")
    if _claim(fields) != (seq, chain):
        raise BadBlob(f"expected the weights after record {seq}, got others")
    return arrays["values"]


def _claim(fields: dict[str, Any]) -> tuple[int, bytes]:
    return int(fields["seq"]), bytes.fromhex(fields["chain"])


def _array(blob: bytes, kind: str) -> Any:
    return codec.load(blob, kind).arrays["values"]
