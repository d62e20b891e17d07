"""Rows of a parquet file: `qid`, `label`, and `features` as a list or one column for a feature."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from app.errors import BadData
from app.ranking.arrays import Floats
from app.training.shards.blocks import QueryRows
from app.training.shards.extra import extra_needed

QUERY, LABEL, FEATURES = "qid", "label", "features"
#: Bytes of rows, in float32, that one batch decodes.
BATCH_BYTES = 1_000_000
#: Bytes of the file that one read takes; without it a whole row group is read at once.
PARQUET_BYTES = 1 << 20


def columns_of(
    file: IO[bytes], name: str, others: Sequence[str] = ()
) -> tuple[int, tuple[str, ...]]:
    """Return the number of features and, with one column for each, their names.

    `others` are columns that must exist and are no features.
    """
    with _opened(file) as parquet:
        if not parquet.metadata.num_rows:
            raise BadData(f"{name}: expected rows, got none")
        schema = parquet.schema_arrow
        _expect_columns(schema.names, (QUERY, LABEL, *others), name)
        if FEATURES in schema.names:
            batch = next(parquet.iter_batches(batch_size=1, columns=[FEATURES], use_threads=False))
            return _list_length(batch.column(0), name), ()
        names = tuple(one for one in schema.names if one not in (QUERY, LABEL, *others))
        _expect_columns(names[:1], (FEATURES,) if not names else (), name)
        for one in names:
            _expect_numbers(schema.field(one).type, name, one)
        return len(names), names


def texts_of(file: IO[bytes], name: str, column: str) -> list[str]:
    """Return the values of a column as text, in the order of the rows."""
    import pyarrow.compute as pc  # noqa: PLC0415  # the extra may be missing

    with _opened(file) as parquet:
        values = parquet.read(columns=[column], use_threads=False).column(column)
        _expect_no_null(values, name, column)
        found: list[str] = pc.cast(values, "string").to_pylist()
        return found


def parquet_pieces(file: IO[bytes], name: str, n: int, names: Sequence[str]) -> Iterator[QueryRows]:
    """Yield the rows with n features: the columns of these names, or the list `features`."""
    with _opened(file) as parquet:
        columns = [QUERY, LABEL, *(names or (FEATURES,))]
        _expect_columns(parquet.schema_arrow.names, columns, name)
        size = max(1, BATCH_BYTES // (4 * n))
        for batch in parquet.iter_batches(batch_size=size, columns=columns, use_threads=False):
            yield _piece(batch, name, n, names)


@contextmanager
def _opened(file: IO[bytes]) -> Iterator[Any]:
    with extra_needed():
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415
    with ParquetFile(file, pre_buffer=False, buffer_size=PARQUET_BYTES) as parquet:
        yield parquet


def _piece(batch: Any, name: str, n: int, names: Sequence[str]) -> QueryRows:
    import pyarrow.compute as pc  # noqa: PLC0415  # the extra may be missing

    for column in (QUERY, LABEL):
        _expect_no_null(batch.column(column), name, column)
    runs = pc.run_end_encode(pc.cast(batch.column(QUERY), "string"))
    sizes = np.diff(runs.run_ends.to_numpy(zero_copy_only=False), prepend=0).astype(np.int64)
    labels = _numbers(batch.column(LABEL), name, LABEL).astype(np.float64)
    rows = (
        _from_columns(batch, name, names) if names else _from_list(batch.column(FEATURES), name, n)
    )
    return QueryRows(tuple(runs.values.to_pylist()), sizes, labels, rows)


def _from_columns(batch: Any, name: str, names: Sequence[str]) -> Any:
    rows = np.empty((batch.num_rows, len(names)), np.float32)
    with np.errstate(over="ignore"):
        for at, column in enumerate(names):
            rows[:, at] = _numbers(batch.column(column), name, column)
    return rows


def _from_list(lists: Any, name: str, n: int) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415  # the extra may be missing

    _expect_no_null(lists, name, FEATURES)
    lengths = pc.list_value_length(lists)
    if not pc.all(pc.equal(lengths, n)).as_py():
        other = next(length for length in lengths.to_pylist() if length != n)
        raise BadData(f"{name}: column features: expected {n} values in each row, got {other}")
    with np.errstate(over="ignore"):
        values = _numbers(lists.flatten(), name, FEATURES).astype(np.float32, copy=False)
    return values.reshape(len(lists), n)


def _list_length(lists: Any, name: str) -> int:
    import pyarrow.compute as pc  # noqa: PLC0415  # the extra may be missing
    import pyarrow.types as kinds  # noqa: PLC0415

    kind = lists.type
    if not (kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)):
        raise BadData(f"{name}: column features: expected lists of numbers, got {kind}")
    _expect_numbers(kind.value_type, name, FEATURES)
    _expect_no_null(lists, name, FEATURES)
    length = int(pc.list_value_length(lists)[0].as_py())
    if not length:
        raise BadData(f"{name}: column features: expected at least one value, got none")
    return length


def _numbers(column: Any, name: str, called: str) -> Floats:
    _expect_numbers(column.type, name, called)
    _expect_no_null(column, name, called)
    values: Floats = column.to_numpy(zero_copy_only=False)
    return values


def _expect_numbers(kind: Any, name: str, called: str) -> None:
    import pyarrow.types as kinds  # noqa: PLC0415  # the extra may be missing

    if not (kinds.is_integer(kind) or kinds.is_floating(kind)):
        raise BadData(f"{name}: column {called[:64]}: expected numbers, got {kind}")


def _expect_no_null(column: Any, name: str, called: str) -> None:
    if column.null_count:
        raise BadData(f"{name}: column {called[:64]}: expected a value in each row, got null")


def _expect_columns(found: Sequence[str], expected: Sequence[str], name: str) -> None:
    for column in expected:
        if column not in found:
            raise BadData(f"{name}: expected the column {column[:64]}, got none of this name")
