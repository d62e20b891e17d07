"""Sums over all pairs of a query in O(l log l + l log k), without a list of pairs.

A pair (i, j) has `y_i > y_j`. It is *inside* if `s_i - s_j < margin`, for scores s; with margin 1
the pairs inside are the support vectors of eq. 14. Let `j ∈ SV_i⁺` if (j, i) is inside and
`j ∈ SV_i⁻` if (i, j) is. The trainers need only the sums of some u over these sets: `γ_i⁺, γ_i⁻`,
and with u = 1 the counts `l_i⁺, l_i⁻`.

The leaves of the tree are the k labels of a query, ascending. A node has the documents of its
labels sorted by score, merged from its two children, *low* and *high*. Every high document is
preferred to every low one. So the high documents inside with a low one are a prefix of the high
ones, and the low documents inside with a high one are a suffix. One pass with two indices finds
all prefixes and suffixes; prefix sums give the sums. The loops are in `levels.py`.

Measured once, CPU ms for l documents in Q queries of k labels each: sorting and finding the
windows, plus one sum for each document. (An evaluation needs the first and two sums, a Hessian
product one sum.)

    l, Q, k         merge tree        Fenwick tree over labels   one cell a label, O(lk)
    10⁵, 1000, 2      4.1 + 0.6             6.8 + 3.8                  6.8 + 2.6
    10⁵, 1000, 5      9.2 + 1.7             6.8 + 4.5                  6.8 + 3.9
    10⁵, 1000, 100     14 + 4.9             6.8 + 6.9                  6.8 + 7.8
    10⁵, 1, 10⁵        24 + 10               16 + 14                       -
    10⁶, 1, 10⁶       304 + 202             252 + 527                      -

The Fenwick tree is Algorithm 2 with an array as the tree. The merge tree takes more memory: 8 bytes
for each document and level.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.ranking.arrays import Floats, Integers, owned
from app.ranking.batch.levels import add_up, arrange

Indices = NDArray[np.int32]


@dataclass(frozen=True)
class OrderTree:
    """The part of the tree that depends on the labels alone.

    `by_label` holds the documents by query and label. Those of query q with its y-th label start at
    `label_starts[first[q] + y]`.

    >>> tree = OrderTree.of(np.array([2.0, 0.0, 1.0]), np.array([0, 3]))
    >>> tree.pairs
    3
    >>> inside = tree.at(np.array([0.5, 0.0, 3.0]))
    >>> inside.counts()
    (array([0., 1., 1.]), array([2., 0., 0.]))
    >>> inside.sums(np.array([5.0, 7.0, 11.0]))
    (array([0., 5., 5.]), array([18.,  0.,  0.]))
    """

    starts: Integers
    by_label: Indices
    label_starts: Integers
    first: Integers

    @classmethod
    def of(cls, labels: Floats, starts: Integers) -> "OrderTree":
        """Build the tree over labels; query q has those from `starts[q]` to `starts[q+1]`."""
        starts = owned(starts, np.int64)
        query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        by_label = np.lexsort((labels, query))
        sorted_labels, sorted_query = labels[by_label], query[by_label]
        new = np.ones(len(labels), np.bool_)
        new[1:] = (np.diff(sorted_labels) != 0.0) | (np.diff(sorted_query) != 0)
        label_starts = np.append(np.flatnonzero(new), len(labels))
        first = np.searchsorted(label_starts, starts)
        return cls(starts, by_label.astype(np.int32), label_starts, first)

    @cached_property
    def levels(self) -> int:
        """log2 of the largest number of labels in a query, rounded up."""
        most = int(np.diff(self.first).max(initial=1))
        return max(0, most - 1).bit_length()

    @property
    def pairs(self) -> int:
        """The number of pairs of all queries."""
        documents, label_sizes = np.diff(self.starts), np.diff(self.label_starts)
        return int((documents * documents).sum() - (label_sizes * label_sizes).sum()) // 2

    def centred(self, u: Floats) -> Floats:
        """Return u relative to the first document of each query: equal gaps, more digits."""
        relative: Floats = u - u[self.first_documents]
        return relative

    @cached_property
    def first_documents(self) -> Integers:
        """The first document of the query of each document."""
        return np.repeat(self.starts[:-1], np.diff(self.starts))

    def at(self, scores: Floats, margin: float = 1.0, near: "Inside | None" = None) -> "Inside":
        """Sort by the scores, and find the pairs with `s_i - s_j < margin`.

        `near`, the result for similar scores, makes the sort faster.
        """
        leaves = (self.by_label if near is None else near.leaves).copy()
        order = np.empty_like(leaves)
        came = np.empty((max(0, self.levels - 1), len(order)), np.int32)
        reach = np.empty((self.levels, len(order)), np.int32)
        arrange(
            owned(scores, np.float64), margin, self.starts, self.label_starts, self.first,
            leaves, order, came, reach,
        )  # fmt: skip
        return Inside(self, leaves, order, came, reach)


@dataclass(frozen=True, slots=True)
class Inside:
    """The pairs inside, for given scores.

    `leaves` holds the documents of level 0, by query, label and score; `order` those of the last
    level of each query, which has two nodes. On level f the document at t is inside with the
    documents of its sibling node up to (a low one) or from (a high one) `reach[f, t]`. The document
    at t on level f + 1 came from `came[f, t]`.
    """

    tree: OrderTree
    leaves: Indices
    order: Indices
    came: Indices
    reach: Indices

    def sums(self, u: Floats) -> tuple[Floats, Floats]:
        """Return `γ_i⁺ = Σ_{j ∈ SV_i⁺} u_j` and `γ_i⁻ = Σ_{j ∈ SV_i⁻} u_j` for all documents i."""
        above, below = np.empty(len(u)), np.empty(len(u))
        tree = self.tree
        add_up(
            owned(u, np.float64), tree.starts, tree.label_starts, tree.first,
            self.leaves, self.order, self.came, self.reach, above, below,
        )  # fmt: skip
        return above, below

    def counts(self) -> tuple[Floats, Floats]:
        """Return `l_i⁺` and `l_i⁻`: the numbers of preferred and of other documents inside."""
        return self.sums(np.ones(len(self.order)))
