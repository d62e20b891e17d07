"""Judged queries in the form of the trainers: one matrix of rows, query after query."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.ranking.arrays import Floats, Integers
from app.ranking.online import LabelledQuery
from app.ranking.sparse import SparseRows

#: Dense rows in float64, or scipy's `csr_array` of them.
Matrix: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Judgements:
    """Documents d = starts[q] … starts[q+1] - 1 belong to query q: `X[d]` with `labels[d]`.

    >>> two = Judgements.of([LabelledQuery(np.array([0.0, 2.0]), np.array([[1.0], [3.0]])),
    ...                      LabelledQuery(np.array([1.0, 1.0]), np.array([[5.0], [6.0]]))])
    >>> two.starts, two.n, len(two.with_pairs().labels)
    (array([0, 2, 4]), 1, 2)
    """

    X: Matrix
    labels: Floats
    starts: Integers

    def __post_init__(self) -> None:
        rows, starts = self.X.shape[0], self.starts
        if self.X.ndim != 2 or self.labels.shape != (rows,):
            raise ValueError(
                f"judgements: expected a label for each row of a matrix, got shapes {self.X.shape} "
                f"and {self.labels.shape}"
            )
        if len(starts) < 1 or starts[0] != 0 or starts[-1] != rows or (np.diff(starts) < 0).any():
            raise ValueError(f"starts: expected ascending numbers from 0 to {rows}")
        values = self.X.data if is_sparse(self.X) else self.X
        if not (np.isfinite(values).all() and np.isfinite(self.labels).all()):
            raise ValueError("judgements: expected finite features and labels")

    @classmethod
    def of(cls, queries: Sequence[LabelledQuery]) -> "Judgements":
        """Join queries, in float64; sparse if their rows are."""
        if not queries:
            raise ValueError("queries: expected at least one, got none")
        rows = [_matrix(query.documents) for query in queries]
        X: Matrix = _stacked(rows) if is_sparse(rows[0]) else np.concatenate(rows)
        labels = np.concatenate([query.labels for query in queries]).astype(np.float64)
        starts = np.cumsum([0, *(len(query.labels) for query in queries)])
        return cls(X, labels, starts)

    @property
    def n(self) -> int:
        """The number of features."""
        return int(self.X.shape[1])

    @property
    def queries(self) -> list[slice]:
        """The rows of each query."""
        ends = self.starts.tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def with_pairs(self) -> "Judgements":
        """Return the queries with two different labels; the others have no pairs."""
        kept = self.ordering()
        return self if kept.all() else self.some(kept)

    def ordering(self) -> NDArray[np.bool_]:
        """Return a mask of the queries with two different labels."""
        nonempty = np.diff(self.starts) > 0
        first = self.starts[:-1][nonempty]
        found = np.zeros(len(nonempty), np.bool_)
        if len(first):
            highest, lowest = (f.reduceat(self.labels, first) for f in (np.maximum, np.minimum))
            found[nonempty] = highest > lowest
        return found

    def some(self, kept: NDArray[np.bool_]) -> "Judgements":
        """Return the queries where `kept` is true."""
        sizes = np.diff(self.starts)
        rows = np.repeat(kept, sizes)
        return Judgements(self.X[rows], self.labels[rows], np.cumsum([0, *sizes[kept]]))


def is_sparse(X: Matrix) -> bool:
    """Whether these are sparse rows; the check does not import scipy, which takes 0.2 s."""
    return not isinstance(X, np.ndarray)


def csr(documents: Any) -> Matrix:
    """Convert `SparseRows` or scipy's sparse rows to scipy's `csr_array`, in float64."""
    from scipy.sparse import csr_array  # noqa: PLC0415  # only sparse rows need scipy

    parts = (documents.data, documents.indices, documents.indptr)
    return csr_array(parts, shape=documents.shape, dtype=np.float64)


def _stacked(rows: Sequence[Matrix]) -> Matrix:
    from scipy.sparse import vstack  # noqa: PLC0415  # only sparse rows need scipy

    return vstack(rows, format="csr")


def _matrix(documents: Any) -> Matrix:
    if isinstance(documents, SparseRows) or hasattr(documents, "indptr"):
        return csr(documents)
    return np.asarray(documents, np.float64)
