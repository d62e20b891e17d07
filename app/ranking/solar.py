"""SOLAR-I and SOLAR-II: linear rankers that learn from one pair after the other.

The input of a learner is a *gap*: `x = φ(preferred) - φ(other)`. The hinge loss is
`ℓ = max(0, 1 - w·x)`. If it is positive, the learner takes the step of its closed form.

One kernel call learns a batch, in order, with the same bits as single pairs, and returns the
`Steps` of the pairs. Learners are mutable and belong to one thread; the arrays that they return
are read-only. A gap that is not finite or is too large is refused: it changes nothing.
"""

from operator import index
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from app.ranking import covariance as cov
from app.ranking import kernels
from app.ranking.arrays import Bytes, Dense, Floats, Integers, aligned, as_floats, frozen, owned
from app.ranking.limits import LARGEST_WEIGHT, LEAST, MOST, MOST_FEATURES, MOST_FEATURES_FULL
from app.ranking.pairs import Pairs
from app.ranking.sparse import SparseRows, first_order_sparse, score_sparse, second_order_sparse
from app.ranking.tally import NO_PAIRS, Tally

#: The learners by name.
ALGORITHMS = ("solar-i", "solar-ii", "solar-ii-diagonal")
#: The paper's settings for every data set (section 5.2).
DEFAULT_C = 1e-5
DEFAULT_GAMMA = 1e4

#: A dense matrix, a `SparseRows`, or anything in CSR form such as scipy's `csr_array`.
Rows: TypeAlias = Any


#: The columns of `Steps`, which a learner writes.
StepColumns: TypeAlias = tuple[Floats, Bytes, Floats]


class Steps(NamedTuple):
    """For each pair of a batch: the hinge loss before the step, the outcome, and `x·Σx`.

    `squared_norm` is the largest `‖x‖²` of the batch. Learners other than SOLAR leave it and
    `variance` at 0.
    """

    loss: Floats
    outcome: Bytes
    variance: Floats
    squared_norm: float = 0.0

    def tally(self, before: Tally | None = None) -> Tally:
        """Count the outcomes and sum the squared losses, in order, after the pairs `before`."""
        passive, stepped, refused, *sums, largest = before or NO_PAIRS
        found = kernels.tally(self.loss, self.outcome, self.variance, *sums)
        counts = passive + found[0], stepped + found[1], refused + found[2]
        return Tally(*counts, found[3], found[4], max(largest, self.squared_norm))

    @property
    def stepped(self) -> int:
        """The number of pairs that changed the model (aggressive updates)."""
        return self.tally().stepped

    @property
    def refused(self) -> int:
        """The number of refused pairs, which changed nothing."""
        return self.tally().refused


class GapBatch(NamedTuple):
    """A validated stream of gaps, `preferred[p_t] - other[o_t]`.

    Dense matrices are flat, row after row. Parts that are learnt one after the other give the same
    bits as the whole stream.
    """

    preferred: Rows
    p: Integers
    other: Rows
    o: Integers
    omega: Floats

    def part(self, start: int, stop: int) -> "GapBatch":
        """Return the gaps from `start` up to, and without, `stop`."""
        some = slice(start, stop)
        return self._replace(p=self.p[some], o=self.o[some], omega=self.omega[some])


