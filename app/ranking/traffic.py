"""Simulated traffic on judged queries: a ranking for each user, the clicks, and their pairs.

One kernel call simulates one user. The caller decides whether a learner gets the pairs. The steps
equal those of the service (`serving`, `debiased`, `fair`); tests compare them. Randomness is
passed in: the same generator gives the same queries and numbers, whatever is learnt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np

from app.ranking import measures
from app.ranking.arrays import Dense, Floats, Integers
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.debiased import pair_weights, seen_pairs
from app.ranking.fair import WEIGHT
from app.ranking.lanes import kernel
from app.ranking.limits import KAPPA
from app.ranking.online import LabelledQuery
from app.ranking.pairs import Pairs, from_clicks
from app.ranking.serving import SPREAD_SHARPNESS
from app.ranking.solar import LinearLearner
from app.ranking.users import Users, visit_ranking

#: Users whose random numbers are drawn in one call.
USERS_AT_ONCE = 512
DEPTH = 10  # the k of NDCG@k
MODEL_ORDER, SAMPLED, SWAPPED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Site:
    """Judged queries, with documents in the submitted order.

    Documents `starts[q] … starts[q+1] - 1` belong to query q, whose ideal DCG@10 is `ideal[q]`.
    """

    documents: Dense
    labels: Floats
    starts: Integers
    ideal: Floats

    @classmethod
    def of(cls, queries: Sequence[LabelledQuery]) -> "Site":
        """Concatenate queries; their documents keep their order."""
        best = [np.sort(query.labels)[::-1].copy() for query in queries]
        ideal = [measures.discounted(one, discount_table(), min(DEPTH, len(one))) for one in best]
        starts = np.cumsum([0, *(len(query.labels) for query in queries)])
        labels = np.concatenate([query.labels for query in queries])
        return cls(
            np.concatenate([query.documents for query in queries]), labels, starts, np.array(ideal)
        )

    def of_query(self, q: int) -> Dense:
        """Return the documents of a query."""
        return self.documents[self.starts[q] : self.starts[q + 1]]

    @property
    def longest(self) -> int:
        """The largest number of documents in a query."""
        return int(np.diff(self.starts).max())

    def ndcg(self, weights: Floats) -> float:
        """Return the mean NDCG@10 of the model order of these weights."""
        found = np.einsum("ij,j->i", self.documents, weights)
        return float(mean_ndcg(found, self.labels, self.starts, self.ideal, discount_table()))

    def submitted_ndcg(self) -> Floats:
        """Return the NDCG@10 of each query's submitted order."""
        found = np.empty(len(self.ideal))
        for q in range(len(found)):
            labels = self.labels[self.starts[q] : self.starts[q + 1]]
            gained = measures.discounted(labels, discount_table(), min(DEPTH, len(labels)))
            found[q] = gained / self.ideal[q] if self.ideal[q] > 0.0 else 0.0
        return found


class Show(NamedTuple):
    """How rankings of `length` documents are made: MODEL_ORDER, SAMPLED or SWAPPED.

    `scale` and `amount` are those of a sample (`serving.sharpened`). `kappa` is the weight of a
    debiased pair whose two orders are equally likely.
    """

    how: int = SAMPLED
    length: int = 10
    scale: float = 0.0
    amount: float = 1.0
    kappa: float = KAPPA

    @classmethod
    def to_learn(cls, strategy: str, length: int) -> "Show":
        """Return the exploration that the setting `clicks` needs, of a new model."""
        hows = {"debiased": SAMPLED, "fair-pairs": SWAPPED}
        if strategy not in CLICK_STRATEGIES:
            raise ValueError(
                f"clicks: expected one of {', '.join(CLICK_STRATEGIES)}, got {strategy!r}"
            )
        return cls(hows.get(strategy, MODEL_ORDER), length)


class Ranker(Protocol):
    """What users visit: something that scores documents and says how to show them."""

    @property
    def show(self) -> Show:
        """How the next ranking is made."""

    def score(self, documents: Dense) -> Floats:
        """Return the score of each document."""


