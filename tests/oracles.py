"""Naive references, written from the formulas: obviously right, slow, never imported by `app`."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    """All (clicked, unclicked) by the definitions of Joachims et al., filtered from all pairs."""
    clicked = set(clicks)
    keep: Callable[[int, int], bool] = {
        "click-skip-above": lambda c, u: u < c,
        "last-click-skip-above": lambda c, u: u < c and c == clicks[-1],
        "click-skip-previous": lambda c, u: u == c - 1,
        "click-no-click-next": lambda c, u: u == c + 1,
    }[strategy]
    everything = itertools.product(range(shown), range(shown))
    return [(c, u) for c, u in everything if c in clicked and u not in clicked and keep(c, u)]
