"""Values ↔ bytes: raw little-endian arrays behind a small header, with a checksum. Never pickle.

    "SLR" | version, 1 byte | header's length, 4 bytes | header, JSON | arrays | CRC-32

The header names the kind of the value, its plain fields, and its arrays (name, type, shape) in the
order in which they follow. A blob of an unknown version or kind, or with another checksum than it
should have, is refused with its reason. The golden files in the tests keep old versions readable.
"""

import json
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from app.domain.model import CHAIN, Model
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Record, Replace, ResetMeasures, Retune
from app.errors import BadBlob

MAGIC = b"SLR"
VERSION = 1
CHECKSUM = 4  # bytes; against damage, not against forgers: the chain is for those
_TYPES = {name: np.dtype(f"<{name}") for name in ("f4", "f8", "i8", "i4")}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_DECODER = msgspec.json.Decoder()
_WORDS_ONLY = ("feedback", "shown", "so-far")  # kinds without numbers in their fields


class Blob(NamedTuple):
    """What a blob holds."""

    kind: str
    fields: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]]


def dump_blob(kind: str, fields: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """Fields and arrays (None is left out) as one blob."""
    parts = {name: np.ascontiguousarray(a) for name, a in arrays.items() if a is not None}
    described = [[name, _NAMES[a.dtype], list(a.shape)] for name, a in parts.items()]
    header = _dump_header(kind, [kind, fields, described])
    head = MAGIC + bytes([VERSION]) + len(header).to_bytes(4, "little")
    body = b"".join([head, header, *(a.tobytes() for a in parts.values())])
    return body + _checksum(body)


def _dump_header(kind: str, header: list[Any]) -> bytes:
    """JSON without spaces; numbers as Python writes them, which no other writer does to the bit."""
    if kind in _WORDS_ONLY:
        quick = msgspec.json.encode(header)  # a tenth of the time
        if quick.isascii():  # others are escaped
            return quick
    return json.dumps(header, separators=(",", ":")).encode()


def load_blob(blob: bytes, *kinds: str) -> Blob:
    """The inverse of `dump_blob`; BadBlob says why it cannot be."""
    if blob[:3] != MAGIC:
        raise BadBlob("expected a blob of ours, got other bytes")
    if len(blob) < 8 + CHECKSUM or blob[3] != VERSION:
        raise BadBlob(f"expected version {VERSION}, got {blob[3] if len(blob) > 3 else 'nothing'}")
    content = memoryview(blob)[:-CHECKSUM]
    if _checksum(content) != blob[-CHECKSUM:]:
        raise BadBlob("expected the checksum of the content, got another: the blob is damaged")
    start = 8 + int.from_bytes(blob[4:8], "little")
    try:
        kind, fields, described = _header(content[8:start])
        found = Blob(str(kind), dict(fields), _arrays(content, start, described))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BadBlob(f"expected a header and its arrays, got a {type(error).__name__}") from error
    if found.kind not in kinds:
        raise BadBlob(f"expected {' or '.join(kinds)}, got {found.kind[:40]!r}")
    return found


def kind_is(blob: bytes, kind: str) -> bool:
    """Whether a blob says that it is of this kind, at a glance."""
    return blob.startswith(b'["' + kind.encode() + b'"', 8)


def next_chain(chain: bytes, record: bytes) -> bytes:
    """The chain after a record: it depends on every record before."""
    linked = blake2b(chain, digest_size=CHAIN)
    linked.update(record)
    return linked.digest()


def _header(text: memoryview) -> Any:
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:  # Python's own knows NaN and Infinity, and takes four times as long
        return json.loads(bytes(text))


def _arrays(content: memoryview, start: int, listed: list[Any]) -> dict[str, np.ndarray[Any, Any]]:
    arrays = {}
    for name, code, shape in listed:
        dtype, count = _TYPES[code], prod(shape)
        arrays[name] = np.frombuffer(content, dtype, count, start).reshape(shape)
        start += count * dtype.itemsize
    if start != len(content):
        raise BadBlob(f"expected {start} bytes of content, got {len(content)}")
    return arrays


def _checksum(content: bytes | memoryview) -> bytes:
    return crc32(content).to_bytes(CHECKSUM, "little")


_CONFIG_FIELDS = ("algorithm", "covariance", "C", "gamma", "clicks", "normalization")


def dump_config(config: ModelConfig) -> dict[str, Any]:
    """A configuration as plain fields."""
    return {
        "features": list(config.features),
        **{name: getattr(config, name) for name in _CONFIG_FIELDS},
        **({"prior": config.prior} if config.prior else {}),
        **({} if config.explore is None else {"explore": config.explore}),
    }


def load_config(fields: dict[str, Any]) -> ModelConfig:
    """The inverse of `dump_config`; BadBlob if this is no configuration."""
    texts = dict.fromkeys(("algorithm", "covariance", "clicks", "normalization"), _TEXT)
    later = _given_of(fields, {"prior": _NUMBER, "explore": (bool,)})
    _expect(fields, {**texts, "C": _NUMBER, "gamma": _NUMBER, "features": (list,), **later})
    if not all(type(name) is str for name in fields["features"]):
        raise BadBlob("features: expected names")
    return ModelConfig(**{**fields, "features": tuple(fields["features"])})


_ARRAYS = (
    "documents", "submitted", "counted", "labels", "clicks", "clicked_before", "rounds",
    "preferred", "other", "weights", "odds", "swaps",
)  # fmt: skip
_FEEDBACK_FIELDS = ("event", "kind", "query", "source")


def dump_record(record: Record) -> bytes:
    """A record as it stands in the log."""
    if isinstance(record, Feedback):
        fields = {name: getattr(record, name) for name in _FEEDBACK_FIELDS}
        return dump_blob("feedback", fields, {name: getattr(record, name) for name in _ARRAYS})
    if isinstance(record, Replace):
        model = record.model
        fields = {"reason": record.reason, "settings": dump_config(model.config)}
        return dump_blob("replace", fields, {"weights": model.weights, "spread": model.spread})
    if isinstance(record, Retune):
        fields = {"C": record.C, "gamma": record.gamma, "clicks": record.clicks}
        later = {} if record.explore is None else {"explore": record.explore}
        return dump_blob("retune", {**fields, **later}, {})
    return dump_blob("reset-measures", {}, {})


def load_record(blob: bytes) -> Record:
    """The inverse of `dump_record`; BadBlob if these bytes are no record."""
    kind, fields, arrays = load_blob(blob, "feedback", "replace", "retune", "reset-measures")
    if kind == "feedback":
        return _load_feedback(fields, arrays)
    if kind == "replace":
        _expect(fields, {"reason": _TEXT, "settings": (dict,)})
        if set(arrays) != {"weights", "spread"}:
            raise BadBlob("replace: expected weights and spread")
        config = load_config(fields["settings"])
        return Replace(Model(config, arrays["weights"], arrays["spread"]), fields["reason"])
    if kind == "retune":
        nothing = (type(None),)
        types = {"C": _NUMBER + nothing, "gamma": _NUMBER + nothing, "clicks": _TEXT + nothing}
        _expect(fields, {**types, **_given_of(fields, {"explore": (bool,)})})
        return Retune(**fields)
    return ResetMeasures()


def _load_feedback(fields: dict[str, Any], arrays: dict[str, Any]) -> Feedback:
    _expect(fields, _FEEDBACK_TYPES)
    documents = arrays.get("documents")
    if not arrays.keys() <= _FEEDBACK_NAMES or documents is None:
        raise BadBlob("feedback: expected documents, and nothing that feedback does not have")
    if documents.ndim != 2 or documents.dtype != np.float32:
        raise BadBlob("feedback: expected documents as rows of float32")
    return Feedback(**fields, **arrays)


_TEXT: tuple[type, ...] = (str,)
_NUMBER: tuple[type, ...] = (float, int)
_FEEDBACK_TYPES = dict.fromkeys(_FEEDBACK_FIELDS, _TEXT)
_FEEDBACK_NAMES = frozenset(_ARRAYS)


def _given_of(
    fields: dict[str, Any], later: dict[str, tuple[type, ...]]
) -> dict[str, tuple[type, ...]]:
    """Of fields that came later and are left out where they say nothing, those that are there."""
    return {name: types for name, types in later.items() if name in fields}


def _expect(fields: dict[str, Any], types: dict[str, tuple[type, ...]]) -> None:
    """Fields of these names and types, no more and no less, or BadBlob."""
    if fields.keys() != types.keys():
        raise BadBlob(f"expected the fields {', '.join(sorted(types))}")
    for name, allowed in types.items():
        if type(fields[name]) not in allowed:
            raise BadBlob(f"{name}: expected {' or '.join(one.__name__ for one in allowed)}")
