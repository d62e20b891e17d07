"""Counting: a ranking counts once, however its events arrive; standard errors by the formula."""

from itertools import permutations
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import codec
from app.domain.impressions import PriorFeedback, on_request
from app.domain.model import SUMS, ModelState, initial_state
from app.domain.model_config import COUNTING, ModelConfig, new_model_config
from app.domain.records import Feedback, Replace, ResetMeasures
from app.domain.reducer import Reducer
from app.domain.statistics import Statistics, mean, share_error, standard_error
from tests.test_debiased import drawn
from tests.test_reducer import DOCUMENTS

SUBMITTED = np.array([2, 0, 3, 1])
SHOWN, _ODDS = drawn(3)
MEASURED = [
    at for at, name in enumerate(SUMS)
    if name not in ("stepped", "passive", "refused", "squared_loss", "feedback", "bounded",
                    "mean_quality", "drift", "largest_gap")
]  # fmt: skip

Round = list[int]
rounds = st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=5)


def config(counting: int | None = COUNTING) -> ModelConfig:
    return ModelConfig(("a", "b", "c"), exploration=1.0, counting=counting)


def clicks(positions: Round, event: str = "e") -> Feedback:
    """Clicks on a randomised ranking."""
    return Feedback(
        event, "clicks", SHOWN.documents, SHOWN.submitted, clicks=np.array(positions, np.int64),
        odds=SHOWN.odds, query="q",
    )  # fmt: skip


def labels(values: list[float]) -> Feedback:
    return Feedback("l", "labels", SHOWN.documents, SHOWN.submitted, labels=np.array(values))


def learnt(*events: Feedback, counting: int | None = COUNTING) -> ModelState:
    """Return the state after events on one request."""
    reducer, so_far = Reducer(initial_state(config(counting))), PriorFeedback.load(b"")
    for event in events:
        record, after = on_request(event, so_far, counting is not None)
        assert reducer.apply(codec.dump_record(record))
        so_far = PriorFeedback.load(after.dump())
    return reducer.state()


def measures(*events: Feedback) -> Any:
    """Return the sums of the measures, without those of learning."""
    return learnt(*events).sums[MEASURED]


# ---- each ranking once ----


@given(rounds, st.randoms(use_true_random=False))
def test_click_events_in_any_order_end_in_the_same_measures(given: list[Round], rng: Any) -> None:
    shuffled = list(given)
    rng.shuffle(shuffled)
    expected = measures(*map(clicks, given))
    np.testing.assert_allclose(measures(*map(clicks, shuffled)), expected, atol=1e-12)


@given(rounds)
def test_click_events_split_or_joined_end_in_the_same_measures(given: list[Round]) -> None:
    joined = clicks([position for one in given for position in one])
    split = [clicks([position]) for one in given for position in one] or [clicks([])]
    expected = measures(*map(clicks, given))
    np.testing.assert_allclose(measures(joined), expected, atol=1e-12)
    np.testing.assert_allclose(measures(*split), expected, atol=1e-12)


@given(rounds, st.data())
def test_repeated_clicks_and_empty_events_change_no_measure(
    given: list[Round], data: st.DataObject
) -> None:
    repeated = [data.draw(st.sampled_from([*given, []])) for _ in range(3)]
    expected = measures(*map(clicks, given))
    np.testing.assert_allclose(measures(*map(clicks, given + repeated)), expected, atol=1e-12)


def test_an_abandoned_ranking_is_not_a_query() -> None:
    sums = learnt(clicks([]), clicks([])).measures()
    assert (sums["queries"], sums["abandoned"], sums["explored_queries"]) == (0.0, 1.0, 0.0)
    assert sums["ndcg"] == sums["baseline_ndcg"] == 0.0
    assert sums["feedback"] == 2.0


def test_a_click_moves_a_ranking_from_abandoned_to_counted() -> None:
    assert learnt(clicks([]), clicks([1])).measures()["abandoned"] == 0.0
    moved, direct = measures(clicks([]), clicks([1])), measures(clicks([1]))
    assert moved.tobytes() == direct.tobytes()


@pytest.mark.parametrize("given", [*permutations([labels([0.0] * 5), clicks([]), clicks([])])])
def test_labels_count_a_ranking_that_is_otherwise_abandoned(given: list[Feedback]) -> None:
    """Labels of 0 are a judgement: the query counts with 0."""
    sums = learnt(*given).measures()
    assert (sums["queries"], sums["abandoned"], sums["ndcg"]) == (1.0, 0.0, 0.0)


def test_clicks_after_an_abandonment_are_noticed_as_drift_is() -> None:
    """The first click counts as the first feedback on the ranking."""
    after = learnt(clicks([]), clicks([0])).measures()
    assert after["mean_quality"] == learnt(clicks([0])).measures()["mean_quality"] > 0.0


def test_an_event_without_documents_is_rejected() -> None:
    for counting in (None, COUNTING):
        reducer = Reducer(initial_state(config(counting)))
        none = np.zeros((0, 3), np.float32)
        empty = Feedback("e", "clicks", none, np.zeros(0, np.int64), clicks=np.zeros(0, np.int64))
        assert not reducer.apply(codec.dump_record(empty))
        assert reducer.state().measures()["abandoned"] == 0.0


def test_a_record_with_labels_of_another_ranking_is_rejected() -> None:
    record = Feedback(
        "e", "clicks", DOCUMENTS, SUBMITTED, clicks=np.array([1]), counted=np.zeros(3),
        clicked_before=np.zeros(0, np.int64), rounds=np.array([0]),
    )  # fmt: skip
    assert not Reducer(initial_state(config())).apply(codec.dump_record(record))


