"""Sparse rows, for SOLAR-I and the diagonal SOLAR-II with up to ten million features.

The steps are those of `kernels.py`, on the non-zero features of a gap. The nine partial sums are
the same (zeros add nothing), so a sparse row and the equal dense row give the same bits.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from app.ranking.arrays import Dense, Integers, as_floats, owned
from app.ranking.kernels import REFUSED, STEPPED, judge, larger, leaves_enough
from app.ranking.lanes import Array, inlined, kernel


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Rows in CSR form, with the attribute names of scipy's `csr_array`, which works too.

    Row d has the values `data[indptr[d]:indptr[d+1]]` in the ascending columns
    `indices[indptr[d]:indptr[d+1]]`.
    """

    shape: tuple[int, int]
    indptr: Integers
    indices: Integers
    data: Dense

    @classmethod
    def checked(cls, rows: Any) -> "SparseRows":
        """Return a valid CSR matrix as rows for a kernel; else raise ValueError."""
        layout = getattr(rows, "format", "csr")
        if layout != "csr":
            raise ValueError(f"sparse rows: expected CSR form, got {layout}")
        indptr, indices = owned(rows.indptr, np.int64), owned(rows.indices, np.int64)
        data = as_floats(rows.data)
        count, columns = rows.shape
        if indptr.shape != (count + 1,) or indices.shape != data.shape or data.ndim != 1:
            raise ValueError(
                f"sparse rows: expected {count + 1} row starts and one column per value, "
                f"got {indptr.size} starts, {indices.size} columns, {data.size} values"
            )
        if not well_formed(indptr, indices, columns):
            raise ValueError(
                f"sparse rows: expected row starts from 0 to {indices.size} and, in each row, "
                f"ascending columns below {columns}"
            )
        return cls((count, columns), indptr, indices, data)

    @classmethod
    def of(cls, dense: Dense) -> "SparseRows":
        """Return dense rows in sparse form.

        >>> SparseRows.of(np.array([[0.0, 2.0], [0.0, 0.0]], np.float32)).indptr
        array([0, 1, 1])
        """
        rows, columns = np.nonzero(dense)
        starts = np.cumsum([0, *np.bincount(rows, minlength=len(dense))])
        return cls((dense.shape[0], dense.shape[1]), starts, columns, dense[rows, columns])

    @classmethod
    def empty_row(cls, columns: int) -> "SparseRows":
        """Return one row of zeros: the `other` of a stream of gaps."""
        none = np.zeros(0, np.int64)
        return cls((1, columns), np.zeros(2, np.int64), none, np.zeros(0))


@kernel
def well_formed(indptr: Array, indices: Array, columns: int) -> bool:
    """Whether row starts and columns are in bounds and ascend."""
    if indptr[0] != 0 or indptr[-1] != indices.shape[0]:
        return False
    for d in range(indptr.shape[0] - 1):
        if indptr[d] > indptr[d + 1] or indptr[d + 1] > indices.shape[0]:
            return False
        last = -1
        for at in range(indptr[d], indptr[d + 1]):
            if not last < indices[at] < columns:
                return False
            last = indices[at]
    return True


@inlined
def sum_of(k: int, n: int) -> int:
    """Return the index of feature k's partial sum in a row of n features."""
    return k & 7 if k < n - n % 4 else 8


@inlined
def sum_up(sums: Array) -> Any:
    """Add the partial sums in the order of the dense kernels, and reset them."""
    even = (sums[0] + sums[4]) + (sums[2] + sums[6])
    odd = (sums[1] + sums[5]) + (sums[3] + sums[7])
    rest = sums[8]
    for k in range(9):
        sums[k] = 0.0
    return (even + odd) + rest


@kernel
def score_sparse(
    w: Array, n: int, indptr: Array, indices: Array, data: Array, scores: Array
) -> None:
    """`scores[d] = w · documents[d]` for sparse rows."""
    sums = np.zeros(9)
    for d in range(scores.shape[0]):
        for at in range(indptr[d], indptr[d + 1]):
            k = indices[at]
            sums[sum_of(k, n)] += w[k] * np.float64(data[at])
        scores[d] = sum_up(sums)


