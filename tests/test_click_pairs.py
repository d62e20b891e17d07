"""Clicks that come in several events: each event teaches the pairs that none before it taught."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.click_pairs import ClickPairs
from app.domain.impressions import PriorFeedback, on_request
from app.domain.records import Feedback
from app.ranking.clicks import STRATEGIES
from tests.oracles import click_pairs

SHOWN = 5
Pair = tuple[int, int]


def taught(events: list[list[int]], reading: str) -> list[list[Pair]]:
    """The new pairs of each event of clicks on one list."""
    found, so_far = [], PriorFeedback.load(b"")
    for clicks in events:
        event = Feedback("e", "clicks", np.zeros((SHOWN, 1), np.float32), clicks=np.array(clicks))
        record, so_far = on_request(event, so_far)
        found.append(ClickPairs(record).new_pairs(reading).listed())
    return found


def naively_taught(events: list[list[int]], reading: str) -> list[list[Pair]]:
    """The same with a memory of all pairs that were taught."""
    found, clicked, known = [], list[int](), set[Pair]()
    for clicks in events:
        clicked += clicks
        found.append([p for p in click_pairs(clicked, SHOWN, reading) if p not in known])
        known.update(found[-1])
    return found


@given(st.lists(st.lists(st.integers(0, SHOWN - 1), min_size=1, max_size=3), max_size=6))
@example([[3], [1], [3], [1]])
@pytest.mark.parametrize("reading", STRATEGIES)
def test_every_event_teaches_what_no_event_before_it_taught(
    reading: str, events: list[list[int]]
) -> None:
    assert taught(events, reading) == naively_taught(events, reading)


def test_a_click_that_is_the_last_one_again_teaches_nothing_again() -> None:
    by_event = taught([[3], [1], [3], [1]], "last-click-skip-above")
    assert by_event == [[(3, 0), (3, 1), (3, 2)], [(1, 0)], [], []]
