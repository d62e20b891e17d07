"""Judged documents in rows, one document each: JSON lines, and the queries and groups of rows.

A row has a group, a query id `qid`, a `label` and `features`: a list of values, or values by name
(an absent one is 0). The rows of a query need not be adjacent. All rows have the same features, at
most as many as a model with a full covariance may have.

    {"shop": "books", "qid": "q1", "label": 2, "features": {"bm25": 9.8, "price": 12.5}}
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.domain.names import quoted
from app.errors import BadData
from app.evaluation.letor import JudgedData, open_packed
from app.ranking.arrays import Dense, Floats
from app.ranking.limits import LARGEST_LABEL, LARGEST_VALUE, MOST_FEATURES_FULL
from app.ranking.online import LabelledQuery

#: The columns that a group cannot have.
ROW_COLUMNS = ("qid", "label", "features")
#: Lines that are decoded before their values become one array.
LINES_AT_ONCE = 4096
#: Returns the file and the line of a row, for messages.
Where = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one file, in order; `names` are those of the features, None: only their order."""

    groups: list[str]
    queries: list[str]
    labels: Floats
    features: Dense
    names: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class GroupedData:
    """Judged queries of n common features, by group, in the order of the files."""

    n: int
    names: tuple[str, ...] | None
    groups: dict[str, JudgedData]


def read_json_lines(path: Path, field: str) -> list[TableRows]:
    """Read a file, plain, .gz or .xz; `field` is the column of the group."""
    kind = msgspec.defstruct(
        "Row",
        [
            ("group", str | int, msgspec.field(name=check_field(field))),
            ("qid", str | int),
            ("label", float),
            ("features", list[float] | dict[str, float]),
        ],
    )
    decoder = msgspec.json.Decoder(kind)
    with open_packed(path) as file:
        numbered = ((at, line) for at, line in enumerate(file, start=1) if line.strip())
        blocks = iter(lambda: list(islice(numbered, LINES_AT_ONCE)), [])
        return [_rows(path, decoder, block) for block in blocks]


def check_field(field: str) -> str:
    """Return a valid name of the column of the group."""
    if field in ROW_COLUMNS:
        raise BadData(
            f"--group-by: expected a column other than {', '.join(ROW_COLUMNS)}, got {field}"
        )
    return field


def grouped(parts: Sequence[TableRows]) -> GroupedData:
    """Join rows by group and query; both keep the order in which they first appear.

    >>> rows = TableRows(["a", "b", "a"], ["1", "1", "1"], np.array([0.0, 1.0, 2.0]),
    ...             np.array([[1.0], [2.0], [3.0]]), None)
    >>> {group: data.queries[0].labels for group, data in grouped([rows]).groups.items()}
    {'a': array([0., 2.]), 'b': array([1.])}
    """
    if not parts:
        raise BadData("expected judged documents, got no line")
    names, features = _common(parts)
    keys: dict[tuple[str, str], int] = {}
    numbers = np.array([keys.setdefault(key, len(keys)) for key in _keys(parts)])
    labels = np.concatenate([part.labels for part in parts])
    if (np.diff(numbers) < 0).any():
        order = np.argsort(numbers, kind="stable")
        labels, features = labels[order], features[order]
    starts = np.cumsum([0, *np.bincount(numbers)]).tolist()
    found: dict[str, JudgedData] = {}
    for (group, _), (a, b) in zip(keys, pairwise(starts), strict=True):
        data = found.setdefault(group, JudgedData(features.shape[1], []))
        data.queries.append(LabelledQuery(labels[a:b], features[a:b]))
    return GroupedData(features.shape[1], names, found)


def checked_values(values: Dense, where: Where) -> Dense:
    """Round to float32; BadData if a value is not finite or too large."""
    good = (np.abs(values) <= LARGEST_VALUE).all(axis=1)
    if not good.all():
        raise BadData(f"{where(int(np.argmin(good)))}: features: expected finite float32 values")
    return values.astype(np.float32, copy=False)


