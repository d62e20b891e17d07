"""Judged data in LETOR/SVMlight text: `label qid:ID 1:v 2:v … # comment`, also .gz and .xz.

The first malformed line raises BadData: `file:line: expected …, got …`. Feature values are rounded
to float32, like all features that enter the package.

`app/ranking/lines.py` reads blocks of lines in the common form. A block with any other line goes
through the field-by-field parser here. Measured on MQ2008 (9,600 lines of 46 features): 110 ms of
CPU instead of 440 from .xz (60 of them decompression), 47 instead of 370 from plain text.
"""

import gzip
import io
import lzma
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from app.errors import BadData
from app.ranking.arrays import Dense, Floats, Integers
from app.ranking.limits import LARGEST_LABEL, LARGEST_VALUE, MOST_FEATURES, MOST_FEATURES_FULL
from app.ranking.lines import Lines, usual
from app.ranking.online import LabelledQuery
from app.ranking.sparse import SparseRows

#: Bytes of text that one read takes.
BYTES_AT_ONCE = 1 << 24
#: How to open compressed files, by suffix.
PACKED: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}

ReportRead = Callable[[int], None]


def _silent(_: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True)
class JudgedData:
    """Judged queries of n common features, in the order of the files."""

    n: int
    queries: list[LabelledQuery]

    @property
    def documents(self) -> int:
        """The number of documents of all queries."""
        return sum(len(query.labels) for query in self.queries)

    @property
    def sparse(self) -> bool:
        """Whether the documents are sparse rows: there are too many features for a full Σ."""
        return self.n > MOST_FEATURES_FULL


class LetorRows(NamedTuple):
    """Consecutive documents of one query; document d has `lengths[d]` of the columns."""

    query: str
    labels: Floats
    lengths: Integers
    columns: Integers
    values: Dense


def read_letor(paths: Sequence[Path], progress: ReportRead = _silent) -> JudgedData:
    """Read files as one data set; the lines of a query must be contiguous in one file.

    `progress` receives the number of bytes of text after each block.
    """
    return _joined_parts(read_parts(paths, progress))


def read_with_ids(paths: Sequence[Path]) -> tuple[JudgedData, list[str]]:
    """Read files as one data set; also return the id of each query."""
    started: dict[str, str] = {}
    data = _joined_parts(_parts(paths, started, _silent))
    return data, list(started)


def read_parts(paths: Sequence[Path], progress: ReportRead = _silent) -> list[JudgedData]:
    """Read files as parts of one data set: common features, and no query in two parts."""
    return _parts(paths, {}, progress)


def _joined_parts(parts: Sequence[JudgedData]) -> JudgedData:
    return JudgedData(parts[0].n, [query for part in parts for query in part.queries])


def _parts(
    paths: Sequence[Path], started: dict[str, str], progress: ReportRead
) -> list[JudgedData]:
    """Read the parts; `started` gets the id of each query, in order, and where it starts."""
    parts = [_groups(path, started, progress) for path in paths]
    rows = (rows for groups in parts for group in groups for rows in group)
    n = max(int(some.columns.max(initial=-1)) + 1 for some in rows)
    if n == 0:
        raise BadData(f"{paths[0]}: expected features, got none in any line")
    gather = _sparse if n > MOST_FEATURES_FULL else _dense
    return [JudgedData(n, [gather(group, n) for group in groups]) for groups in parts]


def _groups(path: Path, started: dict[str, str], progress: ReportRead) -> list[list[LetorRows]]:
    """Group the lines of a file by query; `started` holds where each query of any file starts."""
    groups: list[list[LetorRows]] = []
    last = None
    for number, rows in _rows(path, progress):
        if rows.query != last:
            where = f"{path}:{number}"
            if rows.query in started:
                raise BadData(
                    f"{where}: expected contiguous lines for each query, got more lines of query "
                    f"{_short(rows.query)}, which starts at {started[rows.query]}"
                )
            started[rows.query], last = where, rows.query
            groups.append([])
        groups[-1].append(rows)
    if not groups:
        raise BadData(f"{path}: expected lines of judged documents, got none")
    return groups


def _dense(group: list[LetorRows], n: int) -> LabelledQuery:
    query = _joined(group)
    documents = np.zeros((len(query.labels), n), np.float32)
    documents[np.repeat(np.arange(len(documents)), query.lengths), query.columns] = query.values
    return LabelledQuery(query.labels, documents)


def _sparse(group: list[LetorRows], n: int) -> LabelledQuery:
    query = _joined(group)
    starts = np.append(0, np.cumsum(query.lengths))
    documents = SparseRows((len(query.labels), n), starts, query.columns, query.values)
    return LabelledQuery(query.labels, documents)


