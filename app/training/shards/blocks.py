"""Rows in blocks of whole queries, so that memory does not grow with the size of a shard.

The bounds of the blocks depend on the rows alone. So a sum over blocks has the same bits wherever
and however often a shard is read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.domain import candidates
from app.domain.splines import Ramps, with_ramps
from app.ranking.arrays import Floats, Integers
from app.ranking.batch.judgements import is_sparse
from app.ranking.sparse import SparseRows

#: Most bytes of the rows of a block, in float64; only a single larger query may exceed it. A step
#: needs about five times as much.
BLOCK_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class QueryRows:
    """Rows of consecutive queries: query q is named `names[q]` and has `sizes[q]` rows.

    X is dense, or scipy's `csr_array`, in float32.
    """

    names: tuple[str, ...]
    sizes: Integers
    labels: Floats
    X: Any

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def nbytes(self) -> int:
        """Bytes of the labels and the rows as they are."""
        X = self.X
        values = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if is_sparse(X) else X.nbytes
        return int(self.labels.nbytes + self.sizes.nbytes + values)

    def query_bytes(self) -> Integers:
        """Return the bytes of the rows of each query in float64."""
        ends = np.cumsum(self.sizes)
        if not is_sparse(self.X):
            return self.sizes * int(8 * self.X.shape[1])
        filled: Integers = np.diff(self.X.indptr[np.append(0, ends)])
        return filled.astype(np.int64) * 16

    def split(self, queries: int) -> tuple["QueryRows", "QueryRows"]:
        """Return the first queries, and the others."""
        at = int(self.sizes[:queries].sum())
        return (
            QueryRows(self.names[:queries], self.sizes[:queries], self.labels[:at], self.X[:at]),
            QueryRows(self.names[queries:], self.sizes[queries:], self.labels[at:], self.X[at:]),
        )

    def some(self, kept: Any) -> "QueryRows":
        """Return the queries where `kept` is true."""
        rows = np.repeat(kept, self.sizes)
        names = tuple(name for name, keep in zip(self.names, kept, strict=True) if keep)
        return QueryRows(names, self.sizes[kept], self.labels[rows], self.X[rows])

    @property
    def starts(self) -> Integers:
        """The first row of each query, and the number of rows."""
        return np.append(0, np.cumsum(self.sizes))

    def ordering(self) -> NDArray[np.bool_]:
        """Return a mask of the queries with two different labels."""
        starts = self.starts[:-1]
        lowest, highest = (f.reduceat(self.labels, starts) for f in (np.minimum, np.maximum))
        found: NDArray[np.bool_] = highest > lowest
        return found


def in_blocks(pieces: Iterable[QueryRows], most: int = BLOCK_BYTES) -> Iterator[QueryRows]:
    """Regroup rows into blocks of whole queries with at most `most` bytes.

    A query may go on in the next piece.

    >>> one = QueryRows(("a",), np.array([2]), np.zeros(2), np.zeros((2, 1), np.float32))
    >>> two = QueryRows(("a", "b"), np.array([1, 1]), np.zeros(2), np.zeros((2, 1), np.float32))
    >>> [(block.names, block.sizes.tolist()) for block in in_blocks([one, two], most=24)]
    [(('a',), [3]), (('b',), [1])]
    """
    held: list[QueryRows] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += int(piece.query_bytes().sum())
        while size > most:
            rows = joined(held)
            whole = _whole_queries(rows, most)
            if not whole:
                break
            block, rest = rows.split(whole)
            yield block
            held, size = [rest], int(rest.query_bytes().sum())
    if held:
        yield joined(held)


def _whole_queries(rows: QueryRows, most: int) -> int:
    """Return how many queries fill a block, at least one; the last may go on, so never all."""
    fitting = int(np.searchsorted(np.cumsum(rows.query_bytes()), most, side="right"))
    return min(max(1, fitting), len(rows.sizes) - 1)


def joined(pieces: list[QueryRows]) -> QueryRows:
    """Join pieces; a query that goes on in the next piece becomes one."""
    if len(pieces) == 1:
        return pieces[0]
    names = [name for piece in pieces for name in piece.names]
    sizes = np.concatenate([piece.sizes for piece in pieces])
    new = np.array([True, *(a != b for a, b in pairwise(names))])
    X = _stacked([piece.X for piece in pieces])
    return QueryRows(
        tuple(name for name, first in zip(names, new, strict=True) if first),
        np.add.reduceat(sizes, np.flatnonzero(new)),
        np.concatenate([piece.labels for piece in pieces]),
        X,
    )


def _stacked(rows: list[Any]) -> Any:
    if not is_sparse(rows[0]):
        return np.concatenate(rows)
    from scipy.sparse import vstack  # noqa: PLC0415  # only sparse rows need scipy

    return vstack(rows, format="csr")


def normalized_rows(rows: QueryRows, normalization: str) -> QueryRows:
    """Scale the features of each query over its documents, as `/rank` does."""
    if normalization != "query-minmax":
        return rows
    ends = np.cumsum(rows.sizes).tolist()
    queries = zip([0, *ends[:-1]], ends, strict=True)
    scaled = [_scaled(rows.X[low:high]) for low, high in queries]
    return QueryRows(rows.names, rows.sizes, rows.labels, _stacked(scaled))


def rows_with_ramps(rows: QueryRows, ramps: Sequence[tuple[int, float]]) -> QueryRows:
    """Add the ramps `max(0, x - knot)` of (column, knot), as `/rank` does; X is dense then."""
    if not ramps:
        return rows
    columns, knots = zip(*ramps, strict=True)
    found = Ramps(np.array(columns, np.int64), np.array(knots, np.float32))
    return replace(rows, X=with_ramps(rows.X, found))


def _scaled(X: Any) -> Any:
    if not is_sparse(X):
        return candidates.min_max(X)
    return sparse_matrix(SparseRows.of(candidates.min_max(X.toarray())))


def sparse_matrix(rows: SparseRows) -> Any:
    """Convert to scipy's `csr_array`, in float32."""
    from scipy.sparse import csr_array  # noqa: PLC0415  # only sparse rows need scipy

    return csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape, dtype=np.float32)
