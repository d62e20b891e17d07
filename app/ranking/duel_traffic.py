"""Simulated duels of two fixed orders: interleaved lists, users who click, and the outcomes.

One kernel call simulates many lists. A list equals that of `interleaving.team_draft`, its clicks
those of `users.clicks`, its outcome that of a list with one event (`domain/duels.py`); tests
compare them. Randomness is passed in.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from app.ranking import interleaving
from app.ranking.arrays import Floats, Integers
from app.ranking.evidence import MOST_EVIDENCE, SPREAD
from app.ranking.lanes import kernel
from app.ranking.traffic import Site
from app.ranking.users import Users, visit_ranking

#: Lists whose random numbers are drawn in one call.
LISTS_AT_ONCE = 8192


class Orders(NamedTuple):
    """The first documents of each query in the plain orders of two sides, as rows of a site.

    A query with fewer documents has -1 in the rest of its row.
    """

    first: Integers
    second: Integers

    @classmethod
    def of(cls, site: Site, first: Floats | None, second: Floats | None, length: int) -> "Orders":
        """Order the documents by the weights of both sides; None is the submitted order."""
        return cls(best_documents(site, first, length), best_documents(site, second, length))


def best_documents(site: Site, weights: Floats | None, length: int) -> Integers:
    """Return the first documents of each query by score; None is the submitted order."""
    count, ends = int(site.starts[-1]), site.starts.tolist()
    scores = np.zeros(count)
    if weights is not None:
        scores = np.einsum("ij,j->i", site.documents.astype(np.float64), weights)
    found = np.full((len(ends) - 1, length), -1)
    for q, (start, end) in enumerate(pairwise(ends)):
        best = start + np.argsort(-scores[start:end], kind="stable")[:length]
        found[q, : len(best)] = best
    return found


def numbers_of_a_list(length: int) -> int:
    """Return how many uniforms a list takes: those of its user, then the coins."""
    return 1 + 2 * length + interleaving.most_rounds(length)


def play(
    site: Site,
    orders: Orders,
    users: Users,
    rng: np.random.Generator,
    lists: int,
    *,
    each_click: bool = False,
) -> Integers:
    """Return the outcome of each of `lists` duels on random queries: 1, -1, or 0 for a tie.

    With `each_click` each click is an event of its own, and the first one that has a team decides.
    """
    found = np.zeros(lists, np.int64)
    width = numbers_of_a_list(orders.first.shape[1])
    for begun in range(0, lists, LISTS_AT_ONCE):
        part = found[begun : begun + LISTS_AT_ONCE]
        queries = rng.integers(len(site.ideal), size=len(part))
        uniforms = rng.random((len(part), width))
        judge_lists(site.labels, *orders, queries, uniforms, *users, each_click, part)
    return found


@kernel
def judge_lists(
    labels: Any,
    first: Any,
    second: Any,
    queries: Any,
    uniforms: Any,
    click: Any,
    stop: Any,
    examine: Any,
    every: bool,
    attackers: float,
    each_click: bool,
    outcome: Any,
) -> None:
    """Write the outcome of one list for each of the queries."""
    most = first.shape[1]
    shown, teams = np.empty(most, np.int64), np.empty(most, np.int64)
    for at in range(queries.shape[0]):
        numbers = uniforms[at]
        length = draft(
            first[queries[at]], second[queries[at]], numbers[1 + 2 * most :], shown, teams
        )
        clicked = np.zeros(length, np.uint8)
        visit_ranking(
            labels[shown[:length]], click, stop, examine, every, attackers, numbers, clicked
        )
        credit = 0
        for place in range(length):
            if clicked[place] and not (each_click and credit != 0):
                credit += teams[place]
        outcome[at] = (1 if credit > 0 else 0) - (1 if credit < 0 else 0)


@kernel
def draft(first: Any, second: Any, coins: Any, shown: Any, teams: Any) -> int:
    """Write the documents and teams of a list (`interleaving.team_draft`); return its length."""
    at = 0
    while at < first.shape[0] and first[at] == second[at] and first[at] >= 0:
        shown[at], teams[at] = first[at], 0
        at += 1
    head, other_head, turn = at, at, 0
    while at < first.shape[0] and first[at] >= 0:
        chooses = 1 if coins[turn] < 0.5 else -1
        turn += 1
        for team in (chooses, -chooses):
            if at == first.shape[0] or first[at] < 0:
                break
            if team == 1:
                while is_among(first[head], shown, at):
                    head += 1
                shown[at] = first[head]
            else:
                while is_among(second[other_head], shown, at):
                    other_head += 1
                shown[at] = second[other_head]
            teams[at] = team
            at += 1
    return at


@kernel
def is_among(document: int, shown: Any, count: int) -> bool:
    """Whether a document is among the first `count` shown."""
    found = False
    for at in range(count):
        found = found or shown[at] == document
    return found


def evidence_after(decided: Integers, spread: float = SPREAD) -> Floats:
    """Return E after each decided list (1 or -1), as the state of a duel has it.

    >>> evidence_after(np.array([1, 1])) == np.array([1.0, 2.0 * 101.0 / 201.0])
    array([ True,  True])
    """
    won = (decided > 0).astype(np.int64)
    wins, before = won.cumsum() - won, np.arange(len(won))
    same = np.where(won == 1, wins, before - wins)
    with np.errstate(over="ignore"):
        found = np.multiply.accumulate(2.0 * (same + spread) / (before + 2.0 * spread))
    return np.minimum(found, MOST_EVIDENCE)


class DuelVerdict(NamedTuple):
    """The winner (1, -1, or 0: undecided), and the lists and decided lists that it took."""

    winner: int
    lists: int
    decided: int


def verdict(outcomes: Integers, alpha: float, spread: float = SPREAD) -> DuelVerdict:
    """Return the verdict of a duel with these outcomes, from the first time E reached 1/α.

    >>> verdict(np.array([0, 1] * 40), 0.05)
    DuelVerdict(winner=1, lists=78, decided=39)
    """
    at = np.flatnonzero(outcomes)
    over = np.flatnonzero(evidence_after(outcomes[at], spread) * alpha >= 1.0)
    if not over.size:
        return DuelVerdict(0, len(outcomes), len(at))
    decided = int(over[0]) + 1
    ahead = int(np.sign(outcomes[at[:decided]].sum()))
    return DuelVerdict(ahead, int(at[over[0]]) + 1, decided)
