"""Clicks in several events: each event gives only the pairs that no earlier event gave."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.click_pairs import ClickPairs
from app.domain.impressions import PriorFeedback, on_request
from app.domain.records import Feedback
from app.ranking import debiased, fair
from app.ranking.clicks import CLASSICAL_STRATEGIES
from app.ranking.pairs import Pairs
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


@given(
    events=st.lists(st.lists(st.integers(0, SHOWN - 1), max_size=3), max_size=6),
    odds=st.lists(st.sampled_from([-1.0, 0.0, 0.3, 1.0]), min_size=SHOWN, max_size=SHOWN),
    swapped=st.booleans(),
)
def test_events_on_a_randomised_ranking_give_only_new_pairs(
    events: list[list[int]], odds: list[float], swapped: bool
) -> None:
    """Compared with the pairs of every earlier event."""
    drawn, swaps = np.array([*odds, 1.0]), np.array([[0, 1], [3, 0]])
    strategy, about = "debiased", dict[str, Any](odds=drawn)
    if swapped:
        strategy, about = "fair-pairs", {"swaps": swaps}
    clicked, known, so_far = list[int](), set[Pair](), PriorFeedback.load(b"")
    for clicks in events:
        documents = np.zeros((SHOWN, 1), np.float32)
        event = Feedback("e", "clicks", documents, clicks=np.array(clicks, np.int64), **about)
        record, so_far = on_request(event, so_far)
        clicked += clicks
        whole = fair.pairs(clicked, swaps, SHOWN) if swapped else debiased.pairs(clicked, drawn)
        expected = whole.some(np.array([one not in known for one in whole.listed()], np.bool_))
        found = ClickPairs(record).new_pairs(strategy)
        assert found.listed() == expected.listed()
        assert found.weights.tobytes() == expected.weights.tobytes()
        known.update(whole.listed())


def test_pairs_of_earlier_events_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pairs of each of 500 earlier events, a record took the learner a minute."""
    made, shown = list[int](), 30

    def spy(clicks: list[int], odds: Any) -> Pairs:
        made.append(len(clicks))
        return pairs(clicks, odds)

    pairs = debiased.pairs
    monkeypatch.setattr(debiased, "pairs", spy)
    so_far = PriorFeedback.load(b"")
    for at in range(20):
        event = Feedback(
            "e", "clicks", np.zeros((shown, 1), np.float32), np.arange(shown),
            clicks=np.array([at]), odds=np.linspace(1.0, 0.1, shown + 1),
        )  # fmt: skip
        record, so_far = on_request(event, so_far)
    found = ClickPairs(record)
    found.new_pairs("debiased")
    found.wins()
    assert made == [20, 19]
