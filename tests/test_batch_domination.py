"""The domination loss: descent of the true objective, the minimum, and sparsity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array

from app.evaluation.synthetic import SyntheticData
from app.ranking.batch.domination import Descent, Domination, largest_penalty, train_domination
from app.ranking.batch.judgements import Judgements
from tests.oracles import Floats
from tests.oracles_batch import NaiveDomination
from tests.strategies_batch import judged


def naive(judgements: Judgements, penalty: float, margin: float) -> NaiveDomination:
    X = judgements.X if isinstance(judgements.X, np.ndarray) else judgements.X.toarray()
    return NaiveDomination(X, judgements.labels, judgements.starts, penalty, margin)


def synthetic(seed: int, features: int = 6, queries: int = 8) -> Judgements:
    _, drawn = SyntheticData(features, queries, documents=10).draw(np.random.default_rng(seed))
    return Judgements.of(drawn)


@settings(max_examples=150)
@given(
    judged(most=10),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.lists(st.floats(-3.0, 3.0, width=16), min_size=4, max_size=4),
    st.booleans(),
)
def test_every_step_decreases_the_true_objective(
    judgements: Judgements, penalty: float, margin: float, start: list[float], sparse: bool
) -> None:
    true = naive(judgements, penalty, margin)
    if sparse:
        judgements = Judgements(csr_array(judgements.X), judgements.labels, judgements.starts)
    descent = Descent(Domination(judgements, margin), penalty, np.array(start[: judgements.n]))
    before = true.value(descent.w)
    for r in [*range(judgements.n), *range(judgements.n)]:
        distance = descent.step(r)
        after = true.value(descent.w)
        assert descent.value == pytest.approx(after, rel=1e-9, abs=1e-9)
        assert after <= before + 1e-12 * (1.0 + abs(before))
        assert after < before or distance < 1e-4
        before = after


def test_large_scores_neither_overflow_nor_stall() -> None:
    judgements = synthetic(1)
    large = Judgements(judgements.X * 1e3, judgements.labels, judgements.starts)
    descent = Descent(Domination(large), 0.1, np.full(6, 10.0))
    values = [descent.value]
    for r in [*range(6)] * 5:
        descent.step(r)
        values.append(descent.value)
    assert np.isfinite(values).all()
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert values[-1] < values[0]
    assert values[-1] == pytest.approx(naive(large, 0.1, 1.0).value(descent.w), rel=1e-9)


@pytest.mark.parametrize("margin", [0.0, 1.0])
@pytest.mark.parametrize("share", [0.02, 0.2])
def test_training_finds_the_minimum_of_an_independent_solver(margin: float, share: float) -> None:
    judgements = synthetic(2, features=3)
    penalty = share * largest_penalty(judgements, margin)
    found = train_domination(judgements, penalty, margin=margin, tolerance=1e-9, most=5000)
    assert found.converged
    true = naive(judgements, 0.0, margin)

    def split(parts: Floats) -> float:  # |w| is smooth in w⁺ and w⁻
        return true.value(parts[:3] - parts[3:]) + penalty * float(parts.sum())

    exact = minimize(
        split, np.full(6, 0.1), bounds=[(0.0, None)] * 6, options={"ftol": 1e-15, "gtol": 1e-9}
    )
    assert found.value == pytest.approx(exact.fun, rel=1e-7)
    np.testing.assert_allclose(found.w, exact.x[:3] - exact.x[3:], atol=1e-3)


def test_a_larger_penalty_leaves_fewer_nonzero_weights_down_to_none() -> None:
    judgements = synthetic(3, features=20, queries=30)
    most = largest_penalty(judgements)
    shares = [
        train_domination(judgements, factor * most).zeros for factor in (0.0, 0.02, 0.2, 0.999, 1.0)
    ]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[1] < shares[3] < 1.0
    assert shares[4] == 1.0


def test_sparse_and_dense_rows_give_the_same_model() -> None:
    judgements = synthetic(4)
    sparse = Judgements(csr_array(judgements.X), judgements.labels, judgements.starts)
    dense, other = (train_domination(one, 1.0, tolerance=1e-6) for one in (judgements, sparse))
    np.testing.assert_allclose(dense.w, other.w, rtol=1e-9)


def test_training_from_the_minimum_ends_after_one_sweep() -> None:
    judgements = synthetic(5)
    there = train_domination(judgements, 1.0, tolerance=1e-6)
    assert train_domination(judgements, 1.0, start=there.w, tolerance=1e-4).sweeps == 1


def test_an_exception_in_progress_cancels_the_training() -> None:
    def first(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_domination(synthetic(6), 1.0, progress=first)


def test_judgements_without_pairs_give_zero_weights() -> None:
    judgements = Judgements(np.ones((3, 2)), np.ones(3), np.array([0, 3]))
    assert train_domination(judgements, 0.0).w.tolist() == [0.0, 0.0]


def test_invalid_parameters_are_refused() -> None:
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="penalty: expected a number from 0"):
            train_domination(synthetic(7), wrong)
        with pytest.raises(ValueError, match="margin: expected a number from 0"):
            train_domination(synthetic(7), 1.0, margin=wrong)
