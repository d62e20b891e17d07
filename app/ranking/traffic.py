"""Judged queries as live traffic: a list for each user, what is clicked on it, what that says.

One call of one kernel is one user; whoever simulates learns the pairs it found, or does not. The
steps are those of a service: `serving`, `debiased`, `fair`; tests hold them to that. Randomness is
passed in: the same generator brings the same queries and numbers, whatever is learnt from them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from app.ranking import measures
from app.ranking.arrays import Dense, Floats, Integers
from app.ranking.clicks import READINGS
from app.ranking.debiased import KAPPA, pair_weights, seen_pairs
from app.ranking.fair import WEIGHT
from app.ranking.lanes import kernel
from app.ranking.online import LabelledQuery
from app.ranking.pairs import Pairs, from_clicks
from app.ranking.serving import SHARPNESS
from app.ranking.solar import LinearLearner
from app.ranking.users import Users, visit_list

#: How many users' numbers are drawn at a time.
USERS_AT_ONCE = 512
DEPTH = 10  # of the NDCG that is measured
PLAIN, DRAWN, SWAPPED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Site:
    """Judged queries, each one's documents in the order in which they are submitted.

    Documents `starts[q] … starts[q+1] - 1` belong to query q, whose best NDCG@10 gains `ideal[q]`.
    """

    documents: Dense
    labels: Floats
    starts: Integers
    ideal: Floats

    @classmethod
    def of(cls, queries: Sequence[LabelledQuery]) -> "Site":
        """All queries, as they stand."""
        best = [np.sort(query.labels)[::-1].copy() for query in queries]
        ideal = [measures.discounted(one, discount_table(), min(DEPTH, len(one))) for one in best]
        starts = np.cumsum([0, *(len(query.labels) for query in queries)])
        labels = np.concatenate([query.labels for query in queries])
        return cls(
            np.concatenate([query.documents for query in queries]), labels, starts, np.array(ideal)
        )

    def of_query(self, q: int) -> Dense:
        """The documents of a query."""
        return self.documents[self.starts[q] : self.starts[q + 1]]

    @property
    def longest(self) -> int:
        """How many documents a query has at most."""
        return int(np.diff(self.starts).max())

    def ndcg(self, weights: Floats) -> float:
        """The mean NDCG@10 of the order that these weights give."""
        found = np.einsum("ij,j->i", self.documents, weights)
        return float(mean_ndcg(found, self.labels, self.starts, self.ideal, discount_table()))

    def submitted_ndcg(self) -> Floats:
        """The NDCG@10 of each query in the order as submitted."""
        found = np.empty(len(self.ideal))
        for q in range(len(found)):
            labels = self.labels[self.starts[q] : self.starts[q + 1]]
            gained = measures.discounted(labels, discount_table(), min(DEPTH, len(labels)))
            found[q] = gained / self.ideal[q] if self.ideal[q] > 0.0 else 0.0
        return found


class Show(NamedTuple):
    """How a list is made: as it is, drawn, or with neighbours exchanged.

    `sharpness` is a of the sample: `s = a·scores/std`; 0 draws from the scores themselves.
    """

    how: int = DRAWN
    places: int = 10
    sharpness: float = SHARPNESS

    @classmethod
    def to_learn(cls, reading: str, places: int) -> "Show":
        """As a reading of clicks wants it."""
        hows = {"debiased": DRAWN, "fair-pairs": SWAPPED}
        if reading not in READINGS:
            raise ValueError(f"clicks: expected one of {', '.join(READINGS)}, got {reading!r}")
        return cls(hows.get(reading, PLAIN), places)


class Visit(NamedTuple):
    """One user's list and clicks, and the pairs that follow: by row of the query, as submitted.

    `weight` is `Σω`, `won` and `submitted_won` what of it the plain order and the submitted one get
    right.
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
        """What was found, to be learnt."""
        return Pairs(self.preferred, self.other, self.omega)

    def classical(self, strategy: str) -> Pairs:
        """What a classical strategy reads from the same clicks."""
        places = from_clicks(np.flatnonzero(self.clicked).tolist(), len(self.shown), strategy)
        return Pairs(self.shown[places.preferred], self.shown[places.other], places.weights)


