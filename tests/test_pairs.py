"""Pairs from labels and clicks, in the order of the contract."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ranking.clicks import CLASSICAL_STRATEGIES
from app.ranking.pairs import Pairs, from_clicks, from_labels
from tests.oracles import click_pairs, label_pairs
from tests.strategies import labels


@given(labels())
def test_labels_give_every_ordered_pair_row_by_row(some: Any) -> None:
    assert from_labels(some).listed() == label_pairs(some.tolist())


@given(st.integers(1, 12).flatmap(lambda d: st.tuples(st.lists(st.integers(0, d - 1)), st.just(d))))
@pytest.mark.parametrize("strategy", CLASSICAL_STRATEGIES)
def test_clicks_give_the_pairs_of_their_strategy(
    strategy: str, drawn: tuple[list[int], int]
) -> None:
    clicks, shown = drawn
    assert from_clicks(clicks, shown, strategy).listed() == click_pairs(clicks, shown, strategy)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [  # a ranking of six, clicked at 4 first and then at 1
        ("click-skip-above", [(1, 0), (4, 0), (4, 2), (4, 3)]),
        ("last-click-skip-above", [(1, 0)]),
        ("click-skip-previous", [(1, 0), (4, 3)]),
        ("click-no-click-next", [(1, 2), (4, 5)]),
    ],
)
def test_each_strategy_gives_the_pairs_of_an_example(
    strategy: str, expected: list[tuple[int, int]]
) -> None:
    assert from_clicks([4, 1], 6, strategy).listed() == expected


@pytest.mark.parametrize("strategy", CLASSICAL_STRATEGIES)
def test_rankings_without_clicks_or_with_every_document_clicked_give_no_pairs(
    strategy: str,
) -> None:
    assert len(from_clicks([], 5, strategy)) == 0
    assert len(from_clicks([2, 0, 1], 3, strategy)) == 0
    assert len(from_clicks([0], 1, strategy)) == 0


def test_a_click_on_the_last_document_gives_no_pair_with_a_next_one() -> None:
    assert from_clicks([2], 3, "click-no-click-next").listed() == []


def test_unknown_strategies_and_positions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy: expected one of click-skip-above, .*'best'"):
        from_clicks([0], 2, "best")
    for position in (-1, 2):
        with pytest.raises(ValueError, match=f"clicks: expected positions below 2, got {position}"):
            from_clicks([position], 2)


def test_shuffling_keeps_each_pair_with_its_weight() -> None:
    pairs = Pairs(np.arange(9), np.arange(9) + 1, np.arange(9) / 10)
    shuffled = pairs.shuffled(np.random.default_rng(3))
    assert shuffled.preferred.tolist() != pairs.preferred.tolist()
    assert sorted(shuffled.preferred.tolist()) == pairs.preferred.tolist()
    assert (shuffled.other == shuffled.preferred + 1).all()
    assert (shuffled.weights == shuffled.preferred / 10).all()
