"""Clicks with gains, and how far down a list was examined."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import codec
from app.domain.click_pairs import ClickPairs
from app.domain.impressions import PriorFeedback, on_request
from app.domain.model import SUMS, ModelState, initial_state
from app.domain.model_config import new_model_config
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.domain.work import most_new_pairs, most_pairs
from app.ranking import debiased
from app.ranking.clicks import CLASSICAL_STRATEGIES, CLICK_STRATEGIES

SHOWN = 6
ROWS = np.random.default_rng(5).random((SHOWN, 4)).astype(np.float32)
ODDS = np.array([0.3, 1.0, 0.5, 0.2, 0.7, 0.1, 2.5])
SWAPS = np.array([[0, 1], [2, 0], [4, 1]])
NOTHING = PriorFeedback.load(b"")
gains_given = st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0, 10.0])
clicked = st.lists(st.integers(0, SHOWN - 1), max_size=SHOWN, unique=True)


@st.composite
def events(draw: st.DrawFn, strategy: str = "debiased", graded: bool = True) -> Feedback:
    """A click event, with or without gains and examined positions."""
    clicks = np.array(draw(clicked), np.int64)
    about: dict[str, Any] = {"swaps": SWAPS} if strategy == "fair-pairs" else {"odds": ODDS}
    if strategy in CLASSICAL_STRATEGIES:
        about = {}
    if graded and draw(st.booleans()):
        each = st.lists(gains_given, min_size=len(clicks), max_size=len(clicks))
        about["gains"] = np.array(draw(each), np.float64)
    if graded and draw(st.booleans()):
        about["examined"] = np.array([draw(st.integers(0, SHOWN))])
    return Feedback("e", "clicks", ROWS, np.arange(SHOWN), clicks=clicks, query="r", **about)


def records(posted: list[Feedback]) -> list[Feedback]:
    """The records of events on one list, in this order."""
    so_far, found = NOTHING, []
    for event in posted:
        record, so_far = on_request(event, so_far, counts_abandoned=True)
        found.append(record)
        so_far = PriorFeedback.load(so_far.dump())
    return found


def clicks_of(event: Feedback) -> Any:
    assert event.clicks is not None
    return event.clicks


def grades_after(posted: list[Feedback]) -> tuple[list[int], list[float], int]:
    """Clicks in order, grade of each position, and examined positions, one click at a time."""
    clicks, grades, examined = list[int](), [0.0] * SHOWN, 0
    for event in posted:
        assert event.clicks is not None
        given = [1.0] * len(event.clicks) if event.gains is None else event.gains.tolist()
        for click, gain in zip(event.clicks.tolist(), given, strict=True):
            clicks.append(click)
            grades[click] = max(grades[click], gain)
        if event.examined is not None:
            examined = max(examined, int(event.examined[0]))
    return clicks, grades, examined


def naive_pairs(
    posted: list[Feedback], strategy: str, kappa: float = 1.0
) -> dict[tuple[int, int], float]:
    """Weights by pair of what had come of a list."""
    clicks, grades, examined = grades_after(posted)
    if not clicks:
        return {}
    lasts = {int(clicks_of(event)[-1]) for event in posted if clicks_of(event).size}
    last, found = max(clicks), dict[tuple[int, int], float]()
    for c in range(SHOWN):
        for u in range(SHOWN):
            if not grades[c] > grades[u] or not _considers(strategy, c, u, lasts, last, examined):
                continue
            omega = 1.0
            if strategy == "debiased":
                both = np.array([c]), np.array([u])
                omega = float(debiased.pair_weights(*both, ODDS, kappa)[0])
            elif strategy == "fair-pairs":
                omega = 100.0
            found[c, u] = omega * min(grades[c] - grades[u], 10.0)
    return found


def _considers(strategy: str, c: int, u: int, lasts: set[int], last: int, examined: int) -> bool:
    return {
        "click-skip-above": u < c,
        "last-click-skip-above": u < c and c in lasts,
        "click-skip-previous": u == c - 1,
        "click-no-click-next": u == c + 1 and (not examined or u < max(examined, last + 1)),
        "debiased": max(c, u) < max(examined, last + 2),
        "fair-pairs": c // 2 == u // 2,
    }[strategy]


@pytest.mark.parametrize("strategy", CLICK_STRATEGIES)
@given(data=st.data())
def test_a_pair_is_learnt_with_the_increase_of_its_weight(
    strategy: str, data: st.DataObject
) -> None:
    posted = data.draw(st.lists(events(strategy), min_size=1, max_size=5))
    most: dict[tuple[int, int], float] = defaultdict(float)
    for at, record in enumerate(records(posted), start=1):
        now = naive_pairs(posted[:at], strategy)
        pairs = ClickPairs(record, 1.0).new_pairs(strategy)
        found = dict(zip(pairs.listed(), pairs.weights.tolist(), strict=True))
        more = {pair: now[pair] - most[pair] for pair in now if now[pair] > most[pair]}
        assert found == pytest.approx(more)
        assert list(found) == sorted(found) or strategy == "fair-pairs"
        for pair, weight in now.items():
            most[pair] = max(most[pair], weight)


@pytest.mark.parametrize("graded", [True, False])
@pytest.mark.parametrize("strategy", CLICK_STRATEGIES)
@given(data=st.data())
def test_a_record_gives_no_more_pairs_than_its_bound(
    strategy: str, graded: bool, data: st.DataObject
) -> None:
    posted = data.draw(st.lists(events(strategy, graded), min_size=1, max_size=5))
    for record in records(posted):
        found, most = (
            len(ClickPairs(record, 1.0).new_pairs(strategy)),
            most_new_pairs(record, strategy),
        )
        assert found <= most <= max(SHOWN, most_pairs(record))
        if strategy in ("click-skip-above", "debiased") and not graded:
            assert found == most


@pytest.mark.parametrize("strategy", CLICK_STRATEGIES)
@given(data=st.data())
def test_gains_of_1_give_the_bits_of_clicks_without_gains(
    strategy: str, data: st.DataObject
) -> None:
    posted = data.draw(st.lists(events(strategy, graded=False), min_size=1, max_size=4))
    ones = [replace(one, gains=np.ones(len(clicks_of(one)))) for one in posted]
    for plain, graded in zip(records(posted), records(ones), strict=True):
        expected = ClickPairs(plain, 1.0).new_pairs(strategy)
        found = ClickPairs(graded, 1.0).new_pairs(strategy)
        assert found.listed() == expected.listed()
        assert found.weights.tobytes() == expected.weights.tobytes()
        wins = [ClickPairs(one, 1.0).wins() for one in (graded, plain)]
        assert [one.tobytes() for one in wins[0]] == [one.tobytes() for one in wins[1]]


def learnt(posted: list[Feedback], strategy: str = "debiased") -> ModelState:
    config = new_model_config(tuple("abcd"), prior=0.0, clicks=strategy)
    reducer = Reducer(initial_state(config))
    for record in records(posted):
        assert reducer.apply(codec.dump_record(record))
    return reducer.state()


#: What counts records and pairs, or the course of learning. `mean_quality` and `drift` take the
#: NDCG@10 by the first event with a click, which is another one in another order.
OF_THE_COURSE = {
    "feedback", "stepped", "passive", "refused", "squared_loss", "bounded", "largest_gap",
    "mean_quality", "drift",
}  # fmt: skip
MEASURES = set(SUMS) - OF_THE_COURSE


@pytest.mark.parametrize("strategy", CLICK_STRATEGIES)
@given(data=st.data())
def test_any_order_split_and_repetition_gives_the_same_measures(
    strategy: str, data: st.DataObject
) -> None:
    posted = data.draw(st.lists(events(strategy), min_size=1, max_size=4))
    split = data.draw(st.permutations([one for event in posted for one in single_clicks(event)]))
    expected = learnt(posted, strategy).measures()
    found = learnt([*split, *posted, *split], strategy).measures()
    for name in MEASURES:  # wins are sums of weights and of their squares
        within = 1e-12 if "wins" not in name and "weight" not in name else 1e-9
        assert found[name] == pytest.approx(expected[name], rel=within, abs=within), name


def test_the_measures_of_any_order_have_debiased_wins_and_their_errors() -> None:
    assert {"debiased_wins", "baseline_debiased_wins", "wins_model_model"} <= MEASURES
    event = Feedback("e", "clicks", ROWS, np.arange(SHOWN), clicks=np.array([2]), odds=ODDS)
    assert learnt([event]).measures()["debiased_weight"] > 0.0


def test_drift_takes_the_first_click_of_a_ranking() -> None:
    first = Feedback("e", "clicks", ROWS, np.arange(SHOWN), clicks=np.array([0]), odds=ODDS)
    second = replace(first, clicks=np.array([4]))
    one, other = learnt([first, second]).measures(), learnt([second, first]).measures()
    assert one["ndcg@10"] == pytest.approx(other["ndcg@10"])
    assert one["mean_quality"] > other["mean_quality"]


def single_clicks(event: Feedback) -> list[Feedback]:
    """The same clicks, one an event; the examined positions come with each."""
    assert event.clicks is not None
    if not event.clicks.size:
        return [event]
    return [
        replace(event, clicks=event.clicks[at : at + 1],
                gains=None if event.gains is None else event.gains[at : at + 1])
        for at in range(len(event.clicks))
    ]  # fmt: skip


def test_the_last_click_of_an_earlier_event_teaches_again_only_what_has_grown() -> None:
    """A purchase of the document clicked last before, and a click further down; then the first."""
    first = Feedback("e", "clicks", ROWS, np.arange(SHOWN), clicks=np.array([3]))
    bought = replace(first, clicks=np.array([3, 5]), gains=np.array([4.0, 1.0]))
    each = [
        ClickPairs(record, 1.0).new_pairs("last-click-skip-above")
        for record in records([first, bought, first])
    ]
    assert [one.listed() for one in each] == [
        [(3, 0), (3, 1), (3, 2)],
        [(3, 0), (3, 1), (3, 2), (5, 0), (5, 1), (5, 2), (5, 4)],
        [],
    ]
    assert each[1].weights.tolist() == [3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("strategy", CLICK_STRATEGIES)
@given(data=st.data())
def test_a_repetition_changes_no_bit_of_the_weights(strategy: str, data: st.DataObject) -> None:
    posted = data.draw(st.lists(events(strategy), min_size=1, max_size=4))
    again = data.draw(st.sampled_from(posted))
    before, after = learnt(posted, strategy).model, learnt([*posted, again], strategy).model
    assert after.weights.tobytes() == before.weights.tobytes()
    assert after.spread.tobytes() == before.spread.tobytes()
    assert after.certainty == before.certainty


@given(st.lists(events(), min_size=1, max_size=4))
def test_without_a_click_a_list_is_abandoned_and_teaches_nothing(posted: list[Feedback]) -> None:
    empty = [replace(one, clicks=np.zeros(0, np.int64), gains=None) for one in posted]
    found = learnt(empty)
    assert not found.model.weights.any()
    assert (found.measures()["abandoned"], found.measures()["queries"]) == (1.0, 0.0)


def test_a_bought_document_is_preferred_to_a_clicked_one() -> None:
    event = Feedback("e", "clicks", ROWS, np.arange(SHOWN), clicks=np.array([0, 2]), odds=ODDS,
                     gains=np.array([1.0, 4.0]))  # fmt: skip
    found = ClickPairs(event, 1.0).new_pairs("debiased")
    assert dict(zip(found.listed(), found.weights.tolist(), strict=True))[2, 0] > 0.0
    assert (0, 2) not in found.listed()


def test_measures_use_the_gains() -> None:
    gains = np.array([1.0, 3.0])
    order, clicks = np.array([2, 0, 1]), np.array([0, 1])
    event = Feedback("e", "clicks", ROWS[:3], order, clicks=clicks, gains=gains)
    ideal = 7.0 + 1.0 / np.log2(3.0)
    served = 1.0 + 7.0 / np.log2(3.0)
    found = learnt([event], "click-skip-above").measures()
    assert found["ndcg@10"] == pytest.approx(served / ideal)


def test_a_list_with_gains_of_0_alone_is_a_query_with_an_ndcg_of_0() -> None:
    event = Feedback("e", "clicks", ROWS, np.arange(SHOWN), clicks=np.array([2]), odds=ODDS,
                     gains=np.array([0.0]))  # fmt: skip
    found = learnt([event])
    assert not found.model.weights.any()
    measures = found.measures()
    assert (measures["queries"], measures["abandoned"], measures["ndcg@10"]) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"gains": np.array([1.0])}, {"gains": np.array([1.0, np.nan])},
        {"gains": np.array([-1.0, 1.0])}, {"gains": np.array([11.0, 1.0])},
        {"gains": np.array([[1.0, 1.0]])},
        {"examined": np.array([7])}, {"examined": np.array([-1])},
        {"examined": np.array([1, 2])}, {"examined": np.array([], np.int64)},
        {"examined": np.array([1.5])}, {"gains_before": np.array([1.0])},
        {"examined_before": np.array([1])},
    ],
)  # fmt: skip
def test_impossible_gains_are_rejected_and_change_nothing(wrong: dict[str, Any]) -> None:
    reducer = Reducer(initial_state(new_model_config(tuple("abcd"), prior=0.0)))
    event = Feedback("e", "clicks", ROWS, np.arange(SHOWN), clicks=np.array([0, 2]), odds=ODDS,
                     clicked_before=NOTHING.clicks, rounds=NOTHING.rounds)  # fmt: skip
    assert not reducer.apply_decoded(b"", replace(event, **wrong))
    measures = reducer.state().measures()
    assert {name for name, value in measures.items() if value} == {"rejected"}
