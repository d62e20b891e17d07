"""The preconditioner of sparse rows: the diagonal of the Hessian, up to a factor, in one pass.

The diagonal of eq. 15 is `1 + 2C Σ_{SV pairs} (x_ik - x_jk)²`. The exact sums need the columns of X
(`warmstart.spreads`). Let `d_i = l_i⁺ + l_i⁻` be the number of pairs of document i. For every query
and every m, the sum is at most `2 Σ_i d_i (x_ik - m)²`. The least of these bounds has as m the mean
weighted by d. Then `Σ d_i (x_ik - m)² = Σ d_i x_ik² - (Σ d_i x_ik)² / Σ d_i`, which needs the rows
alone. A feature that is constant in a query gets 0 from it, as in the exact diagonal.
"""

import numpy as np

from app.ranking.arrays import Floats, Integers
from app.ranking.batch.judgements import Matrix
from app.ranking.lanes import Array, kernel


def weighted_spreads(X: Matrix, starts: Integers, d: Floats) -> Floats:
    """Return `Σ_q min_m Σ_{i ∈ q} d_i (x_ik - m)²` for every feature k of sparse rows.

    >>> from scipy.sparse import csr_array
    >>> weighted_spreads(csr_array([[1.0, 0.0], [1.0, 2.0]]), np.array([0, 2]), np.ones(2))
    array([0., 2.])
    """
    spreads, sums = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    add_spreads(X.indptr, X.indices, X.data, starts, d, spreads, sums)
    return spreads


@kernel
def add_spreads(
    row_starts: Array, columns: Array, values: Array, starts: Array, d: Array,
    spreads: Array, sums: Array,
) -> None:  # fmt: skip
    """Add the spread of each query to its features; `sums` is 0 before and after."""
    for q in range(starts.shape[0] - 1):
        total = 0.0
        for i in range(starts[q], starts[q + 1]):
            total += d[i]
            for t in range(row_starts[i], row_starts[i + 1]):
                spreads[columns[t]] += d[i] * values[t] * values[t]
                sums[columns[t]] += d[i] * values[t]
        for t in range(row_starts[starts[q]], row_starts[starts[q + 1]]):
            k = columns[t]
            if sums[k] != 0.0:
                spreads[k] = max(0.0, spreads[k] - sums[k] * sums[k] / total)
                sums[k] = 0.0
