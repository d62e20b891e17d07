"""Documents on the wire → rows of features, every limit checked; and the ids of requests."""

import re
from collections.abc import Sequence
from functools import cache
from secrets import token_bytes
from struct import Struct, error
from time import time
from typing import NamedTuple

import numpy as np
from msgspec import UNSET

from app.api.schemas import BinaryRankBody, Document, RankBody
from app.config import Settings
from app.domain import candidates
from app.domain.candidates import Candidates
from app.domain.model_config import ModelConfig
from app.ranking.arrays import Floats
from app.serving.weight_cache import ServedModel

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_OURS = re.compile(
    r"([A-Za-z0-9_-]{1,64})\.([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)
LARGEST = float(np.finfo(np.float32).max)


def slate(body: RankBody | BinaryRankBody, serving: ServedModel, limits: Settings) -> Candidates:
    """The documents of a body as the model sees them; ValueError says what is wrong with them."""
    if isinstance(body, BinaryRankBody):
        check_ids(body.ids, limits)
        return _slate(body.ids, _raw_rows(body.features, len(body.ids), serving), serving, limits)
    if body.documents is not UNSET:
        if body.ids is not UNSET or body.features is not UNSET:
            raise ValueError("documents: expected either these, or ids and features")
        return of_documents(body.documents, serving, limits)
    if body.ids is UNSET or body.features is UNSET:
        raise ValueError("expected documents, or ids and features")
    if len(body.ids) != len(body.features):
        raise ValueError(f"features: expected {len(body.ids)} rows, got {len(body.features)}")
    check_ids(body.ids, limits)
    rows = _rows(body.features, len(serving.config.given))
    return _slate(body.ids, rows, serving, limits)


def of_documents(
    documents: Sequence[Document], serving: ServedModel, limits: Settings
) -> Candidates:
    """Documents as objects."""
    ids = [document.id for document in documents]
    check_ids(ids, limits)
    features = [document.features for document in documents]
    return _slate(ids, rows(features, serving.config, serving.index), serving, limits)


def rows(
    features: Sequence[list[float] | dict[str, float]], config: ModelConfig, index: dict[str, int]
) -> Floats:
    """Features of documents, as lists or by name, as rows; `index` says where a name stands."""
    lists = [row for row in features if type(row) is list]
    if len(lists) == len(features):
        return _rows(lists, len(config.given))
    names = config.given
    named = [row if isinstance(row, dict) else _named(at, row, names)
             for at, row in enumerate(features)]  # fmt: skip
    return candidates.by_name(named, index)


def _slate(ids: Sequence[str], rows: Floats, serving: ServedModel, limits: Settings) -> Candidates:
    config = serving.config
    bound = limits.feature_bound if config.normalization == "none" else LARGEST
    ordered = config.prior > 0.0
    return Candidates(
        ids, candidates.as_documents(rows, config.normalization, bound, ordered=ordered)
    )


def _rows(features: Sequence[list[float]], n: int) -> Floats:
    """Lists of numbers as rows; packing them is three times as fast as numpy's conversion."""
    pack = _row(n).pack
    try:
        packed = b"".join([pack(*row) for row in features])
    except error:
        at = next(at for at, row in enumerate(features) if len(row) != n)
        raise _wrong_width(at, n, len(features[at])) from None
    return np.frombuffer(packed).reshape(len(features), n)


@cache
def _row(n: int) -> Struct:
    return Struct(f"<{n}d")


def _raw_rows(features: bytes, count: int, serving: ServedModel) -> Floats:
    n = len(serving.config.given)
    if len(features) != 4 * n * count:
        raise ValueError(
            f"features: expected {4 * n * count} bytes, {count} rows of {n} float32, "
            f"got {len(features)}"
        )
    with np.errstate(invalid="ignore"):  # a signalling NaN is refused, not warned of
        return np.frombuffer(features, "<f4").reshape(count, n).astype(np.float64)


def _named(at: int, row: list[float], names: Sequence[str]) -> dict[str, float]:
    if len(row) != len(names):
        raise _wrong_width(at, len(names), len(row))
    return dict(zip(names, row, strict=True))


def _wrong_width(at: int, expected: int, got: int) -> ValueError:
    return ValueError(f"documents[{at}].features: expected {expected} values, got {got}")


def check_ids(ids: Sequence[str], limits: Settings) -> None:
    """ValueError unless there are some, not too many, all different and fit to be ids."""
    if not 1 <= len(ids) <= limits.documents:
        raise ValueError(f"documents: expected 1 to {limits.documents}, got {len(ids)}")
    if len(set(ids)) != len(ids):
        raise ValueError("documents: expected ids that differ")
    check_texts("documents[].id", ids, limits)


def check_texts(what: str, texts: Sequence[str], limits: Settings) -> None:
    """ValueError if one of these is too long or has control characters."""
    if max(map(len, texts), default=0) > limits.id_length:
        raise ValueError(f"{what}: expected at most {limits.id_length} characters")
    if _CONTROL.search("".join(texts)):
        raise ValueError(f"{what}: expected no control characters")


class RequestId(NamedTuple):
    """What an id made by us says."""

    model: str
    time: float  # seconds since 1970


def new_request_id(model: str) -> str:
    """`<model>.<uuid7>`: names the model and the time."""
    drawn = token_bytes(10).hex()
    moment = f"{int(time() * 1000):012x}"
    variant = "89ab"[int(drawn[3], 16) & 3]
    return f"{model}.{moment[:8]}-{moment[8:]}-7{drawn[:3]}-{variant}{drawn[4:7]}-{drawn[8:]}"


def read_request_id(request: str) -> RequestId | None:
    """What an id says, None if it is not ours.

    >>> read_request_id(new_request_id("books")).model
    'books'
    >>> read_request_id("my-own.id")
    """
    ours = _OURS.fullmatch(request)
    if ours is None:
        return None
    return RequestId(ours[1], int(ours[2] + ours[3], 16) / 1000)
