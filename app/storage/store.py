"""A model's log and state in Redis.

Appending, committing and leasing are one Lua script each (`scripts/`), and each may be sent twice
without harm: an append is deduplicated by its event, a commit compares (seq, chain) before it sets.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from redis import exceptions as foreign

from app.domain import codec
from app.domain.facts import ModelStatus
from app.domain.model import SUMS, Model, ModelState
from app.domain.model_config import ModelConfig
from app.errors import Backlog, BadBlob, Changed, Fenced, ModelExists, NoSuchModel, RolledBack
from app.ranking.covariance import diagonal, triangle_size
from app.storage import health
from app.storage.connection import connect
from app.storage.errors import translated
from app.storage.jobs import Jobs
from app.storage.keys import LEARNERS, MODELS, Keys, check_name
from app.storage.script_calls import ScriptRunner

APPENDED, REPEATED, OTHER_BODY, FORGOTTEN = range(4)
#: Dedupe keys live at least this long.
LEAST_DEDUPE = 3_600.0


#: Epoch, seq and chain of a state.
LogPosition: TypeAlias = tuple[int, int, bytes]


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


class AppendResult(NamedTuple):
    """What became of an event (APPENDED … FORGOTTEN), and its seq."""

    outcome: int
    seq: int


class LogEntry(NamedTuple):
    """A record in the log, and when it was appended (ms since 1970, by the poster's clock)."""

    seq: int
    record: bytes
    time: int
    waited_for: bool = False

    @property
    def replaces(self) -> bool:
        """Whether the record replaces the model; seen without decoding it."""
        return codec.kind_is(self.record, "replace")


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state as the store has it, with the model's epoch."""

    epoch: int
    state: ModelState


class CommitInfo(NamedTuple):
    """What a commit says beside the state, for those who look on.

    `time` is when its last record was appended (ms since 1970), `trace` that of Σ. `term` is the
    name of the learner's term: within one, each commit builds on the one before.
    """

    time: int = 0
    trace: float = 0.0
    term: str = ""


class StoredWeights(NamedTuple):
    """What a replica needs to rank and to tell how it goes: no covariance."""

    epoch: int
    seq: int
    chain: bytes
    config: ModelConfig
    weights: Any
    sums: Any
    aside: CommitInfo


class StoredImpression(NamedTuple):
    """What was shown for a request (opaque here), and what has come of it so far."""

    shown: bytes
    accumulated: bytes


class Store:
    """All that the service keeps."""

    def __init__(self, client: Any, durability: str = "") -> None:
        self._client, self._durability = client, durability
        self._calls = ScriptRunner(client, replicas=int(durability == "replicated"))
        self.jobs = Jobs(self._calls)

    @classmethod
    def open(cls, url: str, durability: str = "") -> "Store":
        """The store behind a URL (`clients.SCHEMES`), as safe as was asked for (`checks`)."""
        return cls(connect(url), durability)

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.aclose()

    # ---- models ----

    async def create(self, model: str, state: ModelState) -> int:
        """A new model in state 0; returns its epoch."""
        keys = Keys(check_name(model))
        with translated():
            await self._client.sadd(MODELS, model)  # before and after: we may be cut short, and
            epoch = await self._calls.kept_script(  # somebody may delete the name in between
                "create",
                [keys.epoch, keys.state, keys.seq, keys.snapshots, keys.snapshot(0)],
                [state.chain, *_dump_state(state)],
            )
            await self._calls.kept(MODELS, "SADD", MODELS, model)
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
                gone = int(await self._calls.kept_script("delete", names, [epoch or ""]))
            await self._calls.kept(MODELS, "SREM", MODELS, model)
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
    ) -> list[AppendResult]:
        """Enter all events of a post into the log, each once: one script, one call.

        All or none: Changed if one of them builds on what is no longer so. With `tail` only if the
        log ends there, else Fenced. With `wait` the learner commits at once: somebody waits.
        """
        if not events:
            return []
        keys = Keys(model)
        names = [keys.state, keys.seq, keys.log]
        values: list[Any] = [epoch, limit, int(max(dedupe, LEAST_DEDUPE) * 1000), time]
        values += ["" if tail is None else tail, int(wait)]
        for event in events:
            request = keys.impression(epoch, event.request) if event.request else keys.state
            names += [keys.event(epoch, event.event), request]
            values += [event.digest, event.record, event.expected, event.new, event.shown]
        with translated():
            code, *answers = await self._calls.kept_script("append", names, values)
        if code == 1:
            raise NoSuchModel(f"model {model}: there is none of this name (any more)")
        if code == 2:
            raise Backlog(f"model {model}: more than {limit} records wait to be learnt")
        if code == 3:
            raise Fenced(f"model {model}: the log no longer ends at {tail}")
        if code == 4:
            raise Changed(f"model {model}: a request has got other feedback meanwhile")
        return [AppendResult(*answer) for answer in answers]

    async def known(self, model: str, epoch: int, events: Sequence[str]) -> set[str]:
        """Which of these events are in the log already, as far as that is remembered."""
        keys = Keys(model)
        with translated():
            found = await self._client.mget([keys.event(epoch, event) for event in events])
        return {event for event, seen in zip(events, found, strict=True) if seen}

    async def read(self, model: str, after: int, count: int, wait: float = 0.0) -> list[LogEntry]:
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

    async def standings(self, models: Sequence[str]) -> dict[str, ModelStatus]:
        """How many models stand, as far as they exist: one round trip."""
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for keys in map(Keys, models):  # one by one: a Cluster's pipeline knows no MGET
                for key in (keys.seq, keys.lease, keys.fence, keys.training):
                    pipeline.get(key)
            found = iter(await pipeline.execute() if models else [])
        each = zip(models, found, found, found, found, strict=True)
        return {
            name: ModelStatus(int(tail), int(lease or 0), int(fence or 0), trains is not None)
            for name, tail, lease, fence, trains in each
            if tail is not None
        }

    # ---- state ----

    async def load(self, model: str) -> StoredState:
        """The committed state, whole; BadBlob if it is damaged."""
        return await self._load(model, Keys(model).state)

    async def version(self, model: str, seq: int) -> StoredState:
        """The state after record `seq`, if it was kept."""
        return await self._load(model, Keys(model).snapshot(seq))

    async def _load(self, model: str, key: str) -> StoredState:
        with translated():
            fields = await self._client.hgetall(key)
        if not fields:
            raise NoSuchModel(f"model {model}: there is none of this name, or not at this version")
        try:
            return StoredState(int(fields[b"epoch"]), _load_state(fields))
        except (KeyError, TypeError, ValueError) as error:
            raise BadBlob(f"expected a whole state, got one without {error}") from error

    async def position(self, model: str) -> LogPosition:
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

    async def load_weights(self, model: str) -> StoredWeights:
        """What a replica needs to rank, without the covariance."""
        with translated():
            fields = await self._client.hmget(
                Keys(model).state, ["epoch", "seq", "chain", "meta", "w", "sums"]
            )
        if fields[0] is None:
            raise NoSuchModel(f"model {model}: there is none of this name")
        epoch, seq, chain, meta, w, sums = fields
        config = codec.load_config(codec.load(meta or b"", "meta").fields)
        weights = _weights(w or b"", int(seq), chain)
        _, said, arrays = codec.load(sums or b"", "sums")
        aside = CommitInfo(
            int(said.get("time", 0)), float(said.get("trace", 0.0)), str(said.get("term", ""))
        )
        sums = _whole(arrays["values"])
        return StoredWeights(int(epoch), int(seq), chain, config, weights, sums, aside)

    async def versions(self, model: str) -> list[int]:
        """The seqs of the kept versions, oldest first."""
        with translated():
            return [int(seq) for seq in await self._client.zrange(Keys(model).snapshots, 0, -1)]

    async def commit(
        self,
        model: str,
        base: LogPosition,
        fence: int,
        state: ModelState,
        *,
        version: bool = False,
        drop: Sequence[int] = (),
        trim: int = 0,
        again: bool = False,
        time: int = 0,
        term: str = "",
        learnt: Sequence[LogEntry] = (),
    ) -> None:
        """Put `state` in the place of `base`, or Fenced.

        With `version` it is kept as one, `drop` are versions that go, and the log is trimmed up to
        and with record `trim`. `again` writes what is committed already once more. `time` is when
        the last record was appended. Of what was `learnt` since `base`, the last record of each
        reading must still be in the log, else WentBack: those before it then are there too.
        """
        keys, (epoch, seq, chain) = Keys(model), base
        names = [keys.state, keys.fence, keys.log, keys.snapshots, keys.snapshot(state.seq)]
        names += [keys.seq, *(keys.snapshot(old) for old in drop)]
        values = [epoch, fence, seq, chain, state.seq, state.chain]
        values += _dump_state(state, time, term)
        values += [keys.channel, int(version), trim, int(again)]
        for entry in learnt:
            values += [entry.seq, _sha1(entry.record), entry.time]
        with translated():
            code = await self._calls.script("commit", names, values)
        if code == 4:
            raise RolledBack(
                f"model {model}: records up to {state.seq} are not in the log any more"
            )
        if code in (2, 3):
            why = "the state is another" if code == 2 else "another learner has taken over"
            raise Fenced(f"model {model}: the commit of {state.seq} was refused: {why}")

    async def lease(self, model: str, fence: int, ttl: float) -> int:
        """Take or keep the lease; our fence, or 0 if another learner holds it."""
        keys = Keys(model)
        with translated():
            got = await self._calls.script(
                "lease", [keys.state, keys.fence, keys.lease], [fence or "", int(ttl * 1000)]
            )
        if got < 0:
            raise NoSuchModel(f"model {model}: there is none of this name")
        return int(got)

    async def release(self, model: str, fence: int) -> None:
        """Give the lease back, if it is ours."""
        with translated():
            await self._calls.script("release", [Keys(model).lease], [fence])

    async def present(self, learner: str, seconds: float) -> int:
        """Say that a learner is at work, for so long at least; how many there are."""
        with translated():
            return int(await self._calls.script("present", [LEARNERS], [learner, _ms(seconds)]))

    async def absent(self, learner: str) -> None:
        """Say that a learner is no more."""
        with translated():
            await self._client.zrem(LEARNERS, learner)

    async def relist(self, model: str) -> None:
        """Put a model's name back, if there is one: a Cluster may lose the name alone."""
        with translated():
            if await self._client.exists(Keys(model).state):
                await self._client.sadd(MODELS, model)
                if not await self._client.exists(Keys(model).state):  # deleted meanwhile
                    await self._client.srem(MODELS, model)

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
            await self._calls.script("remember", names, [int(ttl * 1000), *shown.values()])

    async def recall(
        self, model: str, epoch: int, requests: Sequence[str]
    ) -> list[StoredImpression | None]:
        """What was shown for each request, None where that is unknown or forgotten."""
        keys = Keys(model)
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for request in requests:
                pipeline.hmget(keys.impression(epoch, request), ["i", "a"])
            found = await pipeline.execute()
        return [
            StoredImpression(shown, so_far or b"") if shown else None for shown, so_far in found
        ]

    # ---- the server ----

    async def memory_share(self) -> float:
        """How much of the fullest server's memory limit is used, 0 without one; a sign of life."""
        return max(one.share for one in await health.memory(self._client))

    async def room_for_a_log(self) -> int:
        """How many bytes a log may take, so that all of them leave three quarters of the server."""
        limits = [one.limit for one in await health.memory(self._client) if one.limit]
        with translated():
            models = int(await self._client.scard(MODELS))
        return min(limits) // (4 * max(1, models)) if limits else 1 << 62

    async def complaints(self) -> list[str]:
        """What is wrong with the servers' settings; what could not be asked is said too.

        OldServer if one is older than we need, NotDurable if it gives less than was asked for.
        """
        return await health.complaints(self._client, self._durability)

    async def refuse_old_server(self) -> None:
        """OldServer if a server is older than we need; one that will not say passes."""
        with translated():
            masters = await self._client.masters()
        for one in masters:
            await health.version(one)


