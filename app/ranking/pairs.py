"""Pairs of documents from labels and clicks, in the order in which they are learnt.

Updates do not commute, so the order of the pairs is part of the contract.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.ranking.arrays import Floats, Integers, owned
from app.ranking.clicks import CLASSICAL_STRATEGIES
from app.ranking.lanes import kernel


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pair t: row `preferred[t]` ranks above row `other[t]`, with weight `weights[t]`.

    `before[t]` is the weight that earlier feedback has already given the pair; None: 0 for all.
    """

    preferred: Integers
    other: Integers
    weights: Floats
    before: Floats | None = None

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> "Pairs":
        """Build pairs of weight 1 from (preferred, other) tuples."""
        both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return cls(both[:, 0].copy(), both[:, 1].copy(), np.ones(len(both)))

    def __len__(self) -> int:
        return len(self.preferred)

    def listed(self) -> list[tuple[int, int]]:
        """Return the pairs as (preferred, other) tuples, without weights."""
        return list(zip(self.preferred.tolist(), self.other.tolist(), strict=True))

    @property
    def in_all(self) -> Floats:
        """The weight of each pair with what earlier feedback has given it."""
        return self.weights if self.before is None else self.weights + self.before

    def some(self, these: NDArray[np.bool_] | Integers | slice) -> "Pairs":
        """Return the pairs where `these` is true, or those at these places, in this order."""
        before = None if self.before is None else self.before[these]
        return Pairs(self.preferred[these], self.other[these], self.weights[these], before)

    def shuffled(self, rng: np.random.Generator) -> "Pairs":
        """Return the pairs in an order drawn from `rng`."""
        return self.some(rng.permutation(len(self)))


def from_labels(labels: Floats, order: Integers | None = None) -> Pairs:
    """Return every pair (i, j) with `labels[i] > labels[j]`, by i, then by j.

    `order`, if given, is the order of i and of j.

    >>> from_labels(np.array([0.0, 2.0, 1.0])).listed()
    [(1, 0), (1, 2), (2, 0)]
    >>> from_labels(np.array([0.0, 2.0, 1.0]), np.array([2, 0, 1])).listed()
    [(2, 0), (1, 2), (1, 0)]
    """
    walk = np.arange(len(labels)) if order is None else owned(order, np.int64)
    return Pairs(*ordered_pairs(owned(labels, np.float64), walk))


@kernel
def ordered_pairs(labels: Any, order: Any) -> Any:
    """Return all (i, j) with a larger label at i, in this order, and their weights of 1.

    Memory is proportional to the number of pairs, not to the squared number of documents.
    """
    count = 0
    for higher in labels:
        for lower in labels:
            count += higher > lower
    preferred, other = np.empty(count, np.int64), np.empty(count, np.int64)
    count = 0
    for i in order:
        for j in order:
            if labels[i] > labels[j]:
                preferred[count], other[count] = i, j
                count += 1
    return preferred, other, np.ones(count)


def from_clicks(clicks: Sequence[int], shown: int, strategy: str = "click-skip-above") -> Pairs:
    """Return pairs of positions (0 is the top) in a ranking of `shown` documents.

    `clicks` are positions in the order of the clicks; only `last-click-skip-above` uses this
    order. A position clicked twice counts once, at its last click.

    >>> from_clicks([3, 1], shown=5).listed()
    [(1, 0), (3, 0), (3, 2)]
    """
    if strategy not in CLASSICAL_STRATEGIES:
        raise ValueError(
            f"strategy: expected one of {', '.join(CLASSICAL_STRATEGIES)}, got {strategy!r}"
        )
    for position in clicks:
        if not 0 <= position < shown:
            raise ValueError(f"clicks: expected positions below {shown}, got {position}")
    return Pairs.of(CLASSICAL_STRATEGIES[strategy](clicks, shown))