class FixedRanker(NamedTuple):
    """A learner whose rankings are always made in the same way."""

    learner: LinearLearner
    show: Show

    def score(self, documents: Dense) -> Floats:
        """Return the score of each document."""
        return self.learner.score(documents)


class Visit(NamedTuple):
    """One user's ranking and clicks, and the pairs of the clicks, as rows of the query.

    `weight` is `Σω` of all pairs, `won` and `submitted_won` that of the pairs which the model order
    and the submitted order rank correctly.
    """

    query: int
    shown: Integers
    clicked: Any
    preferred: Integers
    other: Integers
    omega: Floats
    ndcg: float
    weight: float
    won: float
    submitted_won: float

    @property
    def pairs(self) -> Pairs:
        """The pairs to learn."""
        return Pairs(self.preferred, self.other, self.omega)

    def classical(self, strategy: str) -> Pairs:
        """Return the pairs of a classical strategy for the same clicks."""
        found = from_clicks(np.flatnonzero(self.clicked).tolist(), len(self.shown), strategy)
        return Pairs(self.shown[found.preferred], self.shown[found.other], found.weights)


def visits(
    site: Site,
    ranker: Ranker,
    users: Users,
    rng: np.random.Generator,
    count: int,
) -> Iterator[Visit]:
    """Yield `count` visits to random queries, ranked by the ranker's current weights."""
    length = ranker.show.length
    user_numbers = 1 + 2 * length
    width = user_numbers + max(site.longest, 1 + length)
    discounts, starts = discount_table(), site.starts.tolist()
    for begun in range(0, count, USERS_AT_ONCE):
        queries = rng.integers(len(site.ideal), size=USERS_AT_ONCE).tolist()
        uniforms = rng.random((USERS_AT_ONCE, width))
        np.maximum(uniforms, 2.0**-54, out=uniforms)  # log(0) is not finite
        for at in range(min(USERS_AT_ONCE, count - begun)):
            q, numbers = queries[at], uniforms[at]
            rows = slice(starts[q], starts[q + 1])
            yield Visit(
                q,
                *impression(
                    ranker.score(site.documents[rows]), site.labels[rows], *ranker.show, *users,
                    numbers[:user_numbers], numbers[user_numbers:], discounts, site.ideal[q],
                ),
            )  # fmt: skip


def discount_table() -> Floats:
    """Return a writeable copy of the discounts: a read-only array would need a second kernel."""
    return measures.discounts("standard", DEPTH).copy()


@kernel
def impression(
    scores: Any,
    labels: Any,
    how: int,
    length: int,
    scale: float,
    amount: float,
    kappa: float,
    click: Any,
    stop: Any,
    examine: Any,
    every: bool,
    attackers: float,
    uniforms: Any,
    draws: Any,
    discounts: Any,
    ideal: float,
) -> Any:
    """Simulate one user: ranking, clicks, pairs, and the ranking's NDCG@10."""
    length = min(length, scores.shape[0])
    order, sharp, first, judges = draw_order(scores, how, length, scale, amount, draws)
    shown = order[:length].copy()
    clicked = np.zeros(length, np.uint8)
    last = visit_ranking(labels[shown], click, stop, examine, every, attackers, uniforms, clicked)
    if how == SWAPPED:
        preferred, other, omega = fair_pairs(clicked, first)
    else:
        preferred, other, omega = sampled_pairs(
            clicked, last if how == SAMPLED else -1, sharp, order, kappa
        )
    judging = omega * (judges * kappa / WEIGHT if how == SWAPPED else judges)
    weight, won, submitted_won = count_wins(scores, shown, preferred, other, judging)
    gained = measures.discounted(labels[shown], discounts, min(DEPTH, length))
    ndcg = gained / ideal if ideal > 0.0 else 0.0
    found = shown[preferred], shown[other], omega
    return shown, clicked, *found, ndcg, weight, won, submitted_won


