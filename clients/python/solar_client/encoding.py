"""Documents, events and judged data as bytes. Only a caller who passes an array needs numpy."""

import gzip
import lzma
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from solar_client.errors import InvalidArgument

JSON, MSGPACK, GZIP = "application/json", "application/msgpack", "application/gzip"
CHUNK = 1 << 20  # bytes of a file that are read at a time


class SupportsArray(Protocol):
    """A numpy array, or what numpy takes for one."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The array interface of numpy."""


class SupportsFeatures(Protocol):
    """A document: a dataclass, or any object with these attributes."""

    @property
    def id(self) -> str:
        """The id of the document."""

    @property
    def features(self) -> Any:
        """Its features: a mapping by name, or values in the model's order."""


Document: TypeAlias = Mapping[str, Any] | SupportsFeatures
#: Judged queries: each has `documents`, and each document `label` and `features`.
JudgedQueries: TypeAlias = Sequence[Mapping[str, Any]]
#: LETOR text as bytes; or files with it, also .gz and .xz; or judged queries.
JudgedData: TypeAlias = bytes | str | PathLike[str] | Sequence[str | PathLike[str]] | JudgedQueries


def _plain(value: Any) -> Any:
    """Convert numpy's arrays and numbers, which have `tolist`."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected numbers, strings, lists or mappings, got {type(value).__name__}")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
_pack = msgspec.msgpack.Encoder(enc_hook=_plain).encode


def as_json(value: Any, what: str = "body") -> bytes:
    """Encode a value.

    >>> as_json({"a": 1})
    b'{"a":1}'
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidArgument(f"{what}: {error}") from None


# ---- documents ----


def plain_documents(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """Return documents with `id` and `features` only.

    >>> plain_documents([{"id": "d1", "features": [1.0], "title": "One"}])
    [{'id': 'd1', 'features': [1.0]}]
    """
    return [
        one
        if type(one) is dict and len(one) == 2 and "id" in one and "features" in one
        else _plain_document(at, one)
        for at, one in enumerate(documents)
    ]


def _plain_document(at: int, document: Document) -> dict[str, Any]:
    try:
        if isinstance(document, Mapping):
            found = {"id": document["id"], "features": document["features"]}
        else:
            found = {"id": document.id, "features": document.features}
    except (KeyError, AttributeError, TypeError):
        raise InvalidArgument(f"documents[{at}]: expected id and features") from None
    return found


def rank_body(
    documents: Sequence[Document] | Sequence[str],
    features: SupportsArray | Sequence[Sequence[float]] | None,
    fields: Mapping[str, Any],
) -> tuple[str, bytes, list[str]]:
    """Encode a body of /rank; return its content type, the body and the ids as submitted.

    >>> rank_body([{"id": "a", "features": [1]}], None, {"top_k": 1})
    ('application/json', b'{"top_k":1,"documents":[{"id":"a","features":[1]}]}', ['a'])
    """
    if features is None:
        plain = plain_documents(documents)  # type: ignore[arg-type]  # mypy cannot tell them apart
        return JSON, as_json({**fields, "documents": plain}, "documents"), [x["id"] for x in plain]
    ids = [str(one) for one in documents]
    if not hasattr(features, "__array_interface__"):
        return JSON, as_json({**fields, "ids": ids, "features": features}, "features"), ids
    rows = float32_rows(features, len(ids))
    return MSGPACK, _pack({**fields, "ids": ids, "features": rows}), ids


def float32_rows(features: Any, rows: int) -> bytes:
    """Return a matrix as rows of little-endian float32."""
    import numpy as np  # noqa: PLC0415  # the caller has loaded it

    matrix = np.ascontiguousarray(features, dtype="<f4")
    if matrix.ndim != 2 or matrix.shape[0] != rows:
        raise InvalidArgument(
            f"features: expected a matrix with one row for each of {rows} ids, "
            f"got the shape {matrix.shape}"
        )
    return matrix.tobytes()


# ---- judged data ----


def judged_body(data: JudgedData) -> tuple[str, bytes | list[Path]]:
    """Return the content type of judged data, and its bytes or the files to read."""
    if isinstance(data, bytes):
        return "application/octet-stream" if _is_packed(data) else "text/plain", data
    if isinstance(data, str | PathLike):
        return GZIP, [Path(data)]
    if not data:
        raise InvalidArgument("data: expected files or judged queries, got none")
    if all(isinstance(one, str | PathLike) for one in data):
        return GZIP, [Path(one) for one in data]  # type: ignore[arg-type]  # checked above
    return JSON, as_json({"queries": data}, "data")


def _is_packed(data: bytes) -> bool:
    return data.startswith((b"\x1f\x8b", b"\xfd7zXZ\0"))


def read_compressed(files: Sequence[Path]) -> Iterator[bytes]:
    """Read files, and compress them into one gzip stream."""
    packer = zlib.compressobj(wbits=31)
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    for path in files:
        with openers.get(path.suffix, open)(path, "rb") as lines:
            while chunk := lines.read(CHUNK):
                yield packer.compress(chunk)
        yield packer.compress(b"\n")
    yield packer.flush()