class LinearLearner:
    """The base of all learners: weights, scores and the validation of a batch."""

    def __init__(self, n: int, weights: Floats | None = None) -> None:
        n = index(n)
        if not 1 <= n <= MOST_FEATURES:
            raise ValueError(f"n: expected 1 to {MOST_FEATURES} features, got {n}")
        self.n = n
        self._w = aligned(n)
        if weights is not None:
            self._w[:n] = _bounded(weights, (n,), "weights", LARGEST_WEIGHT)

    @property
    def weights(self) -> Floats:
        """A read-only copy of `w`."""
        return frozen(self._w[: self.n].copy())

    @property
    def trace(self) -> float:
        """The trace of Σ; 0 for a learner without one. Not bit-equal on all CPUs."""
        return 0.0

    def forget(self, kept: float, initial: Floats) -> None:
        """`Σ ← kept·Σ + (1 - kept)·diag(min(Σ₀, 2Σ))`; `initial` is the diagonal of Σ₀.

        A variance returns to its initial value, but at most doubles: so features of any scale
        forget at the same rate. Without Σ: nothing.
        """

    def score(self, documents: Rows) -> Floats:
        """Return `w·φ` of each document, in the order of the rows."""
        rows = as_rows(documents, self.n)
        scores = np.empty(rows.shape[0])
        if isinstance(rows, SparseRows):
            score_sparse(self._w, self.n, rows.indptr, rows.indices, rows.data, scores)
        else:
            kernels.score(self._w, self.n, rows.reshape(-1), scores)
        return scores

    def learn(self, gaps: Rows, weights: Floats | None = None) -> Steps:
        """Learn from gaps, row by row; `weights` holds `ω > 0` of each."""
        rows = as_rows(gaps, self.n)
        count = rows.shape[0]
        omega = np.ones(count) if weights is None else _omega(weights, count)
        given: Rows = rows
        nothing: Rows = SparseRows.empty_row(self.n)
        if not isinstance(rows, SparseRows):
            given, nothing = rows.reshape(-1), np.zeros(self.n)
        every_row, first = np.arange(count), np.zeros(count, np.int64)
        return self.learn_batch(GapBatch(given, every_row, nothing, first, omega))

    def learn_pairs(self, documents: Rows, pairs: Pairs) -> Steps:
        """Learn from the pairs of one ranking, in their order."""
        return self.learn_batch(self.pair_batch(documents, pairs))

    def pair_batch(self, documents: Rows, pairs: Pairs) -> GapBatch:
        """Return the gaps of the pairs of one ranking; ValueError if one is invalid."""
        rows = as_rows(documents, self.n)
        if pairs.preferred.dtype.kind not in "iu" or pairs.other.dtype.kind not in "iu":
            raise ValueError("pairs: expected integer rows")
        p, o = owned(pairs.preferred, np.int64), owned(pairs.other, np.int64)
        if p.shape != o.shape or p.ndim != 1:
            raise ValueError(
                f"pairs: expected equal numbers of other and preferred, got {o.size}, {p.size}"
            )
        if not (kernels.inside(p, rows.shape[0]) and kernels.inside(o, rows.shape[0])):
            raise ValueError(f"pairs: expected rows from 0, below {rows.shape[0]}")
        flat = rows if isinstance(rows, SparseRows) else rows.reshape(-1)
        return GapBatch(flat, p, flat, o, _omega(pairs.weights, p.size))

    def learn_batch(self, batch: GapBatch) -> Steps:
        """Learn from validated gaps, in their order."""
        count = batch.p.size
        columns = np.empty(count), np.empty(count, np.uint8), np.zeros(count)
        if isinstance(batch.preferred, SparseRows):
            largest = self._learn_sparse(batch, columns)
        else:
            largest = self._learn_dense(batch, columns)
        return Steps(*columns, largest or 0.0)

    def _learn_dense(self, batch: GapBatch, columns: StepColumns) -> float | None:
        """Write the columns of the steps; return the largest `‖x‖²`, if it is known."""
        raise NotImplementedError

    def _learn_sparse(self, batch: GapBatch, columns: StepColumns) -> float | None:  # noqa: ARG002
        raise ValueError(f"rows: expected dense rows for {type(self).__name__}, got sparse rows")


class SolarI(LinearLearner):
    """First order, passive-aggressive: `λ = ℓ/(‖x‖² + 1/(2C))`, `w ← w + λx` (eqs. 5-6).

    >>> learner = SolarI(n=2, C=0.5)
    >>> learner.learn(np.array([[1.0, 0.0], [1.0, 0.0]])).loss
    array([1. , 0.5])
    >>> learner.weights
    array([0.75, 0.  ])
    """

    def __init__(self, n: int, C: float = DEFAULT_C, *, weights: Floats | None = None) -> None:
        super().__init__(n, weights)
        self._C = between(C, "C")
        self._x = aligned(n) if n <= MOST_FEATURES_FULL else None

    def _learn_dense(self, batch: GapBatch, columns: StepColumns) -> float | None:
        self._x = aligned(self.n) if self._x is None else self._x
        largest: float = kernels.first_order(self._w, self.n, self._C, *batch, self._x, *columns)
        return largest

    def _learn_sparse(self, batch: GapBatch, columns: StepColumns) -> float | None:
        largest: float = first_order_sparse(self._w, self.n, self._C, *_sparse(batch), *columns)
        return largest


class SolarII(LinearLearner):
    """Second order, full covariance: `s = Σx`, `β = x·s + γ`, `w ← w + (ℓ/β)s`, `Σ ← Σ - s sᵀ/β`.

    Eqs. 8-9, for `ℓ > 0`. `covariance` is the packed lower triangle, row by row. A learner with the
    `weights` and `covariance` of another learner continues with the same bits.

    >>> learner = SolarII(n=2, gamma=1.0)
    >>> steps = learner.learn(np.array([[1.0, 0.0]]))
    >>> learner.weights, learner.covariance
    (array([0.5, 0. ]), array([0.5, 0. , 1. ]))
    """

    def __init__(
        self,
        n: int,
        gamma: float = DEFAULT_GAMMA,
        *,
        weights: Floats | None = None,
        covariance: Floats | None = None,
    ) -> None:
        if index(n) > MOST_FEATURES_FULL:
            raise ValueError(
                f"n: expected at most {MOST_FEATURES_FULL} features with a full covariance, "
                f"got {n}; a diagonal covariance allows {MOST_FEATURES}"
            )
        super().__init__(n, weights)
        self._gamma = between(gamma, "gamma")
        triangle = cov.identity(n) if covariance is None else covariance
        triangle = _bounded(triangle, (cov.triangle_size(n),), "covariance", MOST)
        cov.check_covariance(triangle, n)
        self._panels = cov.unpack(triangle, n)
        self._diagonal = aligned(n)
        self._diagonal[:n] = triangle[cov.diagonal(n)]
        self._u, self._x, self._s = aligned(n), aligned(n), aligned(n)

    @property
    def trace(self) -> float:
        """The trace of Σ."""
        return float(self._diagonal.sum())

    @property
    def covariance(self) -> Floats:
        """A read-only copy of Σ, as its packed lower triangle."""
        kernels.settle(self._panels, self._u)
        return frozen(cov.pack(self._panels, self.n))

    def forget(self, kept: float, initial: Floats) -> None:
        """`Σ ← kept·Σ + (1 - kept)·diag(min(Σ₀, 2Σ))`; `initial` is the diagonal of Σ₀."""
        kernels.settle(self._panels, self._u)
        self._panels *= kept
        back = (1.0 - kept) * np.minimum(initial, 2.0 * self._diagonal[: self.n])
        self._panels[cov.panel_diagonal(self.n)] += back
        self._diagonal[: self.n] = kept * self._diagonal[: self.n] + back

    def _learn_dense(self, batch: GapBatch, columns: StepColumns) -> float | None:
        largest: float = kernels.second_order(
            self._w,
            self.n,
            self._gamma,
            self._panels,
            self._diagonal,
            self._u,
            *batch,
            self._x,
            self._s,
            *columns,
        )
        return largest