# ---- models from before ----


def test_a_model_from_before_counts_an_abandoned_ranking_as_a_query_with_0() -> None:
    sums = learnt(clicks([]), counting=None).measures()
    assert (sums["queries"], sums["abandoned"], sums["ndcg"]) == (1.0, 0.0, 0.0)
    clicked = learnt(clicks([]), clicks([1]), counting=None).measures()
    assert (clicked["queries"], clicked["abandoned"]) == (1.0, 0.0)
    assert not any(
        value for name, value in clicked.items() if name.startswith(("square_", "wins_"))
    )


def test_a_model_keeps_its_rule_when_it_is_replaced_and_its_measures_are_reset() -> None:
    for counting in (None, COUNTING):
        state = initial_state(config(counting))
        reducer = Reducer(state)
        for record in (Replace(state.model, "rollback"), ResetMeasures(), clicks([])):
            assert reducer.apply(codec.dump_record(record))
        assert reducer.config.counting == counting
        assert reducer.state().measures()["queries"] == (counting is None)


def test_new_models_have_the_present_rule() -> None:
    assert new_model_config(("a",)).counting == COUNTING


def test_the_largest_gap_is_kept_by_the_present_rule_until_the_measures_are_reset() -> None:
    for counting, expected in ((None, 0.0), (2, 0.0), (COUNTING, 5.0)):
        reducer = Reducer(initial_state(config(counting)))
        for high in (4.0, 1.0):
            documents = np.array([[3.0, high, 0.0], [0.0, 0.0, 0.0]], np.float32)
            event = Feedback("e", "labels", documents, labels=np.array([1.0, 0.0]))
            assert reducer.apply(codec.dump_record(event))
        assert reducer.state().measures()["largest_gap"] == expected
        assert reducer.apply(codec.dump_record(ResetMeasures()))
        assert reducer.state().measures()["largest_gap"] == 0.0


# ---- standard errors ----

values = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=30)


@given(values)
def test_a_standard_error_equals_that_of_the_single_values(given: list[float]) -> None:
    total, squares = sum(given), sum(one * one for one in given)
    found = standard_error(total, squares, len(given))
    assert found == pytest.approx(stdev(given) / sqrt(len(given)), abs=1e-7)
    assert mean(total, len(given)) == pytest.approx(fmean(given))


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.1, 5.0)), min_size=2, max_size=20))
def test_the_error_of_a_share_is_by_queries(given: list[tuple[float, float]]) -> None:
    won, weights = np.array([a * b for a, b in given]), np.array([b for _, b in given])
    share = won.sum() / weights.sum()
    naive = sqrt(sum((won - share * weights) ** 2)) / weights.sum()
    squares = float(won @ won), float(won @ weights), float(weights @ weights)
    assert share_error(won.sum(), weights.sum(), squares) == pytest.approx(naive, abs=1e-7)


@given(st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=6))
def test_products_of_wins_are_those_of_whole_rankings(given: list[Round]) -> None:
    """Each query has one weight and one won weight of each order, however its clicks arrive."""
    reducer, products = Reducer(initial_state(config())), np.zeros(6)
    for clicked in given:
        so_far = PriorFeedback.load(b"")
        before = reducer.state().measures()
        for position in clicked:
            record, so_far = on_request(clicks([position]), so_far, True)
            assert reducer.apply(codec.dump_record(record))
        after = reducer.state().measures()
        names = ("debiased_weight", "debiased_wins", "baseline_debiased_wins")
        w, m, s = (after[name] - before[name] for name in names)
        products += [w * w, m * w, s * w, m * m, s * s, m * s]
    first = SUMS.index("wins_weight_weight")
    np.testing.assert_allclose(
        reducer.state().sums[first : first + 6], products, rtol=1e-9, atol=1e-12
    )


def test_one_query_has_no_standard_error() -> None:
    found = Statistics(learnt(clicks([1])).measures(), with_errors=True).summary()
    assert found["ndcg"]["10"] is not None
    assert set(found["ndcg_stderr"].values()) == {None}
    assert None not in found["debiased_wins"].values()
    assert set(found["debiased_wins_stderr"].values()) == {None}


def test_sums_that_no_list_of_queries_has_give_no_number() -> None:
    """Between two versions, later clicks change the sums of queries that count before."""
    sums = dict.fromkeys(SUMS, 0.0) | {"queries": 2.0, "ndcg@10": 3.5, "square_ndcg@10": 4.0}
    found = Statistics(sums, with_errors=True).summary()
    assert found["ndcg"]["10"] is found["ndcg_stderr"]["10"] is None
    assert found["ndcg"]["5"] == 0.0


def test_without_queries_there_are_no_numbers() -> None:
    found = Statistics(initial_state(config()).measures(), with_errors=True).summary()
    assert (found["queries"], found["abandoned_lists"]) == (0, 0)
    for part in (found, found["baseline"], found["lead"], found["explored"]):
        assert {*part["ndcg"].values(), *part["ndcg_stderr"].values(), part["map"]} == {None}
    assert {*found["debiased_wins"].values(), *found["debiased_wins_stderr"].values()} == {None}
    assert found["explored_share"] is None


def test_a_model_from_before_has_means_without_errors() -> None:
    sums = learnt(clicks([1]), counting=None).measures()
    found = Statistics(sums, with_errors=False).summary()
    assert found["abandoned_lists"] is None
    assert found["lead"]["ndcg"]["10"] == found["ndcg"]["10"] - found["baseline"]["ndcg"]["10"]
    assert set(found["lead"]["ndcg_stderr"].values()) == {None}
    assert set(found["debiased_wins_stderr"].values()) == {None}
