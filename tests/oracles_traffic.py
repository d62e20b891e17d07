"""A naive simulated user: simple, slow, never imported by `app`."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

Pair = tuple[int, int]


class NaiveUsers(NamedTuple):
    click: Any
    stop: Any
    examine: Any
    every: bool
    attackers: float


def gumbel_order(s: Sequence[float], uniforms: Sequence[float]) -> list[int]:
    noisy = [a - math.log(-math.log(u)) for a, u in zip(s, uniforms, strict=False)]
    return sorted(range(len(s)), key=lambda d: -noisy[d])


def sharpened(
    scores: Sequence[float], scale: float = 0.0, amount: float = 1.0
) -> list[float] | None:
    if max(scores) == min(scores):
        return None
    if scale:
        return [scale * s for s in scores]
    mean = math.fsum(scores) / len(scores)
    spread = math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / len(scores))
    sharpness = min(8.0, len(scores))
    return [sharpness / amount * s / spread for s in scores]


def swapped(order: list[int], uniforms: Sequence[float]) -> tuple[list[int], list[int]]:
    """The ranking, and the upper positions of its pairs."""
    uppers = list(range(1 if uniforms[0] >= 0.5 else 0, len(order) - 1, 2))
    found = list(order)
    for at, upper in enumerate(uppers):
        if uniforms[1 + at] < 0.5:
            found[upper], found[upper + 1] = found[upper + 1], found[upper]
    return found, uppers


def clicks(users: NaiveUsers, labels: Sequence[float], uniforms: Sequence[float]) -> list[int]:
    if uniforms[0] < users.attackers:
        return [len(labels) - 1]
    numbers = iter(uniforms[1:])
    found = []
    for position, label in enumerate(labels):
        grade, clicks_if, stops_if = int(label), next(numbers), next(numbers)
        clicked = clicks_if < users.examine[position] * users.click[grade]
        if clicked:
            found.append(position)
        if (clicked or users.every) and stops_if < users.stop[grade]:
            break
    return found


def seen_pairs(clicked: Sequence[int], shown: int) -> list[Pair]:
    return [
        (c, u) for c in clicked for u in range(shown) if u not in clicked and u <= max(clicked) + 1
    ]


def fair_pairs(clicked: Sequence[int], uppers: Sequence[int]) -> list[Pair]:
    found = []
    for upper in uppers:
        if upper in clicked and upper + 1 not in clicked:
            found.append((upper, upper + 1))
        if upper + 1 in clicked and upper not in clicked:
            found.append((upper + 1, upper))
    return found


def probability(order: Sequence[int], s: Sequence[float], shown: int) -> float:
    """The Plackett-Luce probability of a ranking: a product of softmaxes."""
    found, left = 1.0, list(order)
    for document in order[:shown]:
        found *= math.exp(s[document]) / math.fsum(math.exp(s[d]) for d in left)
        left.remove(document)
    return found


def weight(order: Sequence[int], s: Sequence[float], shown: int, pair: Pair) -> float:
    """`κ·2ρ` from the probabilities of the ranking and of the one with the pair swapped."""
    other = list(order)
    other[pair[0]], other[pair[1]] = order[pair[1]], order[pair[0]]
    here, there = probability(order, s, shown), probability(other, s, shown)
    return max(1e-6, 2.0 * there / (here + there))


def ndcg_10(labels: Sequence[float], everything: Sequence[float]) -> float:
    def gained(some: Sequence[float]) -> float:
        return math.fsum((2.0**g - 1.0) / math.log2(2.0 + r) for r, g in enumerate(some[:10]))

    ideal = gained(sorted(everything, reverse=True))
    return gained(labels) / ideal if ideal else 0.0