@kernel
def draw_order(scores: Any, how: int, length: int, scale: float, amount: float, draws: Any) -> Any:
    """Return the order, its s, the first position of a pair, and 1 if clicks judge, else 0.

    Clicks on a sample of equal scores do not tell the model order from the submitted order.
    """
    sharp = np.zeros(scores.shape[0])
    if how == SAMPLED:
        judges = 1.0 if sharpen(scores, scale, amount, sharp) else 0.0
        noisy = np.empty(scores.shape[0])
        for d in range(scores.shape[0]):
            noisy[d] = -(sharp[d] - log(-log(draws[d])))
        return np.argsort(noisy, kind="mergesort"), sharp, 0, judges
    order = np.argsort(-scores, kind="mergesort")
    first = 1 if draws[0] >= 0.5 else 0
    if how == SWAPPED:
        for pair in range((length - first) // 2):
            if draws[1 + pair] < 0.5:
                upper = first + 2 * pair
                order[upper], order[upper + 1] = order[upper + 1], order[upper]
    return order, sharp, first, 1.0


@kernel
def sharpen(scores: Any, scale: float, amount: float, sharp: Any) -> bool:
    """Write s, like `serving.sharpened`; False if all are equal."""
    if scores.min() == scores.max():
        return False
    if scale > 0.0:
        for d in range(scores.shape[0]):
            sharp[d] = scores[d] * scale
        return True
    mean = scores.mean()
    squares = 0.0
    for score in scores:
        squares += (score - mean) ** 2
    spread = sqrt(squares / scores.shape[0])
    if not spread > 0.0:
        return False
    for d in range(scores.shape[0]):
        sharp[d] = scores[d] * (min(SPREAD_SHARPNESS, float(scores.shape[0])) / amount / spread)
    return True


@kernel
def shown_odds(sharp: Any, order: Any, length: int) -> Any:
    """Return `e = exp(s - max s)` of the shown documents, and then the sum over all others."""
    found = np.zeros(length + 1)
    most = sharp.max()
    for at in range(order.shape[0]):
        found[min(at, length)] += exp(sharp[order[at]] - most)
    return found


@kernel
def sampled_pairs(clicked: Any, last: int, sharp: Any, order: Any, kappa: float) -> Any:
    """Return the pairs and weights of clicks on a sampled ranking; none without a last click."""
    if last < 0:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    found = shown_odds(sharp, order, clicked.shape[0])
    preferred, other = seen_pairs(clicked, found)
    return preferred, other, pair_weights(preferred, other, found, kappa)


@kernel
def fair_pairs(clicked: Any, first: int) -> Any:
    """Return the clicked neighbour over the other, for pairs with exactly one click."""
    preferred = np.empty(clicked.shape[0], np.int64)
    count = 0
    for upper in range(first, clicked.shape[0] - 1, 2):
        if clicked[upper] != clicked[upper + 1]:
            preferred[count] = upper if clicked[upper] else upper + 1
            count += 1
    preferred = preferred[:count].copy()
    other = preferred + 1
    for at in range(count):
        if (preferred[at] - first) % 2 == 1:
            other[at] = preferred[at] - 1
    return preferred, other, np.full(count, WEIGHT)


@kernel
def count_wins(scores: Any, shown: Any, preferred: Any, other: Any, omega: Any) -> Any:
    """Return `Σω`, and `Σω·[preferred ranks higher]` in the model and in the submitted order."""
    weight = won = submitted = 0.0
    for at in range(preferred.shape[0]):
        weight += omega[at]
        c, u = shown[preferred[at]], shown[other[at]]
        if c < u:
            submitted += omega[at]
        if scores[c] > scores[u] or (scores[c] == scores[u] and c < u):
            won += omega[at]
    return weight, won, submitted


@kernel
def mean_ndcg(scores: Any, labels: Any, starts: Any, ideal: Any, discounts: Any) -> Any:
    """Return the mean NDCG@10 of all queries, ordered by score; ties keep the submitted order."""
    total = 0.0
    for q in range(ideal.shape[0]):
        if ideal[q] > 0.0:
            order = np.argsort(-scores[starts[q] : starts[q + 1]], kind="mergesort")
            served = labels[starts[q] : starts[q + 1]][order]
            depth = min(DEPTH, served.shape[0])
            total += measures.discounted(served, discounts, depth) / ideal[q]
    return total / ideal.shape[0]
