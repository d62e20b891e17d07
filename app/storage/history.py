"""The history of a model, beside its state: points of its sums, and its weights by the hour.

The commit script adds a row to each ring and puts the time before it (13 digits, ms since 1970). A
point is the format, the seq and the sums of `POINT_SUMS`; a row of weights is the format, the seq
and pairs of a feature's index and its weight, for the features with the largest effect. All numbers
are little-endian. Replays, chains and checks of a state do not see the history.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from redis import exceptions as foreign

from app.domain.model import SUMS, Model
from app.ranking.arrays import Floats
from app.ranking.covariance import variances
from app.storage.calls import translated
from app.storage.keys import keys_of

_MEASURES = ("ndcg@1", "ndcg@5", "ndcg@10", "map")
#: The sums in a point, in order. Another choice needs another `_FORMAT`.
POINT_SUMS = (
    "queries", *_MEASURES, *(f"baseline_{name}" for name in _MEASURES),
    "feedback", "rejected", "abandoned", "stepped", "passive", "refused", "bounded", "squared_loss",
    *(f"square_{side}{name}" for side in ("", "baseline_", "lead_") for name in _MEASURES),
)  # fmt: skip
#: Weights in a row: those with the largest effect.
MOST_WEIGHTS = 200
#: The largest memory of a model's history in the store, with all overhead: full rings of points
#: have 131 kB, and 25 rows of 200 weights 41 kB (measured; `tests/test_history.py`).
HISTORY_BYTES = 200_000
_FORMAT = 1
_SELECTED = np.array([SUMS.index(name) for name in POINT_SUMS])
_TIME_BYTES = 13
_HEAD = Struct("<BQ")
_SUMS_START = _TIME_BYTES + _HEAD.size
_POINT_BYTES = _SUMS_START + 8 * len(POINT_SUMS)
_WEIGHT = np.dtype([("feature", "<u4"), ("weight", "<f4")])

#: Time (ms since 1970), seq, and the sums of `POINT_SUMS`.
Point = list[float]


class WeightsRow(NamedTuple):
    """The weights with the largest effect after record `seq`, by the index of their feature."""

    time: int
    seq: int
    weights: dict[int, float]


class StoredHistory(NamedTuple):
    """The points by 10 seconds and by 10 minutes, and the weights by the hour, oldest first."""

    hour: list[Point]
    day: list[Point]
    weights: list[WeightsRow]


def pack_point(seq: int, sums: Floats) -> bytes:
    """Return the row of a point, without its time."""
    selected: bytes = sums[_SELECTED].astype("<f8").tobytes()
    return _HEAD.pack(_FORMAT, seq) + selected


def point_at(time: int, seq: int, sums: Floats) -> Point:
    """Return the point of a state."""
    return [time, seq, *sums[_SELECTED].tolist()]


def pack_weights(seq: int, model: Model) -> bytes:
    """Return the row of the weights with the largest effect, without its time."""
    effects = weight_effects(model)
    chosen = np.arange(effects.size)
    if effects.size > MOST_WEIGHTS:
        chosen = np.sort(np.argpartition(effects, -MOST_WEIGHTS)[-MOST_WEIGHTS:])
    row = np.empty(chosen.size, _WEIGHT)
    with np.errstate(over="ignore"):  # beyond float32: infinite
        row["feature"], row["weight"] = chosen, model.weights[chosen]
    return _HEAD.pack(_FORMAT, seq) + row.tobytes()


def weight_effects(model: Model) -> Floats:
    """Return `|w_k|/σ_k`, the standard errors of each weight from 0; for SOLAR-I `|w_k|`."""
    found = variances(model.spread, model.weights.size)
    with np.errstate(over="ignore"):
        return np.abs(model.weights) / (np.sqrt(found) if found.size else 1.0)


class History:
    """The histories of all models."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def load(self, model: str, epoch: int, after: int = -1) -> StoredHistory:
        """Return the rows of a model after a time (ms since 1970).

        Rows that this release cannot read are missing. Without the right to LRANGE there are none.
        """
        with translated(self._client):
            try:
                pipeline = self._client.pipeline(transaction=False)
                for key in keys_of(model).history(epoch):
                    pipeline.lrange(key, 0, -1)
                hour, day, weights = await pipeline.execute()
            except foreign.NoPermissionError:
                return StoredHistory([], [], [])
        return StoredHistory(
            _points(_readable(filter(_is_point, hour), after)),
            _points(_readable(filter(_is_point, day), after)),
            [_weights(row) for row in _readable(filter(_has_weights, weights), after)],
        )


def _readable(rows: Iterable[bytes], after: int) -> list[bytes]:
    """Return the rows of this format after a time, in ascending order of time.

    If a clock went back, the rows from before that with a later time are missing.
    """
    found, next_time = list[bytes](), b"\xff"
    for row in reversed([*rows]):
        time = row[:_TIME_BYTES]
        known = row[_TIME_BYTES] == _FORMAT and time.isdigit()
        if known and time < next_time and int(time) > after:
            found.append(row)
            next_time = time
    return found[::-1]


def _head(row: bytes) -> tuple[int, int]:
    """Return time and seq of a row."""
    return int(row[:_TIME_BYTES]), _HEAD.unpack_from(row, _TIME_BYTES)[1]


def _is_point(row: bytes) -> bool:
    return len(row) == _POINT_BYTES


def _points(rows: list[bytes]) -> list[Point]:
    sums = np.frombuffer(b"".join(row[_SUMS_START:] for row in rows), "<f8")
    each = sums.reshape(len(rows), len(POINT_SUMS)).tolist()
    return [[*_head(row), *values] for row, values in zip(rows, each, strict=True)]


def _has_weights(row: bytes) -> bool:
    count, rest = divmod(len(row) - _SUMS_START, _WEIGHT.itemsize)
    return not rest and 0 <= count <= MOST_WEIGHTS


def _weights(row: bytes) -> WeightsRow:
    found = np.frombuffer(row, _WEIGHT, offset=_SUMS_START)
    by_feature = zip(found["feature"].tolist(), found["weight"].tolist(), strict=True)
    return WeightsRow(*_head(row), dict(by_feature))
