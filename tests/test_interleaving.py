"""Team-draft interleaving: all coins enumerated, against a naive draft.

By symmetry the first order is 0, 1, 2 …: other orders only rename the documents.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import permutations, product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import duel_lists
from app.domain.candidates import NO_PINS, Ranking
from app.domain.duel_lists import Sides
from app.ranking import fair, interleaving
from app.ranking.arrays import Floats, Integers
from app.ranking.serving import uniforms
from tests import oracles_duels

MOST = 5
#: Positions and documents: how likely a user looks at a position, and clicks a document there.
LOOKS = (0.9, 0.7, 0.45, 0.3, 0.1)
ATTRACTS = (0.3, 0.8, 0.3, 0.8, 0.3)
#: What a ranking has by place.
PLACES = ("shown", "teams")


def uniforms_of(coins: Sequence[int]) -> np.ndarray:
    return np.array([0.25 + 0.5 * coin for coin in coins])


def coins_of(length: int) -> Iterator[tuple[int, ...]]:
    return product((0, 1), repeat=interleaving.most_rounds(length))


def drafts(second: Sequence[int], length: int) -> list[interleaving.Draft]:
    """The drafts of 0, 1, 2 … and a second order for all coins."""
    orders = np.arange(len(second)), np.array(second)
    return [
        interleaving.team_draft(*orders, length, uniforms_of(coins)) for coins in coins_of(length)
    ]


CASES = [
    (second, length)
    for size in range(1, MOST + 1)
    for second in permutations(range(size))
    for length in range(1, size + 1)
]


def interleaved(
    orders: Sequence[Sequence[int]],
    coins: Sequence[int],
    top_k: int | None,
    pinned: Sequence[int] = (),
) -> Ranking:
    """Interleave two orders of documents as a request does: by scores, around pinned documents."""
    rows = np.zeros((len(orders[0]), 2), np.float32)
    for side, order in enumerate(orders):
        rows[list(order), side] = np.arange(len(order), 0, -1)
    champion, challenger = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    numbers = np.append(0.0, uniforms_of(coins))
    held = np.array(pinned, np.int64) if pinned else NO_PINS
    return duel_lists.interleaved(
        rows, champion, Sides(champion, challenger), top_k, lambda many: numbers[:many], held
    )


# ---- against the naive draft ----


def test_every_draft_of_up_to_five_documents_equals_the_naive_one() -> None:
    for second, length in CASES:
        for coins, found in zip(coins_of(length), drafts(second, length), strict=True):
            naive = oracles_duels.draft(range(len(second)), second, length, coins)
            assert list(zip(found.shown.tolist(), found.teams.tolist(), strict=True)) == (
                naive.places
            )
            assert [tuple(one) for one in found.rounds.tolist()] == naive.pairs


@given(st.data())
def test_a_list_of_a_duel_equals_the_naive_draft_around_pinned_documents(
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(1, 12))
    first, second = (data.draw(st.permutations(range(count))) for _ in range(2))
    top_k = data.draw(st.none() | st.integers(1, count + 2))
    pinned = sorted(data.draw(st.sets(st.integers(0, count - 1))))
    length = count if top_k is None else min(top_k, count)
    coins = data.draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))
    found = interleaved([first, second], coins, top_k, pinned)
    naive = oracles_duels.draft(first, second, length, coins, pinned)
    assert found.teams is not None
    assert found.swaps is not None
    assert list(zip(found.shown.tolist(), found.teams.tolist(), strict=True)) == naive.places
    assert [tuple(one) for one in found.swaps.tolist()] == naive.pairs
    fair.checked_swaps(found.swaps, length)
    assert (found.odds, found.explored) == (None, True)


def test_a_side_without_weights_is_the_submitted_order() -> None:
    rows = np.array([[1.0], [3.0], [2.0]], np.float32)
    weights = np.array([1.0])
    both = [Sides(weights, None), Sides(None, weights)]
    lists = [
        duel_lists.interleaved(rows, weights, one, None, lambda many: np.full(many, 0.9), NO_PINS)
        for one in both
    ]
    assert [one.shown.tolist() for one in lists] == [[0, 1, 2], [1, 0, 2]]  # the second chooses
    assert [one.scores.tolist() for one in lists] == [[1.0, 3.0, 2.0]] * 2


def test_equal_orders_have_no_teams_and_no_pairs() -> None:
    found = interleaved([[2, 0, 1]] * 2, [0, 1], None)
    assert found.shown.tolist() == [2, 0, 1]
    assert found.teams is not None
    assert not found.teams.any()
    assert found.swaps is not None
    assert found.swaps.shape == (0, 2)


def test_the_share_of_requests_that_duel_is_that_of_their_names() -> None:
    def duelling(share: float) -> list[bool]:
        names = (f"duel:r{at}" for at in range(4000))
        return [duel_lists.duels(partial(uniforms, name), share) for name in names]

    few, many = duelling(0.2), duelling(0.5)
    assert np.mean(few) == pytest.approx(0.2, abs=0.02)
    assert np.mean(many) == pytest.approx(0.5, abs=0.025)
    assert all(second for first, second in zip(few, many, strict=True) if first)


# ---- no side is favoured ----


def outcomes_of(teams: Sequence[Sequence[int]], clicked: set[int]) -> Counter[int]:
    return Counter(oracles_duels.outcome(one, clicked) for one in teams)


def click_sets(length: int) -> list[set[int]]:
    return [{place for place in range(length) if bits >> place & 1} for bits in range(1 << length)]


def test_clicks_by_position_alone_win_as_often_as_they_lose() -> None:
    """Over all coins, for every pair of orders, every depth and every set of clicked places."""
    for second, length in CASES:
        teams = np.array([one.teams for one in drafts(second, length)])
        assert not teams.sum(axis=0).any()  # the expected credit of each place is 0
        for clicked in click_sets(length):
            found = outcomes_of(teams.tolist(), clicked)
            assert found[1] == found[-1]


class Interleaved(NamedTuple):
    """The lists of two orders for all coins: documents and teams by list and place, and pairs."""

    shown: Integers
    teams: Integers
    swaps: list[Integers]
    size: int  # number of documents, of which a list shows the first


@cache
def lists_around_pinned() -> list[Interleaved]:
    """All pairs of orders of up to five documents, with any of them pinned, for all depths.

    Pinned documents have their own places, and the draft is of the others. So it does not matter
    where both orders have the pinned ones, and other names of the free ones change nothing: the
    first order of these is ascending. The test against the naive draft has any orders and names.
    """
    found = list[Interleaved]()
    for count in range(1, MOST + 1):
        for held in click_sets(count):
            pinned, free = sorted(held), [d for d in range(count) if d not in held]
            for second, top_k in product(permutations(free), range(1, count + 1)):
                orders = [*pinned, *free], [*second, *pinned]
                lists = [interleaved(orders, one, top_k, pinned) for one in coins_of(top_k)]
                swaps = [one.swaps for one in lists if one.swaps is not None]
                shown, teams = (np.array([getattr(one, name) for one in lists]) for name in PLACES)
                found.append(Interleaved(shown, teams, swaps, count))
    return found


def test_clicks_by_position_alone_win_as_often_as_they_lose_around_pinned_documents() -> None:
    """Over all coins: the credit of each place is 0, and so is that of each set of clicks."""
    for one in lists_around_pinned():
        assert not one.teams.sum(axis=0).any()
        credit = one.teams @ clicked_places(one.shown.shape[1]).T
        assert not np.sign(credit).sum(axis=0).any()


# ---- pairs have no position bias ----


def independent(
    shown: Sequence[int], attracts: Sequence[float]
) -> Iterator[tuple[set[int], float]]:
    """Sets of clicks with their probabilities: a user looks at each place by itself."""
    each = [LOOKS[place] * attracts[d] for place, d in enumerate(shown)]
    for clicked in click_sets(len(shown)):
        yield (
            clicked,
            float(np.prod([p if place in clicked else 1.0 - p for place, p in enumerate(each)])),
        )


def cascade(shown: Sequence[int], attracts: Sequence[float]) -> Iterator[tuple[set[int], float]]:
    """The same of a user who reads from the top, and leaves after a click with chance ½."""

    def reading(
        place: int, clicked: frozenset[int], chance: float
    ) -> Iterator[tuple[set[int], float]]:
        if place == len(shown):
            yield set(clicked), chance
            return
        p = attracts[shown[place]]
        yield {*clicked, place}, chance * p / 2
        yield from reading(place + 1, clicked | {place}, chance * p / 2)
        yield from reading(place + 1, clicked, chance * (1.0 - p))

    return reading(0, frozenset(), 1.0)


USERS = {"independent": independent, "cascade": cascade}


def preferences(
    lists: Sequence[tuple[Sequence[int], np.ndarray]], user: str, attracts: Sequence[float]
) -> np.ndarray:
    """The expected number of pairs that prefer document a to b, over equally likely lists."""
    found = np.zeros((MOST, MOST))
    for shown, rounds in lists:
        for clicked, chance in USERS[user](shown, attracts):
            for one, other in fair.pairs(sorted(clicked), rounds, len(shown)).listed():
                found[shown[one], shown[other]] += chance / len(lists)
    return found


@pytest.mark.parametrize("user", USERS)
def test_pairs_of_a_duel_prefer_no_document_by_its_position(user: str) -> None:
    """Documents that attract alike are preferred to each other alike, over all coins."""
    alike = np.equal.outer(ATTRACTS, ATTRACTS)
    taught = 0.0
    for second in list(permutations(range(MOST)))[::3]:
        for length in (2, 3, MOST):
            lists = [(one.shown.tolist(), one.rounds) for one in drafts(second, length)]
            found = preferences(lists, user, ATTRACTS)
            assert np.abs(found - found.T)[alike].max() <= 1e-12
            better = np.greater.outer(ATTRACTS, ATTRACTS)
            assert (found - found.T)[better].min() >= 0.0
            taught += found[alike].sum()
    assert taught > 1.0


def clicked_places(length: int) -> Integers:
    """All sets of clicks as rows of 0 and 1 by place."""
    return np.array([[place in one for place in range(length)] for one in click_sets(length)], int)


def chances_of(user: str, attracts: Floats) -> Floats:
    """The probability of each set of clicks, by the attraction of each place (the last axis)."""
    clicked = clicked_places(attracts.shape[-1])
    p = attracts * np.array(LOOKS)[: attracts.shape[-1]] if user == "independent" else attracts
    each = np.where(clicked, p[..., None, :], 1.0 - p[..., None, :])
    if user == "independent":
        return np.asarray(each.prod(axis=-1))
    later = np.cumsum(clicked[:, ::-1], axis=1)[:, ::-1] == 0  # places below the last click
    read = np.where(later, 1.0, each).prod(axis=-1) * 0.5 ** clicked.sum(axis=1)
    stays = np.where(later, each, 1.0).prod(axis=-1)  # and clicks nothing more
    return np.asarray(np.where(clicked.any(axis=1), read * (1.0 + stays), stays))


@pytest.mark.parametrize("user", USERS)
def test_the_chances_of_all_sets_of_clicks_are_those_of_the_user(user: str) -> None:
    for length in range(1, MOST + 1):
        attracts = np.random.default_rng(length).random(length)
        naive = Counter[frozenset[int]]()
        for clicked, chance in USERS[user](range(length), attracts.tolist()):
            naive[frozenset(clicked)] += chance  # type: ignore[assignment]
        expected = [naive[frozenset(one)] for one in click_sets(length)]
        assert chances_of(user, attracts) == pytest.approx(expected, abs=1e-15)


@cache
def taught(swaps: tuple[tuple[int, int], ...], length: int) -> Floats:
    """By set of clicks, preferred and other place: 1 if a list with these pairs teaches it."""
    found = np.zeros((1 << length, length, length))
    for at, clicked in enumerate(click_sets(length)):
        pairs = fair.pairs(sorted(clicked), np.array(swaps, np.int64).reshape(-1, 2), length)
        for place in pairs.listed():
            found[at][place] = 1.0
    return found


@pytest.mark.parametrize("user", USERS)
def test_pairs_of_a_duel_with_pinned_documents_prefer_none_by_its_position(user: str) -> None:
    """Documents of two kinds, in all ways: those of a kind are preferred to each other alike."""
    most = 0.0
    for one in lists_around_pinned():
        length = one.shown.shape[1]
        kinds = clicked_places(one.size)
        attracts = np.where(kinds, 0.8, 0.3)
        chances = chances_of(user, attracts[:, one.shown])
        pairs = np.array([taught(tuple(map(tuple, swaps.tolist())), length) for swaps in one.swaps])
        by_place = np.einsum("kls,lsab->klab", chances, pairs)
        documents = np.eye(one.size)[one.shown]
        found = documents.swapaxes(1, 2) @ by_place @ documents  # by kinds, list and documents
        bias = found.mean(axis=1) - found.mean(axis=1).swapaxes(1, 2)
        alike = kinds[:, :, None] == kinds[:, None, :]
        assert np.abs(bias[alike]).max() <= 1e-12
        assert bias[kinds[:, :, None] > kinds[:, None, :]].min(initial=0.0) >= 0.0
        most = max(most, bias.max())
    assert most > 0.1


def test_pairs_of_all_places_of_a_duel_would_be_biased() -> None:
    """The test of the bias can fail: neighbours that were not exchanged by one coin."""
    lists = [
        (one.shown.tolist(), np.array([[place, 0] for place in (0, 2)]))
        for one in drafts((0, 2, 1, 4, 3), MOST)
    ]
    found = preferences(lists, "independent", [0.5] * MOST)
    assert np.abs(found - found.T).max() > 0.05


# ---- outcomes ----


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=8), st.data())
def test_the_outcome_after_each_event_is_that_of_the_documents_clicked_so_far(
    teams: list[int], data: st.DataObject
) -> None:
    clicks = data.draw(st.lists(st.integers(0, len(teams) - 1), max_size=12))
    ends = sorted(data.draw(st.lists(st.integers(0, len(clicks)), max_size=5)))
    found = interleaving.outcomes_after(
        np.array(teams), np.array(clicks, np.int64), np.array(ends, int)
    )
    assert found.tolist() == [oracles_duels.outcome(teams, set(clicks[:end])) for end in ends]
