"""NDCG and MAP of a ranking as served (eqs. 1-2).

Every function takes `labels`, the relevance (0 to 30) of the documents in the order shown. A
ranking without a relevant document scores 0 and still counts. Gains and discounts come from tables
and exactly rounded operations, never from the C library's logarithm or power, so that a measure
has the same bits on any CPU.
"""

from decimal import Context, Decimal
from functools import cache
from itertools import accumulate
from math import sqrt
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from app.ranking.arrays import Floats, Integers, frozen, owned
from app.ranking.lanes import kernel
from app.ranking.limits import LARGEST_LABEL

#: `standard` is the paper's formula, 1/log2(1 + r). `letor` is 1/log2(max(2, r)), the formula of
#: LETOR's evaluation script and of the paper's tables.
Discount = Literal["standard", "letor"]
DISCOUNTS: tuple[Discount, ...] = get_args(Discount)


class Quality(NamedTuple):
    """All measures of one ranking, or their means over many."""

    ndcg_1: float
    ndcg_5: float
    ndcg_10: float
    ndcg: float
    map: float


MEASURE_NAMES = ("ndcg@1", "ndcg@5", "ndcg@10", "ndcg", "map")


def quality(labels: Floats, discount: Discount = "standard") -> Quality:
    """Return all measures of one ranking.

    >>> quality(np.array([0.0, 1.0]))
    Quality(ndcg_1=0.0, ndcg_5=0.6309297535714574, ndcg_10=0.6309297535714574, \
ndcg=0.6309297535714574, map=0.5)
    """
    found = np.empty(len(MEASURE_NAMES))
    measure_into(found, labels, discount)
    return Quality(*found.tolist())


def measure_into(
    found: Floats, labels: Floats, discount: Discount = "standard", order: Integers | None = None
) -> None:
    """Write all measures into `found`; `order`, if given, is the ranking of the documents."""
    labels = _checked_shape(labels)
    shown = np.arange(len(labels)) if order is None else owned(order, np.int64)
    if not measure(labels, shown, discounts(discount, len(labels)), found):
        raise _out_of_range(labels)


def measure_queries(
    labels: Floats, starts: Integers, order: Integers, discount: Discount = "standard"
) -> Floats:
    """Return all measures of many rankings, one per row, with the bits of `quality`.

    `order[starts[q] : starts[q + 1]]` has the documents of query q, the best first.

    >>> measure_queries(np.array([0.0, 1.0]), np.array([0, 2]), np.array([1, 0]))
    array([[1., 1., 1., 1., 1.]])
    """
    labels, starts = owned(labels, np.float64), owned(starts, np.int64)
    found = np.zeros((len(starts) - 1, len(MEASURE_NAMES)))
    table = discounts(discount, int(np.diff(starts).max(initial=1)))
    bad = measure_each(labels, starts, owned(order, np.int64), table, found)
    if bad >= 0:
        raise _out_of_range(labels[starts[bad] : starts[bad + 1]])
    return found


def ndcg(labels: Floats, k: int | None = None, discount: Discount = "standard") -> float:
    """Return `Σ_{r ≤ k} G(l_r) D(r) / ideal@k`, `G(l) = 2^l - 1` (eq. 1); all ranks if k is None.

    >>> ndcg(np.array([2.0, 0.0, 1.0]))
    0.9639404333166534
    """
    labels = _checked(labels)
    depth = len(labels) if k is None else min(k, len(labels))
    if depth < 1:
        raise ValueError(f"k: expected at least 1, got {k}")
    table = discounts(discount, depth)
    best = np.sort(labels)[::-1].copy()
    ideal = discounted(best, table, depth)
    return discounted(labels, table, depth) / ideal if ideal > 0.0 else 0.0


def average_precision(labels: Floats) -> float:
    """Return the mean precision at the ranks of the relevant documents (label ≥ 1; eq. 2).

    >>> average_precision(np.array([1.0, 0.0, 2.0]))
    0.8333333333333333
    """
    return quality(labels).map


def discounts(name: Discount, size: int) -> Floats:
    """Return `D(r)` for r = 1 ... at least `size`, each the float64 nearest to the true value.

    >>> discounts("standard", 3)[:3]
    array([1.        , 0.63092975, 0.5       ])
    >>> discounts("letor", 3)[:3]
    array([1.        , 1.        , 0.63092975])
    """
    if name not in DISCOUNTS:
        raise ValueError(f"discount: expected one of {', '.join(DISCOUNTS)}, got {name!r}")
    return _table(name, max(64, 1 << (size - 1).bit_length()))


