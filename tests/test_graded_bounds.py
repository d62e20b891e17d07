"""Clicks with gains and the bound of a pair: it holds for what the pair gets in all."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import codec
from app.domain.model import ModelState, initial_state
from app.domain.model_config import new_model_config
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.domain.trial import try_pairs
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.limits import LEAST
from app.ranking.solar import GapBatch
from tests.test_graded import ODDS, ROWS, SHOWN, events, naive_pairs, records


class Learnt:
    """Adds up the weight that each pair of rows was learnt with."""

    def __init__(self) -> None:
        self.weights: dict[tuple[int, int], float] = defaultdict(float)

    def learnt(self, _: Any, gaps: GapBatch, steps: Any) -> None:
        assert gaps.omega.size == steps.loss.size
        for p, o, omega in zip(gaps.p.tolist(), gaps.o.tolist(), gaps.omega.tolist(), strict=True):
            assert omega >= LEAST
            self.weights[p, o] += omega

    def forgot(self, *_: Any) -> None:
        pass

    replaced = reset = forgot


def bounded_model(strategy: str, bound: float) -> ModelState:
    config = new_model_config(tuple("abcd"), prior=0.0, clicks=strategy)
    return initial_state(replace(config, pair_bound=bound))


@pytest.mark.parametrize("strategy", CLICK_STRATEGIES)
@given(data=st.data(), bound=st.sampled_from([1e-3, 0.5, 5.0, 1e3]))
def test_a_pair_gets_its_largest_weight_in_all_and_never_more_than_its_bound(
    strategy: str, data: st.DataObject, bound: float
) -> None:
    posted = data.draw(st.lists(events(strategy), min_size=1, max_size=5))
    begin, found = bounded_model(strategy, bound), Learnt()
    kappa, most = begin.model.config.kappa, dict[tuple[int, int], float]()
    reducer = Reducer(begin)
    reducer.watcher = found
    for at, record in enumerate(records(posted), start=1):
        assert reducer.apply(codec.dump_record(record))
        for (p, o), weight in naive_pairs(posted[:at], strategy, kappa).items():
            gap = ROWS[p].astype(float) - ROWS[o]
            most[p, o] = max(most.get((p, o), 0.0), min(weight, bound / float((gap * gap).sum())))
    assert found.weights == pytest.approx(most)
    measures = reducer.state().measures()
    learnt_pairs = measures["stepped"] + measures["passive"] + measures["refused"]
    assert measures["bounded"] <= learnt_pairs


@pytest.mark.parametrize("strategy", ["debiased", "click-skip-above"])
@given(data=st.data())
def test_records_with_gains_have_the_same_bits_wherever_they_are_cut(
    strategy: str, data: st.DataObject
) -> None:
    posted = data.draw(st.lists(events(strategy), min_size=1, max_size=4))
    begin = bounded_model(strategy, 2.0)
    whole, parts = Reducer(begin), Reducer(begin)
    for record in records(posted):
        whole.apply_decoded(b"", record)
        complete = False
        while not complete:
            complete = parts.apply_part(b"", record, data.draw(st.integers(1, 4)))
            parts = Reducer(replace(parts.state(), part=parts.part()))
    found, expected = parts.state(), whole.state()
    assert found.model.weights.tobytes() == expected.model.weights.tobytes()
    assert found.model.spread.tobytes() == expected.model.spread.tobytes()
    assert found.sums.tobytes() == expected.sums.tobytes()


@given(st.lists(events(), min_size=1, max_size=4))
def test_a_trial_of_gains_has_the_pairs_that_the_reducer_learns(posted: list[Feedback]) -> None:
    *earlier, last = records(posted)
    reducer = Reducer(bounded_model("debiased", 0.5))
    for record in earlier:
        reducer.apply_decoded(b"", record)
    tried = try_pairs(reducer.state().model, last)
    found = Learnt()
    reducer.watcher = found
    reducer.apply_decoded(b"", last)
    pairs = zip(tried.preferred.tolist(), tried.other.tolist(), strict=True)
    assert dict(zip(pairs, tried.weights.tolist(), strict=True)) == found.weights
    assert tried.total == len(found.weights)


@pytest.mark.parametrize("bound", [0.5, None])
def test_an_increase_that_is_too_small_to_learn_rejects_nothing(bound: float | None) -> None:
    event = Feedback("e", "clicks", ROWS, np.arange(SHOWN), clicks=np.array([2]), odds=ODDS,
                     gains=np.array([1.0]))  # fmt: skip
    more = replace(event, clicks=np.array([2, 4]), gains=np.array([1.0 + 1e-12, 1.0]))
    begin = bounded_model("debiased", 0.5)
    config = replace(begin.model.config, pair_bound=bound)
    reducer = Reducer(replace(begin, model=replace(begin.model, config=config)))
    for one in records([event, more]):
        assert reducer.apply_decoded(b"", one)