@inlined
def merge_rows(
    columns: Array, values: Array, at: int, end: int, columns2: Array, values2: Array,
    at2: int, end2: int, index: Array, x: Array,
) -> int:  # fmt: skip
    """Write the non-zero features of the difference of two rows, ascending; return how many."""
    count = 0
    while at < end or at2 < end2:
        k = columns[at] if at < end else columns2[at2]
        if at2 < end2 and columns2[at2] < k:
            k = columns2[at2]
        value = 0.0
        if at < end and columns[at] == k:
            value = np.float64(values[at])
            at += 1
        if at2 < end2 and columns2[at2] == k:
            value -= np.float64(values2[at2])
            at2 += 1
        if value != 0.0:  # also true for NaN
            index[count], x[count] = k, value
            count += 1
    return count


@inlined
def longest(indptr: Array) -> int:
    """Return the largest number of non-zero features in a row."""
    most = 0
    for d in range(indptr.shape[0] - 1):
        most = max(most, indptr[d + 1] - indptr[d])
    return most


@inlined
def gap_sums(
    w: Array, n: int, index: Array, x: Array, count: int, dots: Array, norms: Array
) -> Any:
    """Return `(w·x, x·x)` of a sparse gap."""
    for at in range(count):
        k, value = index[at], x[at]
        dots[sum_of(k, n)] += w[k] * value
        norms[sum_of(k, n)] += value * value
    return sum_up(dots), sum_up(norms)


@kernel
def first_order_sparse(
    w: Array,
    n: int,
    C: float,
    indptr: Array,
    indices: Array,
    data: Array,
    p: Array,
    indptr2: Array,
    indices2: Array,
    data2: Array,
    o: Array,
    omega: Array,
    loss: Array,
    outcome: Array,
    variance: Array,
) -> float:
    """SOLAR-I (eqs. 5-6) on sparse rows."""
    room = longest(indptr) + longest(indptr2)
    index, x = np.empty(room, np.int64), np.empty(room)
    dots, norms, largest = np.zeros(9), np.zeros(9), 0.0
    for t in range(p.shape[0]):
        a, b = p[t], o[t]
        count = merge_rows(
            indices, data, indptr[a], indptr[a + 1],
            indices2, data2, indptr2[b], indptr2[b + 1], index, x,
        )  # fmt: skip
        margin, squared_norm = gap_sums(w, n, index, x, count, dots, norms)
        largest = larger(largest, squared_norm)
        loss[t], outcome[t] = judge(margin, squared_norm)
        if outcome[t] == STEPPED:
            variance[t] = squared_norm
            step = loss[t] / (squared_norm + 1.0 / (2.0 * (omega[t] * C)))
            for at in range(count):
                w[index[at]] += step * x[at]
    return largest


@kernel
def second_order_sparse(
    w: Array,
    n: int,
    gamma: float,
    sigma: Array,
    indptr: Array,
    indices: Array,
    data: Array,
    p: Array,
    indptr2: Array,
    indices2: Array,
    data2: Array,
    o: Array,
    omega: Array,
    loss: Array,
    outcome: Array,
    variance: Array,
) -> float:
    """SOLAR-II with a diagonal Σ on sparse rows."""
    room = longest(indptr) + longest(indptr2)
    index, x, s = np.empty(room, np.int64), np.empty(room), np.empty(room)
    dots, norms, largest = np.zeros(9), np.zeros(9), 0.0
    for t in range(p.shape[0]):
        a, b = p[t], o[t]
        count = merge_rows(
            indices, data, indptr[a], indptr[a + 1],
            indices2, data2, indptr2[b], indptr2[b + 1], index, x,
        )  # fmt: skip
        margin, squared_norm = gap_sums(w, n, index, x, count, dots, norms)
        largest = larger(largest, squared_norm)
        loss[t], outcome[t] = judge(margin, squared_norm)
        if outcome[t] != STEPPED:
            continue
        for at in range(count):
            s[at] = sigma[index[at]] * x[at]
            dots[index[at] & 7] += x[at] * s[at]  # dense x and s are padded: no ninth sum
        chi, noise = sum_up(dots), gamma / omega[t]
        variance[t] = chi
        if not leaves_enough(chi, noise, chi):
            loss[t], outcome[t] = 0.0, REFUSED
            continue
        alpha, shrink = loss[t] / (chi + noise), 1.0 / sqrt(chi + noise)
        for at in range(count):
            w[index[at]] += alpha * s[at]
            taken = shrink * s[at]
            sigma[index[at]] -= taken * taken
    return largest
