"""Certainty of the scores, forgetting and drift: oracles, invariants, replay."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain import codec
from app.domain.model import ModelState, initial_state, initial_variances
from app.domain.model_config import ModelConfig, check_config, new_model_config
from app.domain.records import Feedback, Replace, Retune
from app.domain.reducer import Reducer
from app.errors import InvalidInput
from app.ranking import drift
from app.ranking.certainty import FORGET_EVERY, SHARPNESS, UNKNOWN, Certainty, kept_share
from app.ranking.covariance import square, variances
from app.ranking.solar import LinearLearner, SolarI, SolarII, SolarIIDiagonal
from app.ranking.tally import NO_PAIRS, Tally
from app.storage.states import dump_state, load_state

N = 5
NAMES = tuple("abcde")
FORGETTING = 0.01
CONFIG = new_model_config(NAMES, prior=0.0, gamma=50.0, forgetting=FORGETTING)


def rankings(count: int, seed: int = 0, scale: float = 1.0) -> Iterator[Feedback]:
    """Clicks on randomised rankings of six documents."""
    rng = np.random.default_rng(seed)
    for at in range(count):
        yield Feedback(
            f"e{seed}-{at}", "clicks", (scale * rng.random((6, N))).astype(np.float32),
            rng.permutation(6), clicks=rng.choice(6, 2, replace=False),
            odds=rng.random(7) + 0.1,
        )  # fmt: skip


def applied(state: ModelState, records: Sequence[Feedback]) -> ModelState:
    reducer = Reducer(state)
    for record in records:
        assert reducer.apply(codec.dump_record(record))
    return reducer.state()


def bits(state: ModelState) -> tuple[Any, ...]:
    model = state.model
    arrays = model.weights.tobytes(), model.spread.tobytes(), state.sums.tobytes()
    return state.seq, state.chain, model.certainty, *arrays


def stored(state: ModelState) -> ModelState:
    """The state after storing and loading."""
    w, spread, sums, meta = dump_state(state)
    fields = {b"w": w, b"spread": spread, b"sums": sums, b"meta": meta}
    return load_state({**fields, b"seq": str(state.seq).encode(), b"chain": state.chain})


# ---- certainty ----


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0.0, 1e6)), max_size=300))
def test_the_certainty_is_a_running_mean_over_rankings_that_taught(
    taught: list[tuple[int, float]],
) -> None:
    found = UNKNOWN
    for stepped, variance in taught:
        found = found.after(Tally(3, stepped, 1, 0.0, variance))
    mean, count = 0.0, 0
    for stepped, variance in taught:
        if stepped:
            count += 1
            share = max(1.0 / count, 0.01)
            mean = (1.0 - share) * mean + share * variance / stepped
    assert found.rankings == count
    assert found.variance == pytest.approx(mean, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", ["solar-i", "solar-ii", "solar-ii-diagonal"])
def test_steps_report_the_variance_of_each_gap_before_the_step(kind: str) -> None:
    rng = np.random.default_rng(1)
    learner: LinearLearner = {"solar-i": SolarI, "solar-ii": SolarII}.get(kind, SolarIIDiagonal)(N)
    for _ in range(20):
        sigma = np.eye(N)
        if isinstance(learner, SolarII):
            sigma = square(learner.covariance, N)
        elif isinstance(learner, SolarIIDiagonal):
            sigma = np.diag(learner.variances)
        x = rng.standard_normal(N)
        steps = learner.learn(x[None])
        assert steps.stepped == 1
        assert steps.variance[0] == pytest.approx(x @ sigma @ x)
        assert steps.tally(Tally(0, 1, 0, 0.0, 2.5)).variance == 2.5 + steps.variance[0]


def test_pairs_that_do_not_step_have_no_variance_in_the_tally() -> None:
    learner = SolarII(2, gamma=1e-9)
    learner.learn(np.array([[1.0, 0.0]]))
    steps = learner.learn(np.array([[9.0, 0.0], [np.nan, 0.0], [0.0, 0.0]]))
    assert (steps.stepped, steps.tally().variance) == (0, 0.0)
    assert UNKNOWN.after(steps.tally(NO_PAIRS)) is UNKNOWN


def test_the_scale_counts_standard_errors_and_exploration_divides_it() -> None:
    certain = Certainty(4.0, 10)
    assert certain.scale(100.0, 1.0) == SHARPNESS / np.sqrt(4.0 / 100.0)
    assert certain.scale(100.0, 2.0) == certain.scale(100.0, 1.0) / 2.0
    assert UNKNOWN.scale(100.0, 1.0) == certain.scale(100.0, 0.0) == 0.0


@settings(max_examples=20)
@given(st.sampled_from([0.1, 10.0]), st.integers(0, 99))
def test_features_gamma_and_bound_on_another_scale_draw_the_same_rankings(
    factor: float, seed: int
) -> None:
    """Features times f, γ and pair_bound times f²: `scale·scores` stays the same."""
    config = new_model_config(NAMES, prior=0.0, gamma=50.0, pair_bound=5.0, forgetting=0.0)
    scaled = replace(config, gamma=50.0 * factor**2, pair_bound=5.0 * factor**2)
    here = applied(initial_state(config), [*rankings(30, seed)]).model
    there = applied(initial_state(scaled), [*rankings(30, seed, factor)]).model
    rows = np.random.default_rng(seed).random((8, N))
    s = here.certainty.scale(config.noise, 1.0) * (rows @ here.weights)
    t = there.certainty.scale(scaled.noise, 1.0) * (factor * rows @ there.weights)
    np.testing.assert_allclose(t, s, rtol=1e-4, atol=1e-6)  # features are float32


def test_a_model_without_exploration_setting_keeps_its_bytes() -> None:
    former = ModelConfig(NAMES, clicks="debiased")
    state = applied(initial_state(former), [*rankings(40)])
    assert [blob[3] for blob in dump_state(state)] == [1, 1, 1, 1]


# ---- forgetting ----


def test_forgetting_returns_variances_to_their_start_but_at_most_doubles_them() -> None:
    rng = np.random.default_rng(3)
    full, diagonal = SolarII(N, 10.0), SolarIIDiagonal(N, 10.0)
    initial, scales = np.array([1.0, 1.0, 1.0, 1.0, 40.0]), np.array([0.1, 0.3, 1.0, 2.0, 3.0])
    for learner in (full, diagonal):
        learner.learn(scales * rng.standard_normal((30, N)))
    before, shares = square(full.covariance, N), diagonal.variances
    full.forget(0.75, initial)
    diagonal.forget(0.75, initial)
    back = np.minimum(initial, 2.0 * before.diagonal())
    expected = 0.75 * before + 0.25 * np.diag(back)
    np.testing.assert_allclose(square(full.covariance, N), expected, rtol=1e-15)
    alone = 0.75 * shares + 0.25 * np.minimum(initial, 2.0 * shares)
    np.testing.assert_allclose(diagonal.variances, alone, rtol=1e-15)
    assert (before.diagonal() < 0.5).any()  # a variance that would more than double
    assert (before.diagonal() > 0.5).any()
    assert full.trace == pytest.approx(np.trace(expected))
    whole = SolarII(N, 10.0, weights=full.weights, covariance=full.covariance)
    gaps = rng.standard_normal((9, N))
    assert full.learn(gaps).loss.tobytes() == whole.learn(gaps).loss.tobytes()
    assert full.covariance.tobytes() == whole.covariance.tobytes()


def test_solar_i_has_nothing_to_forget() -> None:
    learner = SolarI(N, weights=np.arange(5.0))
    learner.forget(0.5, np.ones(N))
    assert learner.weights.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(InvalidInput, match="forgetting: expected 0 for solar-i"):
        new_model_config(NAMES, algorithm="solar-i", forgetting=0.1)
    assert new_model_config(NAMES, algorithm="solar-i").forgetting == 0.0


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_model_forgets_after_every_sixteenth_ranking_that_taught(covariance: Any) -> None:
    config = replace(CONFIG, covariance=covariance)
    learner = (SolarII if covariance == "full" else SolarIIDiagonal)(N, config.gamma)
    reducer, learnt = Reducer(initial_state(config)), 0
    for record in rankings(50):
        reducer.apply(codec.dump_record(record))
        opened = Reducer(reducer.state())._opened(b"", record)
        taught = learner.learn_batch(opened.gaps).stepped > 0
        learnt += taught
        if taught and learnt % FORGET_EVERY == 0:
            learner.forget((1.0 - FORGETTING) ** FORGET_EVERY, np.ones(N))
    found = variances(reducer.state().model.spread, N)
    spread = learner.covariance if isinstance(learner, SolarII) else learner.variances
    np.testing.assert_allclose(found, variances(spread, N), rtol=1e-12)
    assert learnt > 2 * FORGET_EVERY
    assert reducer.state().model.certainty.rankings == learnt
    assert kept_share(FORGETTING) == pytest.approx((1.0 - FORGETTING) ** FORGET_EVERY)


@settings(max_examples=25)
@given(st.sampled_from(["full", "diagonal"]), st.sets(st.integers(0, 49)), st.integers(0, 9))
def test_a_model_that_forgets_is_replayed_bit_for_bit(
    covariance: Any, restarts: set[int], seed: int
) -> None:
    """However often a learner is restarted from the stored state in between."""
    records, start = [*rankings(50, seed)], initial_state(replace(CONFIG, covariance=covariance))
    state = start
    for at, record in enumerate(records):
        state = applied(stored(state) if at in restarts else state, [record])
    assert bits(state) == bits(applied(start, records))
    assert state.model.certainty.rankings > FORGET_EVERY


@settings(max_examples=25)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(0, 9))
def test_parts_of_a_record_give_the_same_certainty(sizes: list[int], seed: int) -> None:
    records = [*rankings(20, seed)]
    reducer = Reducer(initial_state(CONFIG))
    for record in records:
        blob, at = codec.dump_record(record), 0
        while not reducer.apply_part(blob, record, sizes[at % len(sizes)]):
            at += 1
    assert bits(reducer.state()) == bits(applied(initial_state(CONFIG), records))


def test_a_replaced_model_brings_its_certainty_and_a_warm_start_has_none() -> None:
    learnt = applied(initial_state(CONFIG), [*rankings(20)])
    for model in (learnt.model, replace(learnt.model, certainty=UNKNOWN)):
        reducer = Reducer(initial_state(CONFIG))
        assert reducer.apply(codec.dump_record(Replace(model, "rollback to version 3")))
        assert reducer.state().model.certainty == model.certainty


@pytest.mark.parametrize("bad", [-1e-9, 0.2, float("nan"), float("inf")])
def test_an_impossible_share_is_refused_at_the_edge_and_in_the_reducer(bad: float) -> None:
    with pytest.raises(InvalidInput, match=r"forgetting: expected a number from 0 to 0\.1"):
        check_config(replace(CONFIG, forgetting=bad))
    reducer = Reducer(initial_state(CONFIG))
    assert not reducer.apply(codec.dump_record(Retune(forgetting=bad)))
    assert not reducer.apply(codec.dump_record(Retune(exploration=-1.0)))
    assert reducer.config == CONFIG


def test_settings_change_from_the_next_record_on() -> None:
    reducer = Reducer(initial_state(CONFIG))
    assert reducer.apply(codec.dump_record(Retune(exploration=0.0, forgetting=0.0)))
    assert (reducer.config.exploration, reducer.config.forgetting) == (0.0, 0.0)
    assert not reducer.config.explores
    assert check_config(reducer.config).noise == 50.0


def test_the_prior_starts_with_the_variance_of_its_rankings() -> None:
    config = new_model_config(NAMES, gamma=3e4)
    assert initial_variances(config).tolist() == [1.0] * 5 + [60.0]
    assert initial_variances(replace(config, gamma=1.0)).tolist() == [1.0] * 6


# ---- drift ----


@given(st.lists(st.floats(0.0, 1.0), max_size=60))
def test_the_evidence_of_drift_is_a_cusum(shares: list[float]) -> None:
    mean = evidence = 0.0
    for count, share in enumerate(shares, start=1):
        mean, evidence = drift.after(mean, evidence, share, float(count))
    expected_mean = expected = 0.0
    for count, share in enumerate(shares, start=1):
        if count > 1:
            expected = max(0.0, expected + expected_mean - share - drift.ALLOWANCE)
        expected_mean += (share - expected_mean) / count
    assert evidence == pytest.approx(expected, abs=1e-9)
    assert mean == pytest.approx(expected_mean, abs=1e-9)


def test_quality_that_falls_raises_the_alarm_and_quality_that_rises_does_not() -> None:
    rng = np.random.default_rng(0)

    def alarm(before: float, after: float) -> float:
        mean = evidence = 0.0
        for count in range(1, 4001):
            quality = rng.beta(*((before, 1.0 - before) if count <= 2000 else (after, 1.0 - after)))
            mean, evidence = drift.after(mean, evidence, quality, float(count))
        return evidence

    assert alarm(0.7, 0.5) > drift.ALARM
    assert alarm(0.7, 0.7) < drift.ALARM
    assert alarm(0.5, 0.8) < drift.ALARM


def test_the_reducer_watches_the_first_feedback_on_each_ranking() -> None:
    reducer, mean, evidence = Reducer(initial_state(CONFIG)), 0.0, 0.0
    for count, record in enumerate(rankings(40), start=1):
        before = reducer.state().measures()
        assert reducer.apply(codec.dump_record(record))
        sums = reducer.state().measures()
        quality = sums["ndcg@10"] - before["ndcg@10"]
        mean, evidence = drift.after(mean, evidence, quality, float(count))
        assert sums["mean_quality"] == pytest.approx(mean)
        assert sums["drift"] == pytest.approx(evidence)
    again = replace(record, counted=np.zeros(6), clicked_before=np.zeros(0, np.int64))
    reducer.apply(codec.dump_record(again))
    empty = replace(record, clicks=np.zeros(0, np.int64))
    reducer.apply(codec.dump_record(empty))
    assert reducer.state().measures()["drift"] == sums["drift"]
