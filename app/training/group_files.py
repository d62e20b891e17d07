"""Judged data by group, for one model a group: LETOR text, JSON lines or parquet files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from app.errors import BadData
from app.evaluation import letor, tables
from app.evaluation.letor import JudgedData
from app.evaluation.tables import GroupedData, TableRows
from app.training.shards import files, parquet
from app.training.shards.files import Shard

#: The group of LETOR text: the part of the query id before its first colon.
QID_PREFIX = "qid-prefix"


def read_groups(paths: Sequence[Path], field: str) -> GroupedData:
    """Read files of one kind; `field` is the column of the group, or `qid-prefix` for text."""
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise BadData(f"files: expected one kind, got {' and '.join(sorted(kinds))}")
    if kinds == {"LETOR text"}:
        return _by_prefix(paths, field)
    read = read_parquet if kinds == {"parquet"} else tables.read_json_lines
    return tables.grouped([rows for path in paths for rows in read(path, field)])


def read_parquet(path: Path, field: str) -> list[TableRows]:
    """Read a parquet file, or all of a directory, as Spark writes them."""
    tables.check_field(field)
    shards = files.expand(files.located([str(path)])[0])
    return [rows for shard in shards for rows in _shard_rows(shard, field)]


def _shard_rows(shard: Shard, field: str) -> Iterator[TableRows]:
    with files.opened(shard) as file:
        n, names = parquet.columns_of(file, shard.name, others=(field,))
        tables.check_count(n, shard.name)
        groups = parquet.texts_of(file, shard.name, field)
        first = 0
        for piece in parquet.parquet_pieces(file, shard.name, n, names):

            def where(at: int, before: int = first) -> str:
                return f"{shard.name}: row {before + at + 1}"

            yield TableRows(
                groups[first : first + len(piece)],
                np.repeat(piece.names, piece.sizes).tolist(),
                tables.checked_labels(piece.labels, where),
                tables.checked_values(piece.X, where),
                names or None,
            )
            first += len(piece)


def _kind(path: Path) -> str:
    if path.is_dir():
        return "parquet"
    suffixes = [suffix for suffix in path.suffixes if suffix not in letor.PACKED]
    last = suffixes[-1] if suffixes else ""
    return {
        ".parquet": "parquet", ".pq": "parquet", ".jsonl": "JSON lines", ".ndjson": "JSON lines",
        ".json": "JSON lines",
    }.get(last, "LETOR text")  # fmt: skip


def _by_prefix(paths: Sequence[Path], field: str) -> GroupedData:
    if field != QID_PREFIX:
        raise BadData(
            f"--group-by: expected {QID_PREFIX} for LETOR text (columns need .jsonl or .parquet "
            f"files), got {field}"
        )
    data, ids = letor.read_with_ids(paths)
    groups: dict[str, JudgedData] = {}
    for name, query in zip(ids, data.queries, strict=True):
        group, colon, _ = name.partition(":")
        if not colon:
            raise BadData(f"qid:{name}: expected qid:GROUP:ID with --group-by {QID_PREFIX}")
        groups.setdefault(group, JudgedData(data.n, [])).queries.append(query)
    return GroupedData(data.n, None, groups)