@cache
def _table(name: Discount, size: int) -> Floats:
    if name == "letor":
        return frozen(np.concatenate([[1.0], _table("standard", size)[: size - 1]]))
    logs = _logs(size + 1)
    precise = Context(prec=40)
    return frozen(
        np.array([float(precise.divide(logs[2], logs[1 + r])) for r in range(1, size + 1)])
    )


def _logs(most: int) -> list[Decimal]:
    """Return `ln m` for m = 0 ... most (0 and 1 unused) to 40 digits; only primes need `ln`."""
    precise = Context(prec=40)
    factor = [0] * (most + 1)
    logs = [Decimal(0)] * (most + 1)
    for m in range(2, most + 1):
        if not factor[m]:
            for multiple in range(m, most + 1, m):
                factor[multiple] = m
        rest = m // factor[m]
        prime = precise.ln(Decimal(m)) if rest == 1 else logs[factor[m]]
        logs[m] = precise.add(prime, logs[rest])
    return logs


#: 2^(1/2), 2^(1/4), 2^(1/8), ...: square roots are exactly rounded on every CPU, powers are not.
_ROOTS = np.array(list(accumulate(range(52), lambda root, _: sqrt(root), initial=sqrt(2.0)))[:52])
_POWERS = 2.0 ** np.arange(int(LARGEST_LABEL) + 1)


@kernel
def gain(label: float) -> Any:
    """Return `2^label - 1`: exact for whole labels, a product of roots of 2 for others."""
    whole = int(label)
    power, rest = _POWERS[whole], label - whole
    for place in range(52):
        if rest == 0.0:
            break
        rest *= 2.0
        if rest >= 1.0:
            power *= _ROOTS[place]
            rest -= 1.0
    return power - 1.0


@kernel
def discounted(labels: Any, table: Any, depth: int) -> Any:
    """Return `Σ_{r ≤ depth} G(l_r) D(r)`, added from the top down."""
    found = 0.0
    for rank in range(depth):
        found += gain(labels[rank]) * table[rank]
    return found


@kernel
def labels_within(labels: Any, most: float) -> bool:
    """Whether every label is in 0 ... most."""
    for label in labels:  # noqa: SIM110  # numba compiles loops, not generators
        if not 0.0 <= label <= most:
            return False
    return True


@kernel
def measure(labels: Any, order: Any, table: Any, found: Any) -> bool:
    """Write NDCG@1, @5, @10, NDCG and average precision into `found`; False for a bad label."""
    if not labels_within(labels, LARGEST_LABEL):
        return False
    best = np.sort(labels)[::-1]
    gained = ideal = precision = 0.0
    relevant = 0
    for at in range(5):
        found[at] = 0.0
    for rank in range(labels.shape[0]):
        label = labels[order[rank]]
        gained += gain(label) * table[rank]
        ideal += gain(best[rank]) * table[rank]
        if label >= 1.0:
            relevant += 1
            precision += relevant / (rank + 1)
        share = gained / ideal if ideal > 0.0 else 0.0
        if rank < 1:
            found[0] = share
        if rank < 5:
            found[1] = share
        if rank < 10:
            found[2] = share
        found[3] = share
    if relevant > 0:
        found[4] = precision / relevant
    return True


@kernel
def measure_each(labels: Any, starts: Any, order: Any, table: Any, found: Any) -> int:
    """Measure every query into its row; return the first query with a bad label, or -1."""
    for q in range(starts.shape[0] - 1):
        a, b = starts[q], starts[q + 1]
        if not measure(labels[a:b], order[a:b] - a, table, found[q]):
            return q
    return -1


def _checked(labels: Floats) -> Floats:
    labels = _checked_shape(labels)
    if not labels_within(labels, LARGEST_LABEL):
        raise _out_of_range(labels)
    return labels


def _checked_shape(labels: Floats) -> Floats:
    labels = owned(labels, np.float64)
    if labels.ndim != 1 or len(labels) == 0:
        raise ValueError(f"labels: expected one label per document, got shape {labels.shape}")
    return labels


def _out_of_range(labels: Floats) -> ValueError:
    return ValueError(f"labels: expected numbers from 0 to {LARGEST_LABEL:g}, got {labels}")
