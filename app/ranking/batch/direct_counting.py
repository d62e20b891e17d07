"""Sums over all pairs of a query by direct counting, O(lk): PRSVM+ (Lee & Lin 2014, section 3.1).

PRSVM+ splits the pairs by the label r of the less relevant document: those with label r against
those with a higher one. One cell per r holds the sum of the second group. A pass over the documents
by ascending score adds each document to the cells of all lower labels, as soon as its pairs are
inside; the cell of a document's own label is then its sum. A second pass, by descending score, does
the same for the other side. Each document enters up to k cells, so the passes take O(lk) steps,
where the order tree takes O(l log k).

`DirectCounting` has the methods of `OrderTree` that the objectives need, and the same results. The
trainers use the tree. `python -m benchmarks newton` compares both. PRSVM+ is

    newton.minimise(SquaredHinge(X, DirectCounting.of(labels, starts), C))
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from app.ranking.arrays import Floats, Integers, owned
from app.ranking.batch.levels import sort
from app.ranking.batch.ordertree import Indices, OrderTree
from app.ranking.lanes import Array, kernel


@dataclass(frozen=True, slots=True)
class DirectCounting:
    """The part that depends on the labels alone; `levels[d]` numbers the labels of a query from 0.

    >>> counting = DirectCounting.of(np.array([2.0, 0.0, 1.0]), np.array([0, 3]))
    >>> counting.pairs
    3
    >>> inside = counting.at(np.array([0.5, 0.0, 3.0]))
    >>> inside.counts()
    (array([0., 1., 1.]), array([2., 0., 0.]))
    >>> inside.sums(np.array([5.0, 7.0, 11.0]))
    (array([0., 5., 5.]), array([18.,  0.,  0.]))
    """

    tree: OrderTree
    levels: Indices

    @classmethod
    def of(cls, labels: Floats, starts: Integers) -> "DirectCounting":
        """Number the labels; query q has those from `starts[q]` to `starts[q+1]`."""
        tree = OrderTree.of(labels, starts)
        number = np.repeat(np.arange(len(tree.label_starts) - 1), np.diff(tree.label_starts))
        levels = np.empty(len(labels), np.int32)
        levels[tree.by_label] = number - np.repeat(tree.first[:-1], np.diff(tree.starts))
        return cls(tree, levels)

    @property
    def starts(self) -> Integers:
        """The first document of each query."""
        return self.tree.starts

    @property
    def pairs(self) -> int:
        """The number of pairs of all queries."""
        return self.tree.pairs

    def centred(self, u: Floats) -> Floats:
        """Return u relative to the first document of each query."""
        return self.tree.centred(u)

    def at(
        self, scores: Floats, margin: float = 1.0, near: Any = None  # noqa: ARG002  # for trees
    ) -> "CountedInside":  # fmt: skip
        """Sort by the scores, and find the pairs with `s_i - s_j < margin`."""
        keys, order = scores.astype(np.float64), np.arange(len(scores), dtype=np.int32)
        ends, begins = np.empty_like(order), np.empty_like(order)
        find_windows(keys, margin, self.starts, order, ends, begins)
        return CountedInside(self, order, ends, begins)


@dataclass(frozen=True, slots=True)
class CountedInside:
    """The pairs inside, for given scores; `order` has the documents by query and score.

    The document at t is inside with the more relevant documents before `ends[t]`, and with the less
    relevant ones from `begins[t]`.
    """

    counting: DirectCounting
    order: Indices
    ends: Indices
    begins: Indices

    def sums(self, u: Floats) -> tuple[Floats, Floats]:
        """Return `γ_i⁺ = Σ_{j ∈ SV_i⁺} u_j` and `γ_i⁻ = Σ_{j ∈ SV_i⁻} u_j` for all documents i."""
        above, below = np.empty(len(u)), np.empty(len(u))
        tree, levels = self.counting.tree, self.counting.levels
        add_cells(
            owned(u, np.float64), tree.starts, tree.first, levels,
            self.order, self.ends, self.begins, above, below,
        )  # fmt: skip
        return above, below

    def counts(self) -> tuple[Floats, Floats]:
        """Return `l_i⁺` and `l_i⁻`: the numbers of preferred and of other documents inside."""
        return self.sums(np.ones(len(self.order)))


@kernel
def find_windows(
    keys: Array, margin: float, starts: Array, order: Array, ends: Array, begins: Array
) -> None:
    """Sort each query by its keys, and find the end and the begin of each document's window."""
    spare_keys, spare_order = np.empty_like(keys), np.empty_like(order)
    for q in range(starts.shape[0] - 1):
        a, b = starts[q], starts[q + 1]
        sort(keys, order, spare_keys, spare_order, a, b)
        end = a
        for t in range(a, b):
            while end < b and keys[end] - keys[t] < margin:
                end += 1
            ends[t] = end
        begin = b
        for t in range(b - 1, a - 1, -1):
            while begin > a and keys[t] - keys[begin - 1] < margin:
                begin -= 1
            begins[t] = begin


@kernel
def add_cells(
    u: Array, starts: Array, first: Array, levels: Array,
    order: Array, ends: Array, begins: Array, above: Array, below: Array,
) -> None:  # fmt: skip
    """Move both windows through every query, with one cell for each of its labels."""
    for q in range(starts.shape[0] - 1):
        a, b = starts[q], starts[q + 1]
        cells = np.zeros(first[q + 1] - first[q])
        entered = a
        for t in range(a, b):
            while entered < ends[t]:
                d = order[entered]
                for r in range(levels[d]):
                    cells[r] += u[d]
                entered += 1
            above[order[t]] = cells[levels[order[t]]]
        cells[:] = 0.0
        entered = b
        for t in range(b - 1, a - 1, -1):
            while entered > begins[t]:
                entered -= 1
                d = order[entered]
                for r in range(levels[d] + 1, cells.shape[0]):
                    cells[r] += u[d]
            below[order[t]] = cells[levels[order[t]]]
