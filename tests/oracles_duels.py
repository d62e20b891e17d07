"""Naive references of duels and followers: simple, slow, never imported by `app`."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

#: A place of a list: document, and team (1: the first order chose it, -1: the second, 0: neither).
Place = tuple[int, int]


class NaiveDraft(NamedTuple):
    """The list, and (upper place, 1 if the second order chose the upper document) of each pair."""

    places: list[Place]
    pairs: list[tuple[int, int]]


def draft(
    first: Sequence[int],
    second: Sequence[int],
    length: int,
    coins: Sequence[int],
    pinned: Sequence[int] = (),
) -> NaiveDraft:
    """Interleave two whole orders around pinned documents; coin 1: the second chooses first."""
    orders = [[d for d in order if d not in pinned] for order in (first, second)]
    empty = [place for place in range(length) if place not in pinned]
    found: dict[int, Place] = {place: (place, 0) for place in pinned if place < length}
    pairs, coins = [], list(coins)
    while empty and orders[0][0] == orders[1][0] and not any(team for _, team in found.values()):
        found[empty.pop(0)] = orders[0][0], 0
        orders = [order[1:] for order in orders]
    while empty:
        coin, choices, places = coins.pop(0), [order[0] for order in orders], empty[:2]
        for side in (coin, 1 - coin)[: len(places)]:
            chosen = orders[side][0]
            found[empty.pop(0)] = chosen, -1 if side else 1
            orders = [[d for d in order if d != chosen] for order in orders]
        if choices[0] != choices[1] and len(places) == 2 and places[1] == places[0] + 1:
            pairs.append((places[0], coin))
    return NaiveDraft([found[place] for place in range(length)], pairs)


def outcome(teams: Sequence[int], clicked: set[int]) -> int:
    """Return 1 if more documents of the first team are clicked, -1 for the second, 0 for a tie."""
    credit = sum(teams[place] for place in clicked)
    return (credit > 0) - (credit < 0)


class NaiveDuel:
    """A duel that stores all clicks of all lists."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.clicked: dict[str, set[int]] = {}
        self.teams: dict[str, Sequence[int]] = {}
        self.won: list[int] = []  # the outcome of each list that counts for the verdict
        self.decided: set[str] = set()
        self.verdict = 0

    def click(self, query: str, teams: Sequence[int], clicks: Sequence[int]) -> None:
        self.teams[query] = teams
        self.clicked.setdefault(query, set()).update(clicks)
        found = outcome(teams, self.clicked[query])
        if found and query not in self.decided:
            self.decided.add(query)
            self.won.append(found)
            if not self.verdict and self.evidence() * Fraction(self.alpha) >= 1:
                self.verdict = 1 if sum(self.won) > 0 else -1

    def evidence(self, many: int | None = None) -> Fraction:
        counted = self.won[:many]
        return evidence(counted.count(1), counted.count(-1))

    def counts(self) -> tuple[int, int, int]:
        """Return lists, wins and losses by all clicks."""
        found = [outcome(self.teams[query], self.clicked[query]) for query in self.clicked]
        return len(found), found.count(1), found.count(-1)


def evidence(wins: int, losses: int, spread: int = 100) -> Fraction:
    """Return `2^n · B(W+a, L+a) / B(a, a)`, exactly."""

    def rising(start: int, steps: int) -> int:
        found = 1
        for step in range(steps):
            found *= start + step
        return found

    both = rising(spread, wins) * rising(spread, losses)
    return Fraction(2 ** (wins + losses) * both, rising(2 * spread, wins + losses))


def agreement(leader: Sequence[Any], scores: Sequence[float], submitted: Sequence[int]) -> float:
    """Return the share of pairs of the leader's first ten that have the same order by scores."""
    top = list(leader)[:10]
    mine = sorted(range(len(scores)), key=lambda d: (-scores[d], submitted[d]))
    pairs = [(a, b) for at, a in enumerate(top) for b in top[at + 1 :]]
    return float(np.mean([mine.index(a) < mine.index(b) for a, b in pairs]))