def _joined(group: list[LetorRows]) -> LetorRows:
    query, *_ = group[0]
    return LetorRows(
        query, *(np.concatenate(parts) for parts in list(zip(*group, strict=True))[1:])
    )


def _rows(path: Path, progress: ReportRead) -> Iterator[tuple[int, LetorRows]]:
    """Yield line numbers, each with the rows of one query that start there."""
    with open_packed(path) as file:
        yield from read_rows(file, str(path), progress, BYTES_AT_ONCE)


def read_rows(
    file: IO[bytes], name: str, progress: ReportRead = _silent, size: int | None = None
) -> Iterator[tuple[int, LetorRows]]:
    """Yield line numbers, each with the rows of one query that start there, as they are read.

    `name` is that of the file in messages; `size` is the number of bytes of one read.
    """
    before = 0
    for text in _blocks(file, size or BYTES_AT_ONCE):
        lines = usual(text)
        found = _line_by_line(name, before, text) if lines is None else _by_query(text, lines)
        for number, rows in found:
            yield before + number, rows
        before += text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")
        progress(len(text))


def _blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the file in blocks of whole lines."""
    rest = b""
    while block := file.read(size):
        whole, newline, after = block.rpartition(b"\n")
        if newline:
            yield rest + whole + newline
            rest = after
        else:
            rest += block
    if rest:
        yield rest


def _by_query(text: bytes, lines: Lines) -> Iterator[tuple[int, LetorRows]]:
    ids = [text[low:high] for low, high in lines.ids.tolist()]
    starts = np.cumsum([0, *(len(list(same)) for _, same in groupby(ids))])
    ends = np.append(0, np.cumsum(lines.lengths))
    for low, high in pairwise(starts.tolist()):
        named = slice(ends[low], ends[high])
        yield int(lines.numbers[low]), LetorRows(
            ids[low].decode(), lines.labels[low:high], lines.lengths[low:high],
            lines.columns[named], lines.values[named],
        )  # fmt: skip


def _line_by_line(path: Path | str, before: int, text: bytes) -> Iterator[tuple[int, LetorRows]]:
    keys: tuple[str, ...] = ()
    columns = np.zeros(0, np.int64)
    lines = io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", errors="backslashreplace")
    for number, line in enumerate(lines, start=1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            label, query, new_keys, values = _parse(fields)
            if new_keys != keys:  # most lines have the features of the previous line
                keys, columns = new_keys, _columns(new_keys)
        except ValueError:
            raise BadData(f"{path}:{before + number}: {_first_error(fields)}") from None
        length = np.array([columns.size])
        yield number, LetorRows(query, np.array([label]), length, columns, values)


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
    """Parse a finite number; `float()` would also accept "nan", "1_000" and "１"."""
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
    """Parse a feature number from 1; `int()` would also accept "+1", "1_0" and any length."""
    if not (key.isascii() and key.isdigit() and len(key) <= len(str(MOST_FEATURES))):
        raise ValueError
    if not 1 <= int(key) <= MOST_FEATURES:
        raise ValueError
    return int(key)


def _first_error(fields: list[str]) -> str:
    """Describe the first wrong field of a line that did not parse."""
    if not _parses(_number, fields[0]) or not 0.0 <= float(fields[0]) <= LARGEST_LABEL:
        return f"expected a label from 0 to {LARGEST_LABEL:g}, got {_short(fields[0])}"
    if len(fields) < 2 or not fields[1].startswith("qid:") or fields[1] == "qid:":
        return (
            f"expected qid:ID after the label, got {_short(fields[1]) if fields[1:] else 'nothing'}"
        )
    last = 0
    for field in fields[2:]:
        key, colon, text = field.partition(":")
        if not colon or not _parses(_index, key):
            span = f"from 1 to {MOST_FEATURES}"
            return f"expected feature:value with a feature {span}, got {_short(field)}"
        if int(key) <= last:
            return f"expected ascending features, one above {last} here, got {_short(field)}"
        if not _parses(_number, text) or abs(float(text)) > LARGEST_VALUE:
            return f"expected a finite float32 as value of feature {key}, got {_short(text)}"
        last = int(key)
    raise AssertionError(fields)


def _parses(parse: Callable[[str], float], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


@contextmanager
def open_packed(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, .gz and .xz unpacked; BadData if it cannot be read."""
    opener = PACKED.get(path.suffix, open)
    try:
        with opener(path, "rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise BadData(f"{path}: expected {path.suffix[1:]} data, got {error}") from error
    except OSError as error:
        raise BadData(f"{path}: {error.strerror or error}") from error
