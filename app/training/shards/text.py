"""Rows of a shard in LETOR/SVMlight text, as they are read."""

from collections.abc import Iterator
from typing import IO

import numpy as np

from app.errors import BadData
from app.evaluation import letor
from app.ranking.limits import MOST_FEATURES_FULL
from app.ranking.sparse import SparseRows
from app.training.shards.blocks import QueryRows, sparse_matrix

#: Bytes of text that one read takes.
TEXT_BYTES = 4_000_000


def count_features(file: IO[bytes], name: str) -> int:
    """Return the highest number of a feature in the text; 0 if there is none."""
    found = [int(rows.columns.max(initial=-1)) + 1 for _, rows in _read(file, name)]
    if not found:
        raise BadData(f"{name}: expected lines of judged documents, got none")
    return max(found)


def text_pieces(file: IO[bytes], name: str, n: int) -> Iterator[QueryRows]:
    """Yield the rows with n features, a few of one query at a time."""
    for number, rows in _read(file, name):
        if rows.columns.size and rows.columns.max() >= n:
            raise BadData(f"{name}:{number}: expected features from 1 to {n}, got a higher one")
        count = len(rows.labels)
        if n > MOST_FEATURES_FULL:
            starts = np.append(0, np.cumsum(rows.lengths))
            X = sparse_matrix(SparseRows((count, n), starts, rows.columns, rows.values))
        else:
            X = np.zeros((count, n), np.float32)
            X[np.repeat(np.arange(count), rows.lengths), rows.columns] = rows.values
        yield QueryRows((rows.query,), np.array([count]), rows.labels, X)


def _read(file: IO[bytes], name: str) -> Iterator[tuple[int, letor.LetorRows]]:
    return letor.read_rows(file, name, size=TEXT_BYTES)
