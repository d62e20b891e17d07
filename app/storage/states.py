"""A model's committed state and its versions.

A commit is one Lua script and is safe to resend: it is a compare-and-set of (seq, chain).
"""

from asyncio import to_thread
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from app.domain import codec, duel_fields
from app.domain.duels import DuelState
from app.domain.model import SUMS, Model, ModelState, Part
from app.domain.model_config import ModelConfig
from app.errors import BadBlob, Fenced, NoSuchModel, RolledBack, Unreadable
from app.ranking.arrays import frozen
from app.ranking.certainty import UNKNOWN, Certainty
from app.ranking.covariance import variances
from app.ranking.tally import Tally
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import Keys, follower_address, keys_of
from app.storage.log import LogEntry

#: Models whose weights one round trip loads: 40 MB at 100,000 features.
LOADED_AT_ONCE = 50
#: Fields of a state that hold its position.
POSITION_FIELDS = ("epoch", "seq", "chain")
_SERVED_FIELDS = (*POSITION_FIELDS, "meta", "w", "sums")
_STATE_FIELDS = (*_SERVED_FIELDS, "spread")
_BLOBS = (b"meta", b"w", b"spread", b"sums")
#: Bytes of a state from which it is decoded in a thread: its checksums take 0.5 ms or more, and the
#: names of 100,000 features 10 ms.
_LARGE_STATE = 1_000_000

#: Sums in one array; the later ones are in arrays of their own and need a newer format.
_FORMAT_1_SUMS = 26
_SQUARES = SUMS.index("square_ndcg@1")
_LATER_SUMS = {SUMS[at]: slice(at, at + 1) for at in range(_FORMAT_1_SUMS, _SQUARES)}
_LARGEST_GAP = SUMS.index("largest_gap")
_LATER_SUMS["squares"] = slice(_SQUARES, _LARGEST_GAP)
_LATER_SUMS["largest_gap"] = slice(_LARGEST_GAP, _LARGEST_GAP + 1)
_FOLLOWER = SUMS.index("compared")
_LATER_SUMS["duel_lists"] = slice(_LARGEST_GAP + 1, _FOLLOWER)
_LATER_SUMS["follower"] = slice(_FOLLOWER, len(SUMS))

#: Epoch, seq and chain of a state.
LogPosition: TypeAlias = tuple[int, int, bytes]
#: The position of a model whose position is damaged; no model has it.
DAMAGED: LogPosition = (0, -1, b"")


@dataclass(frozen=True, slots=True)
class StoredState:
    """A stored state with the model's epoch."""

    epoch: int
    state: ModelState


class NewVersion(NamedTuple):
    """A version to keep with a commit, and why; an `hourly` one does not hold the log back."""

    reason: str = "interval"
    hourly: bool = False

    def key(self, keys: Keys, epoch: int, seq: int) -> str:
        """Return the key of such a version after record `seq`."""
        return keys.hourly(epoch, seq) if self.hourly else keys.snapshot(seq)


class HistoryRows(NamedTuple):
    """What a commit adds to the model's history (`history.py`), each empty if nothing is due.

    `time` is that of the commit, in ms since 1970.
    """

    time: int = 0
    point: bytes = b""
    weights: bytes = b""


NO_ROWS = HistoryRows()


class CommitInfo(NamedTuple):
    """Facts about a commit beside the state, for readers.

    `time` is the append time of its last record (ms since 1970), `trace` the trace of Σ. `term`
    names the learner's lease term: within one, each commit builds on the previous commit.
    """

    time: int = 0
    trace: float = 0.0
    term: str = ""


class StoredWeights(NamedTuple):
    """What a replica needs for ranking and metrics: no covariance."""

    epoch: int
    seq: int
    chain: bytes
    config: ModelConfig
    weights: Any
    sums: Any
    info: CommitInfo
    certainty: Certainty = UNKNOWN
    duel: DuelState | None = None