def checked_labels(labels: Floats, where: Where) -> Floats:
    """Return the labels unchanged; BadData if one is out of range."""
    good = (labels >= 0.0) & (labels <= LARGEST_LABEL)
    if not good.all():
        at = int(np.argmin(good))
        raise BadData(
            f"{where(at)}: label: expected a number from 0 to {LARGEST_LABEL:g}, got {labels[at]:g}"
        )
    return labels


def check_count(n: int, where: str) -> None:
    """Raise BadData if rows cannot have n features."""
    if not 1 <= n <= MOST_FEATURES_FULL:
        raise BadData(f"{where}: features: expected 1 to {MOST_FEATURES_FULL}, got {n}")


def _keys(parts: Sequence[TableRows]) -> Iterator[tuple[str, str]]:
    for part in parts:
        yield from zip(part.groups, part.queries, strict=True)


def _common(parts: Sequence[TableRows]) -> tuple[tuple[str, ...] | None, Dense]:
    """Return the names of all features, and the features of all parts with these columns."""
    if len({part.names is None for part in parts}) > 1:
        raise BadData("features: expected lists or names in all lines, got both")
    names = _union(parts)
    if names is None and len({part.features.shape[1] for part in parts}) > 1:
        raise BadData("features: expected lists of one length in all files, got several")
    if names is not None:
        check_count(len(names), "all files")
    return names, np.concatenate([placed(part.features, part.names, names) for part in parts])


def _union(parts: Sequence[TableRows]) -> tuple[str, ...] | None:
    """Return all names, in the order in which they first appear."""
    if parts[0].names is None:
        return None
    return tuple(dict.fromkeys(name for part in parts for name in part.names or ()))


def placed(rows: Any, names: tuple[str, ...] | None, given: tuple[str, ...] | None) -> Any:
    """Return rows with the columns `given` instead of `names`; absent ones are 0.

    >>> placed(np.array([[1.0, 2.0]]), ("a", "b"), ("b", "c", "a"))
    array([[2., 0., 1.]])
    """
    if names == given or names is None or given is None:
        return rows
    at = {name: column for column, name in enumerate(given)}
    if unknown := [name for name in names if name not in at]:
        raise BadData(f"features: the model has no feature {quoted(unknown[0])}")
    found = np.zeros((len(rows), len(given)), rows.dtype)
    found[:, [at[name] for name in names]] = rows
    return found


def _rows(path: Path, decoder: Any, block: Sequence[tuple[int, bytes]]) -> TableRows:
    decoded = [_decoded(path, decoder, at, line) for at, line in block]
    names, values = _values(path, block, [row.features for row in decoded])

    def where(at: int) -> str:
        return f"{path}:{block[at][0]}"

    labels = checked_labels(np.array([row.label for row in decoded], np.float64), where)
    return TableRows(
        [str(row.group) for row in decoded], [str(row.qid) for row in decoded],
        labels, checked_values(values, where), names,
    )  # fmt: skip


def _decoded(path: Path, decoder: Any, number: int, line: bytes) -> Any:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadData(f"{path}:{number}: {error}") from None


def _values(
    path: Path, block: Sequence[tuple[int, bytes]], features: Sequence[Any]
) -> tuple[tuple[str, ...] | None, NDArray[np.float64]]:
    """Return the names and values of a block; all lines have lists, or all have names."""
    named, first = isinstance(features[0], dict), len(features[0])
    for (number, _), one in zip(block, features, strict=True):
        if isinstance(one, dict) != named:
            kinds = ("names", "a list") if named else ("a list", "names")
            raise BadData(f"{path}:{number}: features: expected {kinds[0]}, got {kinds[1]}")
        if not named and len(one) != first:
            raise BadData(f"{path}:{number}: features: expected {first} values, got {len(one)}")
    where = f"{path}:{block[0][0]}"
    if not named:
        check_count(first, where)
        return None, np.array(features, np.float64)
    names = tuple(dict.fromkeys(name for one in features for name in one))
    check_count(len(names), where)
    found = np.array([[one.get(name, 0.0) for name in names] for one in features], np.float64)
    return names, found
