"""Judged data in LETOR/SVMlight text: `label qid:ID 1:v 2:v … # comment`, also .gz and .xz.

Reads whole files or nothing: the first line that is not what it should be stops with
`file:line: what was expected, what came`. Feature values are rounded to float32, as everywhere at
the edge.
"""

import gzip
import lzma
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from app.errors import BadData
from app.ranking.arrays import Dense, Integers
from app.ranking.limits import LARGEST_LABEL, MOST_FEATURES, MOST_FEATURES_FULL
from app.ranking.online import JudgedQuery
from app.ranking.sparse import SparseRows

LARGEST_VALUE = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class JudgedData:
    """Judged queries that share their features, in the order of the files."""

    n: int
    queries: list[JudgedQuery]

    @property
    def documents(self) -> int:
        """How many documents all queries have together."""
        return sum(len(query.labels) for query in self.queries)

    @property
    def sparse(self) -> bool:
        """Whether the documents are sparse rows: more features than a dense model takes."""
        return self.n > MOST_FEATURES_FULL


class _Row(NamedTuple):
    label: float
    query: str
    columns: Integers
    values: Dense


def read(paths: Sequence[Path]) -> JudgedData:
    """Read files as one data set; a query must stand together, in one place of one file."""
    parts = read_parts(paths)
    return JudgedData(parts[0].n, [query for part in parts for query in part.queries])


def read_parts(paths: Sequence[Path]) -> list[JudgedData]:
    """Read files as parts of one data set: all share their features, no query is in two."""
    started: dict[str, str] = {}
    parts = [_groups(path, started) for path in paths]
    rows = (row for groups in parts for group in groups for row in group)
    n = max((int(row.columns[-1]) + 1 for row in rows if row.columns.size), default=0)
    if n == 0:
        raise BadData(f"{paths[0]}: expected features, got none in any line")
    gather = _sparse if n > MOST_FEATURES_FULL else _dense
    return [JudgedData(n, [gather(group, n) for group in groups]) for groups in parts]


def _groups(path: Path, started: dict[str, str]) -> list[list[_Row]]:
    """The lines of a file by query; `started` says where each query of any file began."""
    groups: list[list[_Row]] = []
    last = None
    for where, row in _rows(path):
        if row.query != last:
            if row.query in started:
                raise BadData(
                    f"{where}: expected all lines of a query in one place, got more of "
                    f"{_short(row.query)} after those at {started[row.query]}"
                )
            started[row.query], last = where, row.query
            groups.append([])
        groups[-1].append(row)
    if not groups:
        raise BadData(f"{path}: expected lines of judged documents, got none")
    return groups


def _dense(rows: list[_Row], n: int) -> JudgedQuery:
    documents = np.zeros((len(rows), n), np.float32)
    for document, row in zip(documents, rows, strict=True):
        document[row.columns] = row.values
    return JudgedQuery(np.array([row.label for row in rows]), documents)


def _sparse(rows: list[_Row], n: int) -> JudgedQuery:
    starts = np.cumsum([0, *(row.columns.size for row in rows)])
    columns = np.concatenate([row.columns for row in rows])
    values = np.concatenate([row.values for row in rows])
    documents = SparseRows((len(rows), n), starts, columns, values)
    return JudgedQuery(np.array([row.label for row in rows]), documents)


def _rows(path: Path) -> Iterator[tuple[str, _Row]]:
    keys: tuple[str, ...] = ()
    columns = np.zeros(0, np.int64)
    with _opened(path) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.partition("#")[0].split()
            if not fields:
                continue
            try:
                label, query, new_keys, values = _parse(fields)
                if new_keys != keys:  # most lines name the same features as the one before
                    keys, columns = new_keys, _columns(new_keys)
            except ValueError:
                raise BadData(f"{path}:{number}: {_complaint(fields)}") from None
            yield f"{path}:{number}", _Row(label, query, columns, values)


def _parse(fields: list[str]) -> tuple[float, str, tuple[str, ...], Dense]:
    first, second, *rest = fields
    label, (marker, query) = _number(first), second.split(":", 1)
    keys, texts = zip(*[field.split(":") for field in rest], strict=True) if rest else ((), ())
    values = list(map(_number, texts))
    if not 0.0 <= label <= LARGEST_LABEL or marker != "qid" or not query:
        raise ValueError
    if not max(map(abs, values), default=0.0) <= LARGEST_VALUE:
        raise ValueError
    return label, query, keys, np.array(values, np.float32)


def _number(text: str) -> float:
    """A finite number; Python's own float() also takes "nan", "1_000" and "１"."""
    value = float(text)
    if not math.isfinite(value) or "_" in text or not text.isascii():
        raise ValueError
    return value


def _columns(keys: tuple[str, ...]) -> Integers:
    columns = np.array([_index(key) for key in keys], np.int64) - 1
    if (np.diff(columns) <= 0).any():
        raise ValueError
    return columns


def _index(key: str) -> int:
    """A feature's number, from 1 on; int() would also take "+1", "1_0" and thousands of digits."""
    if not (key.isascii() and key.isdigit() and len(key) <= len(str(MOST_FEATURES))):
        raise ValueError
    if not 1 <= int(key) <= MOST_FEATURES:
        raise ValueError
    return int(key)


def _complaint(fields: list[str]) -> str:
    """What is wrong with a line that did not parse: the first field that is not as it should be."""
    if not _is(_number, fields[0]) or not 0.0 <= float(fields[0]) <= LARGEST_LABEL:
        return f"expected a label from 0 to {LARGEST_LABEL:g}, got {_short(fields[0])}"
    if len(fields) < 2 or not fields[1].startswith("qid:") or fields[1] == "qid:":
        return (
            f"expected qid:ID after the label, got {_short(fields[1]) if fields[1:] else 'nothing'}"
        )
    last = 0
    for field in fields[2:]:
        key, colon, text = field.partition(":")
        if not colon or not _is(_index, key):
            span = f"from 1 to {MOST_FEATURES}"
            return f"expected feature:value with a feature {span}, got {_short(field)}"
        if int(key) <= last:
            return f"expected a feature after {last}, got {_short(field)}"
        if not _is(_number, text) or abs(float(text)) > LARGEST_VALUE:
            return f"expected a finite float32 as value of feature {key}, got {_short(text)}"
        last = int(key)
    raise AssertionError(fields)


def _is(parse: Callable[[str], float], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    opener = openers.get(path.suffix, open)
    try:
        with opener(path, "rt", encoding="utf-8", errors="backslashreplace") as lines:
            yield lines
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise BadData(f"{path}: expected {path.suffix[1:]} data, got {error}") from error
    except OSError as error:
        raise BadData(f"{path}: {error.strerror or error}") from error