class States:
    """The committed states and versions of all models."""

    def __init__(self, client: Any, calls: ScriptRunner) -> None:
        self._client, self._calls = client, calls

    async def load(self, model: str, *, with_part: bool = True) -> StoredState:
        """Return the complete committed state; BadBlob if it is damaged, or NewerFormat.

        `with_part` also reads the part of the next record, which is as large as the state.
        """
        names = (*_STATE_FIELDS, "part") if with_part else _STATE_FIELDS
        return await self.load_at(model, keys_of(model).state, names)

    async def version(self, model: str, seq: int) -> StoredState:
        """Return the version after record `seq` that the log continues; NoSuchModel if not kept."""
        return await self.load_at(model, keys_of(model).snapshot(seq))

    async def load_at(
        self, model: str, key: str, names: Sequence[str] = _STATE_FIELDS
    ) -> StoredState:
        """Return the complete state at a key; NoSuchModel if there is none."""
        with translated(self._client):
            found = await self._client.hmget(key, names)
        each = zip(names, found, strict=True)
        fields = {name.encode(): value for name, value in each if value is not None}
        if not fields:
            raise NoSuchModel(f"model {model}: no model of this name, or no such version")
        try:
            epoch, large = int(fields[b"epoch"]), sum(map(len, fields.values())) > _LARGE_STATE
            return StoredState(
                epoch, await to_thread(load_state, fields) if large else load_state(fields)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadBlob(f"expected a complete state, got one without {error}") from error

    async def position(self, model: str) -> LogPosition:
        """Return the position of the committed state: the base of the next commit.

        BadBlob if it is damaged.
        """
        with translated(self._client):
            fields = await self._client.hmget(keys_of(model).state, POSITION_FIELDS)
        if fields[0] is None:
            raise NoSuchModel(f"model {model}: no model of this name")
        found = read_position(fields)
        if found == DAMAGED:
            raise BadBlob("expected a complete state, got one without its position in the log")
        return found

    async def claimed(self, model: str) -> tuple[int, bytes]:
        """Return seq and chain of the committed state, even if other fields are damaged."""
        with translated(self._client):
            seq, chain, w = await self._client.hmget(keys_of(model).state, ["seq", "chain", "w"])
        with suppress(BadBlob, KeyError, ValueError):
            return _claim(codec.load_blob(w or b"", "w").fields)
        return int(seq), chain

    async def load_weights(self, model: str) -> StoredWeights:
        """Return the weights and measures, without the covariance."""
        return await self.load_weights_at(model, keys_of(model).state)

    async def load_weights_at(self, model: str, key: str) -> StoredWeights:
        """Return the weights and measures of the state at a key; NoSuchModel if there is none."""
        with translated(self._client):
            fields = await self._client.hmget(key, _SERVED_FIELDS)
        if fields[0] is None:
            raise NoSuchModel(f"model {model}: no model of this name")
        return _stored_weights(fields)

    async def load_many(
        self, models: Sequence[str]
    ) -> AsyncIterator[tuple[str, StoredWeights | Unreadable]]:
        """Yield the weights of each existing model; a round trip loads `LOADED_AT_ONCE` of them."""
        for at in range(0, len(models), LOADED_AT_ONCE):
            some = models[at : at + LOADED_AT_ONCE]
            for name, fields in zip(some, await self._each(some, _SERVED_FIELDS), strict=True):
                if fields[0] is not None:
                    try:
                        yield name, _stored_weights(fields)
                    except Unreadable as error:
                        yield name, error

    async def positions(self, models: Sequence[str]) -> dict[str, LogPosition | None]:
        """Return the positions of many models in one round trip, None for one that does not exist.

        A damaged position is DAMAGED. A model whose server fails is missing.
        """
        found = await self._each(models, POSITION_FIELDS, strict=False)
        return {
            name: None if fields[0] is None else read_position(fields)
            for name, fields in zip(models, found, strict=True)
            if not isinstance(fields, Exception)
        }

    async def _each(
        self, models: Sequence[str], fields: Sequence[str], *, strict: bool = True
    ) -> list[Any]:
        """Return fields of each model's state in one round trip; errors too, unless `strict`."""
        with translated(self._client):
            pipeline = self._client.pipeline(transaction=False)
            for model in models:
                pipeline.hmget(keys_of(model).state, fields)
            found: list[Any] = await pipeline.execute(raise_on_error=strict) if models else []
        return found

    async def versions(self, model: str) -> list[int]:
        """Return the seqs of the versions that the log continues, oldest first.

        The log is whole from the oldest of them. `Versions` has hourly and named versions, too.
        """
        with translated(self._client):
            return [int(seq) for seq in await self._client.zrange(keys_of(model).snapshots, 0, -1)]

    async def commit(
        self,
        model: str,
        base: LogPosition,
        fence: int,
        state: ModelState,
        *,
        fields: Sequence[bytes] | None = None,
        version: NewVersion | None = None,
        drop: Sequence[int] = (),
        trim: int = 0,
        again: bool = False,
        learnt: Sequence[LogEntry] = (),
        work: int = 0,
        rows: HistoryRows = NO_ROWS,
        followers: Sequence[str] = (),
    ) -> bool:
        """Replace the committed state `base` by `state`, or raise Fenced.

        Return whether somebody watches the model.

        `version` also keeps the state as a version, `drop` lists versions of the same kind to
        delete, and the log is trimmed up to and including record `trim`. `again` rewrites a
        committed state. `fields` are those of `dump_state`, if they are already encoded. `learnt`
        holds the last record of each read since `base`: each must still be in the log, else
        RolledBack; the records before them then are, too. `work` is that of all records up to
        `state`, 0 if it is unknown. `rows` are added to the history. The log is trimmed only if
        `followers` are the names of all followers, and no further than they need it.
        """
        keys, (epoch, seq, chain) = keys_of(model), base
        index, kept = keys.snapshots, keys.state
        if version:
            index = keys.keeps if version.hourly else keys.snapshots
            kept = version.key(keys, epoch, state.seq)
        names = [keys.state, keys.fence, keys.log, index, kept, keys.seq, keys.watched]
        names += [*keys.history(epoch), keys.followers]
        names += [keys_of(follower_address(model, one)).snapshots for one in followers]
        names += [version.key(keys, epoch, old) for old in drop] if version else []
        values = [epoch, fence, seq, chain, state.seq, state.chain]
        values += dump_state(state) if fields is None else fields
        values += [version.reason if version else "", trim, int(again), work or ""]
        values += [f"{rows.time:013}", rows.point, rows.weights]
        values += [len(followers), *followers, *learnt_values(learnt)]
        code = await self._calls.script("commit", names, values)
        if code == 4:
            raise RolledBack(
                f"model {model}: version rollback: the log lost records up to {state.seq}"
            )
        check_committed(code, model, state.seq)
        return bool(code == 5)

    async def commit_part(self, model: str, base: LogPosition, fence: int, part: bytes) -> None:
        """Keep what was learnt of the record after the committed state `base`, or raise Fenced."""
        keys, (epoch, seq, chain) = keys_of(model), base
        values = [epoch, fence, seq, chain, part]
        code = await self._calls.script("commit_part", [keys.state, keys.fence], values)
        check_committed(code, model, seq + 1)


def check_committed(code: int, model: str, seq: int) -> None:
    """Raise Fenced if a commit was refused."""
    if code in (2, 3):
        why = "the committed state has changed" if code == 2 else "another learner has the lease"
        raise Fenced(f"model {model}: the commit of {seq} was refused: {why}")


def learnt_values(learnt: Sequence[LogEntry]) -> list[Any]:
    """Return seq, SHA-1 and time of each record, by which a commit finds it in the log."""
    each = ((one.seq, sha1(one.record, usedforsecurity=False), one.time) for one in learnt)
    return [part for seq, digest, time in each for part in (seq, digest.hexdigest(), time)]


def dump_state(state: ModelState, time: int = 0, term: str = "") -> list[bytes]:
    """Return the stored fields of a state: w, spread, sums, meta."""
    model = state.model
    info: dict[str, Any] = CommitInfo(time, _trace(model), term)._asdict()
    if not term:  # the bytes of states from before terms existed
        del info["term"]
    if state.duel is not None:
        info["duel"] = duel_fields.dump_duel_state(state.duel)
    position = {"seq": state.seq, "chain": state.chain.hex()}
    return [
        codec.dump_blob(
            "w", position, {"values": model.weights, **codec.dump_certainty(model.certainty)}
        ),
        codec.dump_blob("spread", {}, {"values": model.spread}),
        codec.dump_blob("sums", info, _split(state.sums)),
        codec.dump_blob("meta", codec.dump_config(model.config), {}),
    ]


def dump_part(part: Part) -> bytes:
    """Return the stored form of the learnt part of a record."""
    fields = {"chain": part.chain.hex(), "pairs": part.pairs, **part.tally._asdict()}
    fields["scaled"] = part.scaled
    for name in ("variance", "squared_norm"):  # the bytes of parts from before they were kept
        if not fields[name]:
            del fields[name]
    return codec.dump_blob("part", fields, {"weights": part.weights, "spread": part.spread})


def _load_part(blob: bytes | None) -> Part | None:
    """Invert `dump_part`; None if there is no part, or an unreadable one: it is learnt again."""
    with suppress(Unreadable, KeyError, TypeError, ValueError):
        _, fields, arrays = codec.load_blob(blob or b"", "part")
        tally = Tally(**{name: fields[name] for name in Tally._fields if name in fields})
        chain, pairs = bytes.fromhex(fields["chain"]), int(fields["pairs"])
        scaled = int(fields["scaled"])
        return Part(chain, pairs, arrays["weights"], arrays["spread"], tally, scaled)
    return None


def _trace(model: Model) -> float:
    with np.errstate(over="ignore", invalid="ignore"):  # infinite, or NaN
        return float(variances(model.spread, model.weights.size).sum())


def load_state(fields: dict[bytes, bytes]) -> ModelState:
    """Invert `dump_state`, with seq and chain.

    One field of a newer format makes the state one of a newer format, even beside damage.
    """
    codec.refuse_newer(*(fields[name] for name in _BLOBS if name in fields))
    config = codec.load_config(codec.load_blob(fields[b"meta"], "meta").fields)
    seq, chain = int(fields[b"seq"]), fields[b"chain"]
    weights, certainty = _weights(fields[b"w"], seq, chain)
    spread = _array(fields[b"spread"], "spread")
    sums = codec.load_blob(fields[b"sums"], "sums")
    part, duel = _load_part(fields.get(b"part")), _load_duel(sums)
    model = Model(config, weights, spread, certainty)
    return ModelState(seq, chain, model, _joined(sums.arrays), part, duel)


def read_position(fields: Sequence[bytes]) -> LogPosition:
    """Return epoch, seq and chain from their fields; DAMAGED if they cannot be read."""
    epoch, seq, chain = fields
    try:
        return int(epoch), int(seq), chain
    except (TypeError, ValueError):
        return DAMAGED


def _stored_weights(fields: Sequence[Any]) -> StoredWeights:
    """Decode the fields for serving; BadBlob if one is damaged or missing, or NewerFormat."""
    epoch, seq, chain, meta, w, sums = fields
    codec.refuse_newer(meta or b"", w or b"", sums or b"")
    try:
        config = codec.load_config(codec.load_blob(meta or b"", "meta").fields)
        weights, certainty = _weights(w or b"", int(seq), chain)
        blob = codec.load_blob(sums or b"", "sums")
        stored, sums = blob.fields, _joined(blob.arrays)
        info = CommitInfo(
            int(stored.get("time", 0)), float(stored.get("trace", 0.0)), str(stored.get("term", ""))
        )
        return StoredWeights(
            int(epoch), int(seq), chain, config, weights, sums, info, certainty, _load_duel(blob)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadBlob(f"expected a complete state, got one without {error}") from error


def _split(sums: Any) -> dict[str, Any]:
    """Return the arrays of the sums; later ones only if they are used: older releases lack them."""
    later = {name: sums[some] for name, some in _LATER_SUMS.items()}
    used = {name: some for name, some in later.items() if any(some.tobytes())}  # keeps -0.0
    return {"values": sums[:_FORMAT_1_SUMS], **used}


def load_sums(blob: bytes) -> Any:
    """Return the sums of a stored state; BadBlob if they are damaged, or NewerFormat."""
    try:
        return _joined(codec.load_blob(blob, "sums").arrays)
    except (KeyError, ValueError) as error:
        raise BadBlob(f"expected all sums, got {error}") from error


def _load_duel(sums: codec.Blob) -> DuelState | None:
    """Return the duel beside the sums, None if there was none yet; BadBlob if it is damaged."""
    return duel_fields.load_duel_state(sums.fields["duel"]) if "duel" in sums.fields else None


def _joined(arrays: dict[str, Any]) -> Any:
    """Return all sums, with zeros for those that an older version did not store."""
    found = np.zeros(len(SUMS))
    found[: len(arrays["values"])] = arrays["values"]
    for name, some in _LATER_SUMS.items():
        found[some] = arrays.get(name, 0.0)
    return frozen(found)


def _weights(blob: bytes, seq: int, chain: bytes) -> tuple[Any, Certainty]:
    """Return the weights and their certainty; BadBlob if they are of another log position."""
    _, fields, arrays = codec.load_blob(blob, "w")
    if _claim(fields) != (seq, chain):
        raise BadBlob(f"expected the weights after record {seq}, got those of another record")
    return arrays["values"], codec.load_certainty(arrays)


def _claim(fields: dict[str, Any]) -> tuple[int, bytes]:
    return int(fields["seq"]), bytes.fromhex(fields["chain"])


def _array(blob: bytes, kind: str) -> Any:
    return codec.load_blob(blob, kind).arrays["values"]
