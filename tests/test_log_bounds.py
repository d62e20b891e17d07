"""Loss bounds of models over their logs: every kind of record, and what is printed."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain import codec
from app.domain.model import ModelState, initial_state
from app.domain.model_config import ModelConfig, new_model_config
from app.domain.records import Feedback, Replace, ResetMeasures, Retune
from app.domain.reducer import Reducer
from app.learning.loss_bounds import MOST_PAIR_BYTES, LossBounds
from app.ranking.solar import GapBatch, Steps
from tests.test_certainty import N, rankings
from tests.test_reducer import ALGORITHMS, LOG, applied, blob_logs, start

algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=" ".join)


def watched(begin: ModelState, log: Sequence[bytes], most: int = MOST_PAIR_BYTES) -> LossBounds:
    """Return the bounds after the replay of a log."""
    reducer = Reducer(begin)
    reducer.watcher = bounds = LossBounds(begin, applied(begin, log), most)
    for blob in log:
        reducer.apply(blob)
    return bounds


def model(algorithm: tuple[Any, Any], **settings: Any) -> ModelState:
    """Return a new model of the features of `rankings`."""
    names = tuple(f"f{at}" for at in range(N))
    config = new_model_config(
        names, algorithm=algorithm[0], covariance=algorithm[1], prior=0.0, **settings
    )
    return initial_state(config)


def clicks(count: int, seed: int = 0) -> list[bytes]:
    return [codec.dump_record(one) for one in rankings(count, seed)]


@algorithms
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_log_exceeds_its_bounds(algorithm: Any, data: st.DataObject) -> None:
    """A replacement may be of another kind: then the bounds cover the records after it."""
    begin = start(algorithm=algorithm[0], covariance=algorithm[1], C=0.5, gamma=10.0)
    bounds = watched(begin, data.draw(blob_logs()))
    rows = bounds.rows()
    assert bounds.problems(rows) == []
    assert all(line for line in bounds.lines(rows))


@algorithms
def test_a_log_with_forgetting_new_settings_and_a_rollback_has_bounds(algorithm: Any) -> None:
    forgetting = {} if algorithm[0] == "solar-i" else {"forgetting": 0.01}
    begin = model(algorithm, **forgetting)
    early = applied(begin, clicks(20))
    retune = codec.dump_record(Retune(C=0.1, gamma=50.0))
    rollback = codec.dump_record(Replace(early.model, "rollback"))
    log = [*clicks(40, 1), retune, *clicks(40, 2), rollback, *clicks(40, 3)]
    for first in (begin, early):  # the second log begins in the middle of a model's life
        bounds = watched(first, log)
        final, batch = bounds.rows()
        stepped = applied(first, log).measures()["stepped"] - first.measures()["stepped"]
        assert final.pairs == batch.pairs == stepped > 100
        assert final.loss == batch.loss > 0.0
        assert 0.1 < final.ratio <= 1.0
        assert 0.1 < batch.ratio <= 1.0


def test_the_final_weights_of_solar_ii_reach_the_bound() -> None:
    bounds = watched(model(("solar-ii", "full"), forgetting=0.0), clicks(60))
    final, batch = bounds.rows()
    assert final.ratio == pytest.approx(1.0, rel=1e-9)
    assert batch.ratio <= final.ratio


@algorithms
def test_batch_ranksvm_covers_the_first_pairs_if_memory_is_short(algorithm: Any) -> None:
    log = clicks(60)
    bounds = watched(model(algorithm), log, most=10_000)
    final, batch = bounds.rows()
    assert 0 < batch.pairs < final.pairs
    whole = watched(model(algorithm), log[: len(log)])
    assert whole.rows()[1].pairs == final.pairs
    assert bounds.problems([final, batch]) == []


def labels(count: int) -> list[bytes]:
    rng = np.random.default_rng(5)
    found = []
    for at in range(count):
        documents = rng.random((8, N)).astype(np.float32)
        grades = np.floor(3.0 * documents[:, 0])
        found.append(
            codec.dump_record(Feedback(f"l{at}", "labels", documents, labels=grades.astype(float)))
        )
    return found


@algorithms
def test_a_learner_that_learns_nothing_exceeds_its_bound(algorithm: Any) -> None:
    class Idle(LossBounds):
        """Sees every loss as it was before the first pair."""

        def learnt(self, config: ModelConfig, gaps: GapBatch, steps: Steps) -> None:
            super().learnt(config, gaps, steps._replace(loss=np.ones(steps.loss.size)))

    begin, log = model(algorithm, forgetting=0.0, C=5.0, gamma=0.1), labels(60)
    reducer = Reducer(begin)
    reducer.watcher = bounds = Idle(begin, applied(begin, log))
    for blob in log:
        reducer.apply(blob)
    problems = bounds.problems(bounds.rows())
    assert problems
    for problem in problems:
        assert re.fullmatch(r"Theorem .*: the loss [\d.]+ exceeds the bound [\d.]+", problem)


def test_theorems_1_and_2_are_printed_as_published() -> None:
    begin, log = model(("solar-i", "full"), C=0.01), labels(30)
    bounds, sums = watched(begin, log), applied(begin, log).measures()
    rows = bounds.rows()
    first, second, published, quality = bounds.lines(rows)
    assert first.startswith("Theorem 1, final weights: ")
    assert second.startswith("Theorem 1, batch RankSVM: ")
    factor, best = sums["largest_gap"] ** 2 + 1.0 / (2.0 * 0.01), min(one.bound for one in rows)
    assert published == (
        f"Theorem 1, squared loss: {sums['squared_loss']:.6g}, bound {factor * best:.6g}, "
        f"R {sums['largest_gap']:.6g}, ratio {sums['squared_loss'] / (factor * best):.4f}"
    )
    assert bounds.problems(rows) == []
    assert sums["squared_loss"] <= factor * best
    ndcg, precision = sums["ndcg"] / 30.0, sums["map"] / 30.0
    assert quality == (
        f"Theorem 2: NDCG {ndcg:.4f} and MAP {precision:.4f}, "
        f"bound {1.0 - factor * best / 30.0:.4g}: vacuous, as no measure is below 0"
    )


def test_equal_documents_add_the_same_loss_to_both_sides() -> None:
    documents = np.ones((2, N), np.float32)
    tied = Feedback("t", "labels", documents, labels=np.array([1.0, 0.0]))
    begin, log = model(("solar-i", "full")), [*labels(3), codec.dump_record(tied)]
    bounds, sums = watched(begin, log), applied(begin, log).measures()
    assert f"squared loss: {sums['squared_loss']:.6g}, " in bounds.lines(bounds.rows())[2]


def test_after_a_reset_of_the_measures_there_is_no_bound_of_them() -> None:
    begin = model(("solar-i", "full"))
    bounds = watched(begin, [*labels(3), codec.dump_record(ResetMeasures()), *labels(3)])
    lines = bounds.lines(bounds.rows())
    assert len(lines) == 3
    assert "R " not in lines[2]


def test_a_log_without_steps_and_one_of_another_kind_are_named() -> None:
    begin = start()
    bounds = watched(begin, [])
    assert bounds.lines(bounds.rows()) == ["loss bound: no pair of the log changed the model"]
    other = codec.dump_record(Replace(start(algorithm="solar-i").model, ""))
    bounds = LossBounds(begin, applied(begin, [other]))
    assert bounds.lines(bounds.rows()) == [
        "loss bound: not covered: records of another kind of model"
    ]
    bounds = watched(begin, [*LOG, other, *LOG])
    lines = bounds.lines(bounds.rows())
    assert lines[0] == (
        "loss bound: not covered before a replacement: records of another kind of model"
    )
    assert len(lines) == 4  # the measures are of the whole log: they have no bound


def test_a_covariance_that_is_not_definite_is_named() -> None:
    begin = start(2)
    spoilt = replace(begin.model, spread=np.array([1.0, 1.0, 1.0]))
    bounds = LossBounds(replace(begin, model=spoilt), begin)
    assert bounds.lines(bounds.rows()) == [
        "loss bound: not covered: covariance: expected one that is positive definite in float64"
    ]
