"""Algorithm 1: rank a query, measure the ranking as served, then learn from its labels.

The online cumulative measure (eq. 3) is the mean over queries. Each ranking is measured before the
model learns from its query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from app.ranking import measures, serving
from app.ranking.arrays import Floats
from app.ranking.measures import Discount, Quality
from app.ranking.pairs import Pairs, from_labels
from app.ranking.solar import LinearLearner, Rows


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A query's documents in the submitted order, and their labels."""

    labels: Floats
    documents: Rows

    @property
    def pairs(self) -> Pairs:
        """The pairs of the labels; not cached, because they need more memory than documents."""
        return from_labels(self.labels)


class Contestant(Protocol):
    """An algorithm under evaluation."""

    def score(self, documents: Rows) -> Floats:
        """Score each document."""

    def learn(self, query: LabelledQuery, rng: np.random.Generator) -> None:
        """Learn from a judged query, in an order drawn from `rng`."""


@dataclass(frozen=True, slots=True)
class Pairwise:
    """A contestant that learns all pairs of a query's labels, in random order."""

    learner: LinearLearner

    def score(self, documents: Rows) -> Floats:
        """Score each document."""
        return self.learner.score(documents)

    def learn(self, query: LabelledQuery, rng: np.random.Generator) -> None:
        """Learn the query's pairs, shuffled."""
        self.learner.learn_pairs(query.documents, query.pairs.shuffled(rng))


def play_online(
    contestant: Contestant,
    queries: Sequence[LabelledQuery],
    rng: np.random.Generator,
    discount: Discount = "standard",
) -> Iterator[Quality]:
    """Run the queries in random order; yield the quality of each ranking as served."""
    for at in rng.permutation(len(queries)):
        query = queries[at]
        served = serving.order(contestant.score(query.documents))
        yield measures.quality(query.labels[served], discount)
        contestant.learn(query, rng)


def mean_quality(qualities: Sequence[Quality]) -> Quality:
    """Return the online cumulative measures: means over queries (eq. 3)."""
    return Quality(*np.mean(np.array(qualities), axis=0).tolist())