class SolarIIDiagonal(LinearLearner):
    """SOLAR-II with a diagonal Σ, for many features: `σ_k ← σ_k - (σ_k x_k)²/β`.

    An approximation that ignores correlations between features. `variances` is the diagonal.

    >>> learner = SolarIIDiagonal(n=2, gamma=1.0)
    >>> steps = learner.learn(np.array([[1.0, 0.0]]))
    >>> learner.weights, learner.variances
    (array([0.5, 0. ]), array([0.5, 1. ]))
    """

    def __init__(
        self,
        n: int,
        gamma: float = DEFAULT_GAMMA,
        *,
        weights: Floats | None = None,
        variances: Floats | None = None,
    ) -> None:
        super().__init__(n, weights)
        self._gamma = between(gamma, "gamma")
        self._sigma = aligned(n)
        self._sigma[:n] = 1.0 if variances is None else _bounded(variances, (n,), "variances", MOST)
        if not (self._sigma[:n] > 0.0).all():
            raise ValueError("variances: expected positive numbers")
        self._scratch: tuple[Floats, Floats] | None = None

    @property
    def trace(self) -> float:
        """The trace of Σ."""
        return float(self._sigma.sum())

    @property
    def variances(self) -> Floats:
        """A read-only copy of the diagonal of Σ."""
        return frozen(self._sigma[: self.n].copy())

    def forget(self, kept: float, initial: Floats) -> None:
        """`σ ← kept·σ + (1 - kept)·min(σ₀, 2σ)`; `initial` is σ₀."""
        sigma = self._sigma[: self.n]
        sigma[:] = kept * sigma + (1.0 - kept) * np.minimum(initial, 2.0 * sigma)

    def _learn_dense(self, batch: GapBatch, columns: StepColumns) -> float | None:
        self._scratch = self._scratch or (aligned(self.n), aligned(self.n))
        largest: float = kernels.second_order_diagonal(
            self._w, self.n, self._gamma, self._sigma, *batch, *self._scratch, *columns
        )
        return largest

    def _learn_sparse(self, batch: GapBatch, columns: StepColumns) -> float | None:
        largest: float = second_order_sparse(
            self._w, self.n, self._gamma, self._sigma, *_sparse(batch), *columns
        )
        return largest


def as_rows(rows: Rows, n: int) -> Dense | SparseRows:
    """Return rows for a kernel: n columns, contiguous, float32 or float64; else ValueError."""
    checked = SparseRows.checked(rows) if hasattr(rows, "indptr") else as_floats(rows)
    if len(checked.shape) != 2:
        raise ValueError(f"rows: expected two dimensions, got {len(checked.shape)}")
    if checked.shape[1] != n:
        raise ValueError(f"rows: expected {n} features, got {checked.shape[1]}")
    return checked


def _sparse(batch: GapBatch) -> tuple[Any, ...]:
    a, b = batch.preferred, batch.other
    return (
        *(a.indptr, a.indices, a.data, batch.p),
        *(b.indptr, b.indices, b.data, batch.o),
        batch.omega,
    )


def _omega(weights: Floats, count: int) -> Floats:
    omega = owned(weights, np.float64)
    if omega.shape != (count,):
        raise ValueError(f"weights: expected {count} values, got shape {omega.shape}")
    if not kernels.fitting(omega, LEAST, MOST):
        raise ValueError(f"weights: expected values from {LEAST} to {MOST}")
    return omega


def _bounded(values: Floats, shape: tuple[int, ...], name: str, most: float) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if not (np.abs(array) <= most).all():
        raise ValueError(f"{name}: expected numbers from {-most} to {most}")
    return array + 0.0  # turns -0.0 into 0.0: sums never give -0.0, so equal states have equal bits


def between(value: float, name: str) -> float:
    """Return a hyper-parameter within its bounds; else raise ValueError."""
    if not LEAST <= value <= MOST:
        raise ValueError(f"{name}: expected a value from {LEAST} to {MOST}, got {value}")
    return float(value)
