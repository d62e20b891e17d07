"""Simulated traffic on judged queries: a ranking for each user, the clicks, and their pairs.

One kernel call simulates one user. The caller decides whether a learner gets the pairs. The steps
equal those of the service (`serving`, `debiased`, `fair`); tests compare them. Randomness is
passed in: the same generator gives the same queries and numbers, whatever is learnt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from app.ranking import measures
from app.ranking.arrays import Dense, Floats, Integers
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.debiased import KAPPA, pair_weights, seen_pairs
from app.ranking.fair import WEIGHT
from app.ranking.lanes import kernel
from app.ranking.online import LabelledQuery
from app.ranking.pairs import Pairs, from_clicks
from app.ranking.serving import SHARPNESS
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

    `sharpness` is `a` of the sample, `s = a·scores/std`; with 0 the scores are sampled unscaled.
    """

    how: int = SAMPLED
    length: int = 10
    sharpness: float = SHARPNESS

    @classmethod
    def to_learn(cls, strategy: str, length: int) -> "Show":
        """Return the exploration that the setting `clicks` needs."""
        hows = {"debiased": SAMPLED, "fair-pairs": SWAPPED}
        if strategy not in CLICK_STRATEGIES:
            raise ValueError(
                f"clicks: expected one of {', '.join(CLICK_STRATEGIES)}, got {strategy!r}"
            )
        return cls(hows.get(strategy, MODEL_ORDER), length)


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
    learner: LinearLearner,
    show: Show,
    users: Users,
    rng: np.random.Generator,
    count: int,
) -> Iterator[Visit]:
    """Yield `count` visits to random queries, ranked by the learner's current weights."""
    user_numbers = 1 + 2 * show.length
    width = user_numbers + max(site.longest, 1 + show.length)
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
                    learner.score(site.documents[rows]), site.labels[rows], *show, *users,
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
    sharpness: float,
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
    order, sharp, first, explored = draw_order(scores, how, length, sharpness, draws)
    shown = order[:length].copy()
    clicked = np.zeros(length, np.uint8)
    last = visit_ranking(labels[shown], click, stop, examine, every, attackers, uniforms, clicked)
    if how == SWAPPED:
        preferred, other, omega = fair_pairs(clicked, first)
    else:
        preferred, other, omega = sampled_pairs(
            clicked, last if how == SAMPLED else -1, sharp, order
        )
    judging = omega * (explored * KAPPA / WEIGHT if how == SWAPPED else explored)
    weight, won, submitted_won = count_wins(scores, shown, preferred, other, judging)
    gained = measures.discounted(labels[shown], discounts, min(DEPTH, length))
    ndcg = gained / ideal if ideal > 0.0 else 0.0
    found = shown[preferred], shown[other], omega
    return shown, clicked, *found, ndcg, weight, won, submitted_won


@kernel
def draw_order(scores: Any, how: int, length: int, sharpness: float, draws: Any) -> Any:
    """Return the order, its s, the first position of a pair, and 1 if randomised, else 0.

    Equal scores keep the submitted order with equal odds, unless sharpness is 0.
    """
    sharp = np.zeros(scores.shape[0])
    if how == SAMPLED:
        if sharpness == 0.0:
            sharp[:] = scores
        elif not sharpen(scores, sharpness, sharp):
            return np.arange(scores.shape[0]), sharp, 0, 0.0
        noisy = np.empty(scores.shape[0])
        for d in range(scores.shape[0]):
            noisy[d] = -(sharp[d] - log(-log(draws[d])))
        return np.argsort(noisy, kind="mergesort"), sharp, 0, 1.0
    order = np.argsort(-scores, kind="mergesort")
    first = 1 if draws[0] >= 0.5 else 0
    if how == SWAPPED:
        for pair in range((length - first) // 2):
            if draws[1 + pair] < 0.5:
                upper = first + 2 * pair
                order[upper], order[upper + 1] = order[upper + 1], order[upper]
    return order, sharp, first, 1.0


@kernel
def sharpen(scores: Any, sharpness: float, sharp: Any) -> bool:
    """Write `s = a·scores/std(scores)`, like `serving.sharpened`; False if all are equal."""
    mean = scores.mean()
    squares = 0.0
    for score in scores:
        squares += (score - mean) ** 2
    spread = sqrt(squares / scores.shape[0])
    if not spread > 0.0 or scores.min() == scores.max():
        return False
    for d in range(scores.shape[0]):
        sharp[d] = scores[d] / spread * min(sharpness, float(scores.shape[0]))
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
def sampled_pairs(clicked: Any, last: int, sharp: Any, order: Any) -> Any:
    """Return the pairs and weights of clicks on a sampled ranking; none without a last click."""
    if last < 0:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    found = shown_odds(sharp, order, clicked.shape[0])
    preferred, other = seen_pairs(clicked, found)
    return preferred, other, pair_weights(preferred, other, found, KAPPA)


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
