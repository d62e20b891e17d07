"""Binary format of values: raw little-endian arrays after a small header, with a checksum.

    "SLR" | format, 1 byte | header's length, 4 bytes | header, JSON | arrays | CRC-32

The header contains the kind of the value, its plain fields, and its arrays (name, type, shape) in
their order. A blob with an unknown kind or a wrong checksum is refused with the reason. Pickle is
never used.

A blob is written in the lowest format that can carry it, so an older release can read it as long as
no newer field is in use. Magic, format and checksum are at the same places in every format: a
reader distinguishes a newer format from damage. Golden files in the tests keep old formats
readable.
"""

import json
from dataclasses import replace
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from app.domain import duel_fields
from app.domain.duels import Duel, EndDuel
from app.domain.model import CHAIN, Model
from app.domain.model_config import ModelConfig, has_matching_splines
from app.domain.records import Feedback, Record, Replace, ResetMeasures, Retune
from app.errors import BadBlob, NewerFormat
from app.ranking.certainty import UNKNOWN, Certainty
from app.ranking.limits import LARGEST_GAIN

MAGIC = b"SLR"
#: What needs a newer format than 1: (kind, name of a field or an array) → format. The name is
#: "settings.NAME" for a setting within a replacement, and "" for a whole kind. Leave out a field
#: without a value: a null needs the format, too.
NEEDED_FORMATS: dict[tuple[str, str], int] = {
    ("meta", "pair_bound"): 2,
    ("meta", "exploration"): 3,
    ("meta", "forgetting"): 3,
    ("meta", "counting"): 4,
    ("meta", "splines"): 5,
    ("meta", "actions"): 7,
    ("part", ""): 2,
    ("part", "variance"): 3,
    ("part", "squared_norm"): 5,
    ("replace", "settings.pair_bound"): 2,
    ("replace", "settings.exploration"): 3,
    ("replace", "settings.forgetting"): 3,
    ("replace", "settings.counting"): 4,
    ("replace", "settings.splines"): 5,
    ("replace", "settings.actions"): 7,
    ("replace", "certainty"): 3,
    ("retune", "pair_bound"): 2,
    ("retune", "exploration"): 3,
    ("retune", "forgetting"): 3,
    ("retune", "actions"): 7,
    ("sums", "bounded"): 2,
    ("sums", "mean_quality"): 3,
    ("sums", "drift"): 3,
    ("sums", "abandoned"): 4,
    ("sums", "squares"): 4,
    ("sums", "largest_gap"): 5,
    ("sums", "duel"): 6,
    ("sums", "duel_lists"): 6,
    ("sums", "follower"): 6,
    ("w", "certainty"): 3,
    ("duel", ""): 6,
    ("end-duel", ""): 6,
    ("feedback", "duel"): 6,
    ("feedback", "gains"): 7,
    ("feedback", "gains_before"): 7,
    ("feedback", "examined"): 7,
    ("feedback", "examined_before"): 7,
    ("so-far", "gains"): 7,
    ("so-far", "examined"): 7,
    ("shown", "duel"): 6,
}
#: Values that need a newer format than their name: (kind, name, value) → format.
VALUE_FORMATS: dict[tuple[str, str, Any], int] = {
    ("meta", "counting", 3): 5,
    ("replace", "settings.counting", 3): 5,
}
CHECKSUM = 4  # bytes; detects damage; the chain detects forgery
_TYPES = {name: np.dtype(f"<{name}") for name in ("f4", "f8", "i8", "i4")}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_DECODER = msgspec.json.Decoder()
_WORDS_ONLY = ("feedback", "shown", "so-far")  # kinds whose fields are all text


class Blob(NamedTuple):
    """Decoded content of a blob."""

    kind: str
    fields: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]]


