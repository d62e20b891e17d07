"""Naive references, written from the formulas: simple, slow, never imported by `app`."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass
class NaiveSolarI:
    n: int
    C: float = 1e-5
    w: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.w = np.zeros(self.n)

    def step(self, x: Floats, omega: float = 1.0) -> float:
        loss = max(0.0, 1.0 - float(self.w @ x))
        if x.any():
            self.w = self.w + loss / (x @ x + 1.0 / (2.0 * omega * self.C)) * x
        return loss


@dataclass
class NaiveSolarII:
    n: int
    gamma: float = 1e4
    w: Floats = field(init=False)
    sigma: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.w, self.sigma = np.zeros(self.n), np.eye(self.n)

    def step(self, x: Floats, omega: float = 1.0) -> float:
        loss = max(0.0, 1.0 - float(self.w @ x))
        if loss > 0.0:
            s = self.sigma @ x
            beta = float(x @ s) + self.gamma / omega
            self.w = self.w + loss / beta * s
            self.sigma = self._shrunk(s, beta)
        return loss

    def _shrunk(self, s: Floats, beta: float) -> Floats:
        return self.sigma - np.outer(s, s) / beta


class NaiveSolarIIDiagonal(NaiveSolarII):
    def _shrunk(self, s: Floats, beta: float) -> Floats:
        return self.sigma - np.diag(s**2 / beta)


def bounded_weight(x: Floats, omega: float, bound: float) -> float:
    """The weight of a pair in a model with `pair_bound`."""
    squared_norm = float(x @ x)
    return omega if omega * squared_norm <= bound else max(1e-12, bound / squared_norm)


def label_pairs(labels: Sequence[float]) -> list[tuple[int, int]]:
    documents = range(len(labels))
    return [(i, j) for i in documents for j in documents if labels[i] > labels[j]]


def ranking(scores: Sequence[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda d: -scores[d])  # sorted() is stable


def discount(rank: int, name: str) -> float:
    return 1.0 / math.log2(1 + rank if name == "standard" else max(2, rank))


def ndcg(labels: Sequence[float], k: int | None = None, name: str = "standard") -> float:
    def dcg(ordered: Sequence[float]) -> float:
        ranked = enumerate(ordered[:k], start=1)
        return math.fsum((2.0**label - 1.0) * discount(rank, name) for rank, label in ranked)

    ideal = dcg(sorted(labels, reverse=True))
    return dcg(labels) / ideal if ideal else 0.0


def average_precision(labels: Sequence[float]) -> float:
    hits = [rank for rank, label in enumerate(labels, start=1) if label >= 1]
    return sum(i / rank for i, rank in enumerate(hits, start=1)) / len(hits) if hits else 0.0


def click_pairs(clicks: Sequence[int], shown: int, strategy: str) -> list[tuple[int, int]]:
    """The pairs by the definitions of Joachims et al., filtered from all pairs."""
    clicked = set(clicks)
    keep: Callable[[int, int], bool] = {
        "click-skip-above": lambda c, u: u < c,
        "last-click-skip-above": lambda c, u: u < c and c == clicks[-1],
        "click-skip-previous": lambda c, u: u == c - 1,
        "click-no-click-next": lambda c, u: u == c + 1,
    }[strategy]
    everything = itertools.product(range(shown), range(shown))
    return [(c, u) for c, u in everything if c in clicked and u not in clicked and keep(c, u)]


class NaiveReducer:
    """A naive reducer: a model that learns event by event and stores all events, not records.

    `documents` are in the order shown. `submitted[d]` is the submitted position of document d;
    None if the event carries its documents. With `counts_abandoned` a query whose events have no
    click is not measured.
    """

    def __init__(
        self,
        learner: NaiveSolarI | NaiveSolarII,
        strategy: str,
        counts_abandoned: bool = True,
    ) -> None:
        self.learner, self.strategy = learner, strategy
        self.counts_abandoned, self.abandoned = counts_abandoned, set[str]()
        self.quality: dict[object, list[float]] = {}
        self.measured: set[str] = set()
        self.clicks: dict[str, list[int]] = {}
        self.learnt: dict[str, set[tuple[int, int]]] = {}
        self.stepped = self.passive = 0
        self.squared_loss = self.largest_gap = 0.0

    def labels(self, query: str, documents: Floats, labels: list[float], submitted: object) -> None:
        come = self._measure(query, documents, labels, submitted)
        pairs = [(come[i], come[j]) for i, j in label_pairs([labels[d] for d in come])]
        self._learn(documents, [(i, j, 1.0) for i, j in pairs])

    def click(self, query: str, documents: Floats, clicks: list[int], submitted: object) -> None:
        so_far = self.clicks.setdefault(query, [])
        so_far += clicks
        if self.counts_abandoned and not so_far:
            self.abandoned |= {query} - self.measured
            return
        labels = [1.0 if d in so_far else 0.0 for d in range(len(documents))]
        self._measure(query, documents, labels, submitted)
        learnt = self.learnt.setdefault(query, set())
        pairs = click_pairs(so_far, len(documents), self.strategy)
        new = [pair for pair in pairs if pair not in learnt]
        learnt.update(new)
        self._learn(documents, [(i, j, 1.0) for i, j in new])

    def triplets(
        self,
        query: str,
        documents: Floats,
        triplets: list[tuple[int, int, float]],
        submitted: object,
    ) -> None:
        labels = [0.0] * len(documents)
        for d in range(len(documents)):
            won = sum(preferred == d for preferred, _, _ in triplets)
            lost = sum(other == d for _, other, _ in triplets)
            labels[d] = 1.0 if won > lost else 0.0
        self._measure(query, documents, labels, submitted)
        self._learn(documents, triplets)

    def sums(self) -> list[float]:
        """The number of queries, then ten sums: of the served and of the submitted order."""
        columns = zip(*self.quality.values(), strict=True) if self.quality else [[0.0]] * 10
        return [float(len(self.quality)), *map(math.fsum, columns)]

    def squares(self) -> list[float]:
        """Sums of squares: of the served order, of the submitted order, and of the difference."""
        found = [0.0] * 15
        for measured in self.quality.values():
            served, submitted = measured[:5], measured[5:]
            lead = [a - b for a, b in zip(served, submitted, strict=True)]
            for at, value in enumerate([*served, *submitted, *lead]):
                found[at] += value**2
        return found

    def _measure(self, query: str, documents: Floats, labels: list[float], submitted: Any) -> Any:
        """Measure the query, once; return the documents in the submitted order."""
        self.measured.add(query)
        self.abandoned.discard(query)
        count = range(len(documents))
        if submitted is None:
            scores = [math.fsum(self.learner.w * document) for document in documents]
            shown, come, key = ranking(scores), list(count), (query, len(self.quality))
        else:
            shown, come, key = list(count), sorted(count, key=lambda d: submitted[d]), (query, -1)
        measured = []
        for order in (shown, come):
            ordered = [labels[d] for d in order]
            measured += [ndcg(ordered, k) for k in (1, 5, 10, None)]
            measured.append(average_precision(ordered))
        self.quality[key] = measured
        return come

    def _learn(self, documents: Floats, pairs: list[tuple[int, int, float]]) -> None:
        for i, j, omega in pairs:
            gap = documents[i] - documents[j]
            self.largest_gap = max(self.largest_gap, math.sqrt(math.fsum(gap * gap)))
            loss = self.learner.step(gap, omega)
            moved = loss > 0.0 and bool(gap.any())
            self.stepped, self.passive = self.stepped + moved, self.passive + (not moved)
            self.squared_loss += loss * loss