def _entry(identity: bytes, fields: dict[bytes, bytes]) -> LogEntry:
    seq = int(identity.split(b"-")[0])
    return LogEntry(seq, fields[b"r"], int(fields.get(b"t", 0)), b"w" in fields)


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _sha1(record: bytes) -> str:
    return sha1(record, usedforsecurity=False).hexdigest()


def _dump_state(state: ModelState, time: int = 0, term: str = "") -> list[bytes]:
    model = state.model
    aside = CommitInfo(time, _trace(model), term)._asdict()
    if not term:  # as it was before there were any
        del aside["term"]
    return [
        codec.dump("w", {"seq": state.seq, "chain": state.chain.hex()}, {"values": model.weights}),
        codec.dump("spread", {}, {"values": model.spread}),
        codec.dump("sums", aside, {"values": state.sums}),
        codec.dump("meta", codec.dump_config(model.config), {}),
    ]


def _trace(model: Model) -> float:
    n = model.config.n
    at = diagonal(n) if model.spread.size == triangle_size(n) else slice(None)
    return float(model.spread[at].sum())


def _load_state(fields: dict[bytes, bytes]) -> ModelState:
    config = codec.load_config(codec.load(fields[b"meta"], "meta").fields)
    seq, chain = int(fields[b"seq"]), fields[b"chain"]
    weights, spread = _weights(fields[b"w"], seq, chain), _array(fields[b"spread"], "spread")
    sums = _whole(_array(fields[b"sums"], "sums"))
    return ModelState(seq, chain, Model(config, weights, spread), sums)


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
