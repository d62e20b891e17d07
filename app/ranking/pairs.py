"""Labels and clicks → pairs: who is preferred to whom, in the order in which it is learnt.

Updates do not commute, so the order of the pairs is part of the contract.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.ranking.arrays import Floats, Integers, owned
from app.ranking.clicks import STRATEGIES
from app.ranking.lanes import kernel


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pair t says that row `preferred[t]` goes before row `other[t]`, with weight `weights[t]`."""

    preferred: Integers
    other: Integers
    weights: Floats

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> "Pairs":
        """Pairs of weight 1 from (preferred, other) tuples."""
        both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return cls(both[:, 0].copy(), both[:, 1].copy(), np.ones(len(both)))

    def __len__(self) -> int:
        return len(self.preferred)

    def listed(self) -> list[tuple[int, int]]:
        """The pairs as (preferred, other) tuples, without their weights."""
        return list(zip(self.preferred.tolist(), self.other.tolist(), strict=True))

    def some(self, these: NDArray[np.bool_]) -> "Pairs":
        """Those of them that are marked."""
        return Pairs(self.preferred[these], self.other[these], self.weights[these])

    def shuffled(self, rng: np.random.Generator) -> "Pairs":
        """The same pairs in an order drawn from `rng`."""
        order = rng.permutation(len(self))
        return Pairs(self.preferred[order], self.other[order], self.weights[order])


def from_labels(labels: Floats, order: Integers | None = None) -> Pairs:
    """Every pair (i, j) with `labels[i] > labels[j]`, row-major: by i, then by j.

    With `order` the rows are walked in that order.

    >>> from_labels(np.array([0.0, 2.0, 1.0])).listed()
    [(1, 0), (1, 2), (2, 0)]
    >>> from_labels(np.array([0.0, 2.0, 1.0]), np.array([2, 0, 1])).listed()
    [(2, 0), (1, 2), (1, 0)]
    """
    walk = np.arange(len(labels)) if order is None else owned(order, np.int64)
    return Pairs(*ordered_pairs(owned(labels, np.float64), walk))


@kernel
def ordered_pairs(labels: Any, order: Any) -> Any:
    """All (i, j) with a larger label at i, in this order, and as many ones: their weights.

    No matrix of all documents squared is made.
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
    """Pairs of positions (0 is the top) of a list of `shown` documents.

    `clicks` are positions in the order in which they were clicked; only `last-click-skip-above`
    looks at that order. A position clicked twice counts once, at its last click.

    >>> from_clicks([3, 1], shown=5).listed()
    [(1, 0), (3, 0), (3, 2)]
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy: expected one of {', '.join(STRATEGIES)}, got {strategy!r}")
    for position in clicks:
        if not 0 <= position < shown:
            raise ValueError(f"clicks: expected positions below {shown}, got {position}")
    return Pairs.of(STRATEGIES[strategy](clicks, shown))