def visits(
    site: Site,
    learner: LinearLearner,
    show: Show,
    users: Users,
    rng: np.random.Generator,
    count: int,
) -> Iterator[Visit]:
    """So many users on random queries, served by the learner as it is when each comes."""
    places = 1 + 2 * show.places
    width = places + max(site.longest, 1 + show.places)
    discounts, starts = discount_table(), site.starts.tolist()
    for begun in range(0, count, USERS_AT_ONCE):
        queries = rng.integers(len(site.ideal), size=USERS_AT_ONCE).tolist()
        uniforms = rng.random((USERS_AT_ONCE, width))
        np.maximum(uniforms, 2.0**-54, out=uniforms)  # a uniform of 0 has no logarithm
        for at in range(min(USERS_AT_ONCE, count - begun)):
            q, numbers = queries[at], uniforms[at]
            rows = slice(starts[q], starts[q + 1])
            yield Visit(
                q,
                *impression(
                    learner.score(site.documents[rows]), site.labels[rows], *show, *users,
                    numbers[:places], numbers[places:], discounts, site.ideal[q],
                ),
            )  # fmt: skip


def discount_table() -> Floats:
    """The discounts, writeable: numba compiles anew for an array that is not."""
    return measures.discounts("standard", DEPTH).copy()


@kernel
def impression(
    scores: Any,
    labels: Any,
    how: int,
    places: int,
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
    """One user: list, clicks, pairs, and the list's NDCG@10."""
    places = min(places, scores.shape[0])
    order, sharp, first, varied = draw_list(scores, how, places, sharpness, draws)
    shown = order[:places].copy()
    clicked = np.zeros(places, np.uint8)
    last = visit_list(labels[shown], click, stop, examine, every, attackers, uniforms, clicked)
    if how == SWAPPED:
        preferred, other, omega = fair_pairs(clicked, first)
    else:
        preferred, other, omega = drawn_pairs(clicked, last if how == DRAWN else -1, sharp, order)
    judging = omega * (varied * KAPPA / WEIGHT if how == SWAPPED else varied)
    weight, won, submitted_won = list_wins(scores, shown, preferred, other, judging)
    gained = measures.discounted(labels[shown], discounts, min(DEPTH, places))
    ndcg = gained / ideal if ideal > 0.0 else 0.0
    found = shown[preferred], shown[other], omega
    return shown, clicked, *found, ndcg, weight, won, submitted_won


@kernel
def draw_list(scores: Any, how: int, places: int, sharpness: float, draws: Any) -> Any:
    """The order, the s it was drawn from, the first place of a pair, and 1 if it may vary, else 0.

    Equal scores are as submitted, as if drawn from equal odds; unless raw scores are drawn from.
    """
    sharp = np.zeros(scores.shape[0])
    if how == DRAWN:
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
        for pair in range((places - first) // 2):
            if draws[1 + pair] < 0.5:
                upper = first + 2 * pair
                order[upper], order[upper + 1] = order[upper + 1], order[upper]
    return order, sharp, first, 1.0


@kernel
def sharpen(scores: Any, sharpness: float, sharp: Any) -> bool:
    """`s = a·scores/std(scores)`, as `serving.sharpened` has it; False if all are equal."""
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
def list_odds(sharp: Any, order: Any, places: int) -> Any:
    """`e = exp(s - max s)` of the documents shown, and then the sum of all others."""
    found = np.zeros(places + 1)
    most = sharp.max()
    for at in range(order.shape[0]):
        found[min(at, places)] += exp(sharp[order[at]] - most)
    return found


@kernel
def drawn_pairs(clicked: Any, last: int, sharp: Any, order: Any) -> Any:
    """What clicks on a drawn list say, and how much; nothing without a last one."""
    if last < 0:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    found = list_odds(sharp, order, clicked.shape[0])
    preferred, other = seen_pairs(clicked, found)
    return preferred, other, pair_weights(preferred, other, found, KAPPA)


@kernel
def fair_pairs(clicked: Any, first: int) -> Any:
    """Of neighbours that may have changed places and of which one was clicked, that one."""
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
def list_wins(scores: Any, shown: Any, preferred: Any, other: Any, omega: Any) -> Any:
    """`Σω`, and `Σω·[the clicked one stands higher]` in the plain order and as submitted."""
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
    """The mean NDCG@10 of all queries, ordered by score, ties as submitted."""
    total = 0.0
    for q in range(ideal.shape[0]):
        if ideal[q] > 0.0:
            order = np.argsort(-scores[starts[q] : starts[q + 1]], kind="mergesort")
            served = labels[starts[q] : starts[q + 1]][order]
            depth = min(DEPTH, served.shape[0])
            total += measures.discounted(served, discounts, depth) / ideal[q]
    return total / ideal.shape[0]
