"""Clicks in several events: each event gives only the pairs that no earlier event gave."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.click_pairs import ClickPairs
from app.domain.impressions import PriorFeedback, on_request
from app.domain.records import Feedback
from app.ranking.clicks import CLASSICAL_STRATEGIES
from tests.oracles import click_pairs

SHOWN = 5
Pair = tuple[int, int]


def new_pairs_of(events: list[list[int]], strategy: str) -> list[list[Pair]]:
    """New pairs of each click event on one ranking."""
    found, so_far = [], PriorFeedback.load(b"")
    for clicks in events:
        event = Feedback("e", "clicks", np.zeros((SHOWN, 1), np.float32), clicks=np.array(clicks))
        record, so_far = on_request(event, so_far)
        found.append(ClickPairs(record).new_pairs(strategy).listed())
    return found


def naive_new_pairs(events: list[list[int]], strategy: str) -> list[list[Pair]]:
    """The same, with a set of all earlier pairs."""
    found, clicked, known = [], list[int](), set[Pair]()
    for clicks in events:
        clicked += clicks
        found.append([p for p in click_pairs(clicked, SHOWN, strategy) if p not in known])
        known.update(found[-1])
    return found


@given(st.lists(st.lists(st.integers(0, SHOWN - 1), min_size=1, max_size=3), max_size=6))
@example([[3], [1], [3], [1]])
@pytest.mark.parametrize("strategy", CLASSICAL_STRATEGIES)
def test_every_event_gives_only_the_pairs_that_no_earlier_event_gave(
    strategy: str, events: list[list[int]]
) -> None:
    assert new_pairs_of(events, strategy) == naive_new_pairs(events, strategy)


def test_a_repeated_last_click_gives_no_new_pairs() -> None:
    by_event = new_pairs_of([[3], [1], [3], [1]], "last-click-skip-above")
    assert by_event == [[(3, 0), (3, 1), (3, 2)], [(1, 0)], [], []]