def dump_blob(kind: str, fields: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """Encode fields and arrays (None is left out) as one blob."""
    parts = {name: np.ascontiguousarray(a) for name, a in arrays.items() if a is not None}
    described = [[name, _NAMES[a.dtype], list(a.shape)] for name, a in parts.items()]
    header = _dump_header(kind, [kind, fields, described])
    number = _lowest_format(kind, fields, parts)
    head = MAGIC + bytes([number]) + len(header).to_bytes(4, "little")
    content: list[bytes | memoryview] = [head, header, *(a.data for a in parts.values())]
    return b"".join([*content, _checksum(*content)])  # joined once: a blob may be large


def _lowest_format(kind: str, fields: dict[str, Any], arrays: dict[str, Any]) -> int:
    """Return the lowest format that can carry these fields and arrays."""
    if kind in _WORDS_ONLY:  # the kinds of each request; their fields are those of format 1
        return max([1, *(NEEDED_FORMATS.get((kind, name), 1) for name in arrays)])
    inner = {f"{name}.{one}": v[one] for name, v in fields.items() if type(v) is dict for one in v}
    given = {**fields, **inner}
    by_name = [NEEDED_FORMATS.get((kind, name), 1) for name in ("", *given, *arrays)]
    by_value = [
        number
        for (of, name, value), number in VALUE_FORMATS.items()
        if of == kind and given.get(name) == value
    ]
    return max(by_name + by_value)


def newest_format() -> int:
    """Return the newest format that this release reads."""
    return max([1, *NEEDED_FORMATS.values(), *VALUE_FORMATS.values()])


def is_newer(blob: bytes) -> bool:
    """Whether a newer release wrote a blob: its format is unknown, and its checksum is right."""
    if blob[3:4] <= b"\1" or blob[3] <= newest_format():  # most blobs: one comparison
        return False
    whole = blob.startswith(MAGIC) and len(blob) >= 8 + CHECKSUM
    return whole and _checksum(memoryview(blob)[:-CHECKSUM]) == blob[-CHECKSUM:]


def refuse_newer(*blobs: bytes) -> None:
    """Raise NewerFormat if a newer release wrote one of these blobs."""
    for blob in blobs:
        if is_newer(blob):
            raise _newer(blob)


def _newer(blob: bytes) -> NewerFormat:
    formats = f"format {blob[3]}, this one reads up to {newest_format()}"
    return NewerFormat(f"written by a newer release ({formats})")


def _dump_header(kind: str, header: list[Any]) -> bytes:
    """Encode as JSON without spaces. Numbers need Python's own encoder for the same bytes."""
    if kind in _WORDS_ONLY:
        encoded = msgspec.json.encode(header)  # a tenth of the time
        if encoded.isascii():  # Python escapes other characters
            return encoded
    return json.dumps(header, separators=(",", ":")).encode()


def load_blob(blob: bytes, *kinds: str) -> Blob:
    """Decode a blob of one of these kinds; BadBlob or NewerFormat says why that fails."""
    if blob[:3] != MAGIC:
        raise BadBlob("expected a SOLAR blob, got other bytes")
    if len(blob) < 8 + CHECKSUM or not blob[3]:
        raise BadBlob("expected a format from 1 and a header, got other bytes")
    content = memoryview(blob)[:-CHECKSUM]
    if _checksum(content) != blob[-CHECKSUM:]:
        raise BadBlob(
            "expected the checksum of the content, got a different one: the blob is damaged"
        )
    if blob[3] > 1 and blob[3] > newest_format():
        raise _newer(blob)
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
    """Check the kind of a blob by its first bytes, without decoding it."""
    return blob.startswith(b'["' + kind.encode() + b'"', 8)


def next_chain(chain: bytes, record: bytes) -> bytes:
    """Compute the chain after a record; it depends on every earlier record."""
    linked = blake2b(chain, digest_size=CHAIN)
    linked.update(record)
    return linked.digest()


def _header(text: memoryview) -> Any:
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:  # Python's decoder accepts NaN and Infinity, four times slower
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


def _checksum(*content: bytes | memoryview) -> bytes:
    found = 0
    for part in content:
        found = crc32(part, found)
    return found.to_bytes(CHECKSUM, "little")


_CONFIG_FIELDS = ("algorithm", "covariance", "C", "gamma", "clicks", "normalization")
#: Fields of a configuration and of a change of it that older releases do not know; a configuration
#: also has `counting` and `splines`.
_LATER_FIELDS = ("explore", "pair_bound", "exploration", "forgetting", "actions")


def dump_config(config: ModelConfig) -> dict[str, Any]:
    """Convert a configuration to plain fields."""
    return {
        "features": list(config.features),
        **{name: getattr(config, name) for name in _CONFIG_FIELDS},
        **({"prior": config.prior} if config.prior else {}),
        **_stated(config, *_LATER_FIELDS, "counting", "splines"),
    }


def _stated(value: ModelConfig | Retune, *names: str) -> dict[str, Any]:
    """Select the later fields that have a value; older releases do not know them."""
    found = {name: getattr(value, name) for name in names}
    return {name: one for name, one in found.items() if one is not None}


def load_config(fields: dict[str, Any]) -> ModelConfig:
    """Convert plain fields to a configuration; BadBlob if they are invalid."""
    texts = dict.fromkeys(("algorithm", "covariance", "clicks", "normalization"), _TEXT)
    later = _present(
        fields, {"prior": _NUMBER, **_LATER_TYPES, "counting": (int,), "splines": (dict,)}
    )
    _expect(fields, {**texts, "C": _NUMBER, "gamma": _NUMBER, "features": (list,), **later})
    if not all(type(name) is str for name in fields["features"]):
        raise BadBlob("features: expected a list of names")
    _expect_gains(fields.get("actions", {}))
    config = ModelConfig(**{**fields, "features": tuple(fields["features"])})
    return _with_splines(config, fields["splines"]) if "splines" in fields else config


def _with_splines(config: ModelConfig, splines: dict[str, Any]) -> ModelConfig:
    lists = [knots for knots in splines.values() if type(knots) is list]
    numbers = all(type(knot) is float for knots in lists for knot in knots)
    if splines and len(lists) == len(splines) and numbers:
        found = replace(config, splines={name: tuple(some) for name, some in splines.items()})
        if has_matching_splines(found):
            return found
    raise BadBlob("splines: expected ascending knots by feature, and a column for each")


def dump_certainty(certainty: Certainty) -> dict[str, Any]:
    """Return the array of a model's certainty; none if it is unknown."""
    return {"certainty": np.array(certainty, np.float64)} if certainty.rankings else {}


def load_certainty(arrays: dict[str, Any]) -> Certainty:
    """Invert `dump_certainty`; BadBlob if the values are impossible."""
    if "certainty" not in arrays:
        return UNKNOWN
    found = arrays["certainty"]
    if found.shape != (2,) or not (0.0 <= found[0] < np.inf and 1.0 <= found[1] < np.inf):
        raise BadBlob("certainty: expected a variance and a number of rankings")
    return Certainty(float(found[0]), int(found[1]))


_ARRAYS = (
    "documents", "submitted", "counted", "labels", "clicks", "clicked_before", "rounds",
    "preferred", "other", "weights", "odds", "swaps", "duel",
    "gains", "gains_before", "examined", "examined_before",
)  # fmt: skip
_FEEDBACK_FIELDS = ("event", "kind", "query", "source")


def dump_record(record: Record) -> bytes:
    """Encode a record for the log."""
    if isinstance(record, Feedback):
        fields = {name: getattr(record, name) for name in _FEEDBACK_FIELDS}
        return dump_blob("feedback", fields, {name: getattr(record, name) for name in _ARRAYS})
    if isinstance(record, Replace):
        model = record.model
        fields = {"reason": record.reason, "settings": dump_config(model.config)}
        arrays = {"weights": model.weights, "spread": model.spread}
        return dump_blob("replace", fields, {**arrays, **dump_certainty(model.certainty)})
    if isinstance(record, Retune):
        fields = {"C": record.C, "gamma": record.gamma, "clicks": record.clicks}
        return dump_blob("retune", {**fields, **_stated(record, *_LATER_FIELDS)}, {})
    if isinstance(record, Duel):
        return dump_blob("duel", duel_fields.dump_duel(record), {})
    if isinstance(record, EndDuel):
        return dump_blob("end-duel", duel_fields.dump_end(record), {})
    return dump_blob("reset-measures", {}, {})


_RECORDS = ("feedback", "replace", "retune", "reset-measures", "duel", "end-duel")


def load_record(blob: bytes) -> Record:
    """Decode a record; BadBlob if these bytes are not a record."""
    kind, fields, arrays = load_blob(blob, *_RECORDS)
    if kind == "feedback":
        return _load_feedback(fields, arrays)
    if kind == "replace":
        _expect(fields, {"reason": _TEXT, "settings": (dict,)})
        if set(arrays) - {"certainty"} != {"weights", "spread"}:
            raise BadBlob("replace: expected the arrays weights and spread")
        config, certainty = load_config(fields["settings"]), load_certainty(arrays)
        model = Model(config, arrays["weights"], arrays["spread"], certainty)
        return Replace(model, fields["reason"])
    if kind == "retune":
        nothing = (type(None),)
        types = {"C": _NUMBER + nothing, "gamma": _NUMBER + nothing, "clicks": _TEXT + nothing}
        later = _present(fields, _LATER_TYPES)
        _expect(fields, {**types, **later})
        _expect_gains(fields.get("actions", {}))
        return Retune(**fields)
    if kind == "duel":
        return duel_fields.load_duel(fields)
    if kind == "end-duel":
        return duel_fields.load_end(fields)
    return ResetMeasures()


def _load_feedback(fields: dict[str, Any], arrays: dict[str, Any]) -> Feedback:
    _expect(fields, _FEEDBACK_TYPES)
    documents = arrays.get("documents")
    if not arrays.keys() <= _FEEDBACK_NAMES or documents is None:
        raise BadBlob("feedback: expected documents and only known arrays")
    if documents.ndim != 2 or documents.dtype != np.float32:
        raise BadBlob("feedback: expected documents as rows of float32")
    return Feedback(**fields, **arrays)


_TEXT: tuple[type, ...] = (str,)
_NUMBER: tuple[type, ...] = (float, int)
_LATER_TYPES = {
    "explore": (bool,), "pair_bound": _NUMBER, "exploration": _NUMBER, "forgetting": _NUMBER,
    "actions": (dict,),
}  # fmt: skip
_FEEDBACK_TYPES = dict.fromkeys(_FEEDBACK_FIELDS, _TEXT)
_FEEDBACK_NAMES = frozenset(_ARRAYS)


def _expect_gains(actions: dict[str, Any]) -> None:
    """Check the values of a table of gains by action."""
    if not all(type(gain) in _NUMBER and 0.0 <= gain <= LARGEST_GAIN for gain in actions.values()):
        raise BadBlob(f"actions: expected gains from 0 to {LARGEST_GAIN:g}")


def _present(
    fields: dict[str, Any], later: dict[str, tuple[type, ...]]
) -> dict[str, tuple[type, ...]]:
    """Select the optional fields that are present; older records do not have them."""
    return {name: types for name, types in later.items() if name in fields}


def _expect(fields: dict[str, Any], types: dict[str, tuple[type, ...]]) -> None:
    """Check that the fields have exactly these names and types; else BadBlob."""
    if fields.keys() != types.keys():
        raise BadBlob(f"expected the fields {', '.join(sorted(types))}")
    for name, allowed in types.items():
        if type(fields[name]) not in allowed:
            raise BadBlob(f"{name}: expected {' or '.join(one.__name__ for one in allowed)}")
