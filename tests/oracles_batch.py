"""Naive references for the batch trainers, on a list of all pairs; never imported by `app`."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles import Floats, label_pairs


def all_pairs(labels: Floats, starts: Any) -> list[tuple[int, int]]:
    """Every (preferred, other) of every query."""
    found = []
    for a, b in itertools.pairwise(starts):
        found += [(int(a) + i, int(a) + j) for i, j in label_pairs(labels[a:b].tolist())]
    return found


def gaps(X: Any, labels: Floats, starts: Any) -> Floats:
    """The explicit matrix AX: one row for each pair."""
    dense = X if isinstance(X, np.ndarray) else X.toarray()
    pairs = all_pairs(labels, starts)
    rows = [dense[i] - dense[j] for i, j in pairs]
    return np.array(rows, np.float64).reshape(len(pairs), dense.shape[1])


def inside(scores: Floats, labels: Floats, starts: Any, margin: float) -> list[tuple[int, int]]:
    return [(i, j) for i, j in all_pairs(labels, starts) if scores[i] - scores[j] < margin]


def sums(u: Floats, pairs: list[tuple[int, int]]) -> tuple[list[float], list[float]]:
    """γ⁺ and γ⁻ of every document."""
    above: list[list[float]] = [[] for _ in u]
    below: list[list[float]] = [[] for _ in u]
    for i, j in pairs:
        above[j].append(float(u[i]))
        below[i].append(float(u[j]))
    return [math.fsum(one) for one in above], [math.fsum(one) for one in below]


def naive_variances(X: Floats, pairs: list[tuple[int, int]], gamma: float) -> list[float]:
    """1 / (1 + Σ (x_ik - x_jk)² / γ) over the pairs, for each feature k."""
    sums = [math.fsum((column[i] - column[j]) ** 2 for i, j in pairs) for column in X.T]
    return [1.0 / (1.0 + total / gamma) for total in sums]


@dataclass
class NaiveRankSVM:
    """Eqs. 2 and 3 on explicit gaps."""

    gaps: Floats
    C: float

    def residuals(self, w: Floats) -> Floats:
        return np.maximum(0.0, 1.0 - self.gaps @ w)

    def l1(self, w: Floats) -> float:
        return float(w @ w / 2 + self.C * self.residuals(w).sum())

    def l2(self, w: Floats) -> float:
        return float(w @ w / 2 + self.C * (self.residuals(w) ** 2).sum())

    def l2_gradient(self, w: Floats) -> Floats:
        return np.asarray(w - 2 * self.C * self.gaps.T @ self.residuals(w))

    def hessian(self, w: Floats) -> Floats:
        support = self.gaps[self.residuals(w) > 0.0]
        return np.asarray(np.eye(len(w)) + 2 * self.C * support.T @ support)


@dataclass
class NaiveDomination:
    """Σ_i log(1 + Σ_{j ∈ D(i)} exp(w·x_j - w·x_i + margin (y_i - y_j))) + λ‖w‖₁, pair by pair."""

    X: Floats
    labels: Floats
    starts: Any
    penalty: float
    margin: float

    def value(self, w: Floats) -> float:
        scores = self.X @ w
        terms: dict[int, list[float]] = {}
        for i, j in all_pairs(self.labels, self.starts):
            apart = self.margin * (self.labels[i] - self.labels[j])
            terms.setdefault(i, [0.0]).append(float(scores[j] - scores[i] + apart))
        loss = math.fsum(float(np.logaddexp.reduce(one)) for one in terms.values())
        return loss + self.penalty * float(np.abs(w).sum())
