"""SOLAR-I and SOLAR-II against naive references, the paper's theorems, and bad input."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import minimize
from scipy.sparse import csc_array, csr_array

from app.ranking.covariance import square
from app.ranking.kernels import PASSIVE, REFUSED, STEPPED
from app.ranking.pairs import Pairs
from app.ranking.solar import LinearLearner, SolarI, SolarII, SolarIIDiagonal
from tests.oracles import NaiveSolarI, NaiveSolarII, NaiveSolarIIDiagonal
from tests.strategies import Stream, rankings, streams, values

MAKERS: list[Any] = [SolarI, SolarII, SolarIIDiagonal]
hyperparameters = st.sampled_from([1e-5, 1e-2, 1.0, 100.0])


def state_of(learner: LinearLearner) -> list[bytes]:
    parts = [learner.weights]
    if isinstance(learner, SolarII):
        parts.append(learner.covariance)
    if isinstance(learner, SolarIIDiagonal):
        parts.append(learner.variances)
    return [part.tobytes() for part in parts]


def naive(oracle: Any, stream: Stream) -> list[float]:
    losses = []
    for x, omega in zip(*stream, strict=True):
        assume(abs(1.0 - oracle.w @ x) > 1e-7)  # on the hinge, rounding decides whether to step
        losses.append(oracle.step(x, omega))
    return losses


# ---- the kernels against naive references ----


@given(streams(), hyperparameters)
def test_solar_i_agrees_with_a_naive_reference(stream: Stream, C: float) -> None:
    learner, oracle = SolarI(stream.n, C), NaiveSolarI(stream.n, C)
    losses = naive(oracle, stream)
    np.testing.assert_allclose(learner.learn(*stream).loss, losses, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(learner.weights, oracle.w, rtol=1e-9, atol=1e-9)


@given(streams(), hyperparameters)
def test_solar_ii_agrees_with_a_naive_reference(stream: Stream, gamma: float) -> None:
    learner, oracle = SolarII(stream.n, gamma), NaiveSolarII(stream.n, gamma)
    losses = naive(oracle, stream)
    np.testing.assert_allclose(learner.learn(*stream).loss, losses, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(learner.weights, oracle.w, rtol=1e-6, atol=1e-6)
    sigma = square(learner.covariance, stream.n)
    np.testing.assert_allclose(sigma, oracle.sigma, rtol=1e-7, atol=1e-9)


@given(streams(), hyperparameters)
def test_diagonal_solar_ii_agrees_with_a_naive_reference(stream: Stream, gamma: float) -> None:
    learner, oracle = SolarIIDiagonal(stream.n, gamma), NaiveSolarIIDiagonal(stream.n, gamma)
    losses = naive(oracle, stream)
    np.testing.assert_allclose(learner.learn(*stream).loss, losses, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(learner.weights, oracle.w, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(learner.variances, np.diag(oracle.sigma), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 46, 136])
def test_scores_equal_the_dot_product_for_every_width(make: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    w, documents = rng.standard_normal(n), rng.standard_normal((5, n))
    learner = make(n, weights=w)
    np.testing.assert_allclose(learner.score(documents), documents @ w, rtol=1e-12, atol=1e-12)


# ---- each step minimises the paper's objective ----


@given(streams(most=4), st.sampled_from([0.1, 1.0, 10.0]))
def test_a_step_of_solar_i_minimises_equation_4(stream: Stream, C: float) -> None:
    learner = SolarI(stream.n, C)
    for x, omega in zip(*stream, strict=True):
        before = learner.weights

        def objective(w: Any, x: Any = x, omega: Any = omega, before: Any = before) -> Any:
            return 0.5 * ((w - before) ** 2).sum() + omega * C * max(0.0, 1.0 - w @ x) ** 2

        learner.learn(x[None], np.array([omega]))
        assert objective(learner.weights) <= minimum(objective, before) + 1e-7


@given(streams(most=4), st.sampled_from([0.1, 1.0, 10.0]))
def test_a_step_of_solar_ii_minimises_equation_7(stream: Stream, gamma: float) -> None:
    learner = SolarII(stream.n, gamma)
    for x, omega in zip(*stream, strict=True):
        before = learner.weights
        precision = np.linalg.inv(square(learner.covariance, stream.n))

        def objective(
            w: Any, x: Any = x, omega: Any = omega, before: Any = before, precision: Any = precision
        ) -> Any:
            far = 0.5 * (w - before) @ precision @ (w - before)
            return far + omega * max(0.0, 1.0 - w @ x) ** 2 / (2.0 * gamma)

        learner.learn(x[None], np.array([omega]))
        assert objective(learner.weights) <= minimum(objective, before) + 1e-7


def minimum(objective: Any, start: Any) -> float:
    return float(minimize(objective, start, method="BFGS", options={"gtol": 1e-8}).fun)


# ---- invariants ----


@given(streams(), hyperparameters, st.data())
def test_theorem_1_holds_for_every_stream_and_comparator(
    stream: Stream, C: float, data: st.DataObject
) -> None:
    u = data.draw(arrays.arrays(np.float64, stream.n, elements=values()))
    x, omega = stream
    loss = SolarI(stream.n, C).learn(x, omega).loss
    of_u = np.maximum(0.0, 1.0 - x @ u)
    moving = (x != 0.0).any(axis=1)  # a zero gap has loss 1 for any w and changes no weight
    paid = (loss**2 / ((x**2).sum(axis=1) + 1.0 / (2.0 * omega * C)))[moving].sum()
    bound = u @ u + 2.0 * C * (omega * of_u**2)[moving].sum()
    assert paid <= bound * (1.0 + 1e-9) + 1e-12


@given(streams(weighted=False), hyperparameters)
def test_the_bound_of_theorem_1_holds_as_the_paper_prints_it(stream: Stream, C: float) -> None:
    x = stream.gaps
    loss = SolarI(stream.n, C).learn(x).loss
    u = np.ones(stream.n)
    largest = (x**2).sum(axis=1).max(initial=0.0)
    of_u = np.maximum(0.0, 1.0 - x @ u)
    bound = (largest + 1.0 / (2.0 * C)) * (u @ u + 2.0 * C * (of_u**2).sum())
    assert (loss**2).sum() <= bound * (1.0 + 1e-9)


@given(streams(), st.sampled_from([1.0, 100.0, 1e4]))
def test_sherman_morrison_holds_for_every_stream(stream: Stream, gamma: float) -> None:
    learner = SolarII(stream.n, gamma)
    moved = learner.learn(*stream).outcome == STEPPED
    x, omega = stream.gaps[moved], stream.weights[moved]
    precision = np.eye(stream.n) + (x.T * omega) @ x / gamma
    product = square(learner.covariance, stream.n) @ precision
    np.testing.assert_allclose(product, np.eye(stream.n), atol=1e-9 * np.linalg.cond(precision))


@given(streams(), hyperparameters)
def test_each_step_reduces_the_variance_along_its_gap(stream: Stream, gamma: float) -> None:
    learner = SolarII(stream.n, gamma)
    trace = float(stream.n)
    for x, omega in zip(*stream, strict=True):
        before = square(learner.covariance, stream.n)
        stepped = learner.learn(x[None], np.array([omega])).stepped
        after = square(learner.covariance, stream.n)
        assert np.array_equal(after, after.T)
        assert (np.diag(after) > 0.0).all()
        assert np.trace(after) <= trace
        trace = np.trace(after)
        if stepped:
            seen = x @ before @ x
            assert x @ after @ x < seen or seen * omega < 1e-9 * gamma  # below float64 precision
        else:
            assert after.tobytes() == before.tobytes()


@given(streams(), st.sampled_from([1.0, 1e4]))
def test_the_covariance_stays_positive_definite(stream: Stream, gamma: float) -> None:
    learner = SolarII(stream.n, gamma)
    learner.learn(*stream)
    assert np.linalg.eigvalsh(square(learner.covariance, stream.n)).min() > 0.0


@pytest.mark.parametrize("make", MAKERS)
def test_pairs_without_loss_change_nothing(make: Any) -> None:
    learner = make(3, weights=np.array([1.0, 2.0, 0.1]))
    before = state_of(learner)
    steps = learner.learn(np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0], [4.0, -1.0, 0.0]]))
    assert steps.outcome.tolist() == [PASSIVE] * 3
    assert steps.loss.tolist() == [0.0] * 3
    assert state_of(learner) == before


@pytest.mark.parametrize("make", MAKERS)
def test_a_zero_gap_has_loss_one_and_changes_nothing(make: Any) -> None:
    learner = make(3, weights=np.array([1.0, 2.0, 0.1]))
    before = state_of(learner)
    steps = learner.learn(np.zeros((2, 3)))
    assert steps.loss.tolist() == [1.0, 1.0]
    assert steps.stepped == steps.refused == 0
    assert state_of(learner) == before


@pytest.mark.parametrize("make", MAKERS)
def test_an_empty_batch_is_accepted(make: Any) -> None:
    learner = make(3)
    assert learner.learn(np.zeros((0, 3))).loss.size == 0
    assert learner.learn_pairs(np.ones((1, 3)), Pairs.of([])).loss.size == 0
    assert learner.learn_pairs(np.ones((0, 3)), Pairs.of([])).loss.size == 0
    assert learner.score(np.zeros((0, 3))).size == 0


@pytest.mark.parametrize("make", MAKERS)
def test_a_model_of_one_feature_learns(make: Any) -> None:
    learner = make(1, 1.0)
    for _ in range(100):
        learner.learn(np.array([[0.5]]))
    assert 1.0 < learner.weights[0] <= 2.0


# ---- weights of pairs ----


@pytest.mark.parametrize("make", MAKERS)
@given(stream=streams())
def test_a_pair_weight_of_one_gives_the_same_bits_as_no_weight(make: Any, stream: Stream) -> None:
    plain, weighted = make(stream.n), make(stream.n)
    plain.learn(stream.gaps)
    weighted.learn(stream.gaps, np.ones(len(stream.gaps)))
    assert state_of(plain) == state_of(weighted)


@given(streams(), st.sampled_from([0.5, 2.0, 8.0]))
def test_a_pair_weight_scales_c_and_gamma(stream: Stream, omega: float) -> None:
    weights = np.full(len(stream.gaps), omega)
    for make, scaled in ((SolarI, omega * 0.25), (SolarII, 64.0 / omega)):
        weighted, plain = make(stream.n, 0.25 if make is SolarI else 64.0), make(stream.n, scaled)
        weighted.learn(stream.gaps, weights)
        plain.learn(stream.gaps)
        assert state_of(weighted) == state_of(plain)


# ---- single pairs, batches, pairs of documents and sparse rows give the same bits ----


@pytest.mark.parametrize("make", MAKERS)
@given(stream=streams(), gamma=hyperparameters)
def test_a_batch_gives_the_same_bits_as_single_pairs(
    make: Any, stream: Stream, gamma: float
) -> None:
    batch, single = make(stream.n, gamma), make(stream.n, gamma)
    steps = batch.learn(*stream)
    one_by_one = [
        single.learn(x[None], np.array([omega])) for x, omega in zip(*stream, strict=True)
    ]
    assert steps.loss.tolist() == [step.loss[0] for step in one_by_one]
    assert steps.outcome.tolist() == [step.outcome[0] for step in one_by_one]
    assert state_of(batch) == state_of(single)


@pytest.mark.parametrize("make", MAKERS)
@given(documents_and_pairs=rankings())
def test_pairs_give_the_same_bits_as_their_gaps(make: Any, documents_and_pairs: Any) -> None:
    documents, pairs = documents_and_pairs
    by_pairs, by_gaps = make(documents.shape[1], 1.0), make(documents.shape[1], 1.0)
    wide = documents.astype(np.float64)
    steps = by_pairs.learn_pairs(documents, pairs)
    again = by_gaps.learn(wide[pairs.preferred] - wide[pairs.other], pairs.weights)
    assert steps.loss.tobytes() == again.loss.tobytes()
    assert state_of(by_pairs) == state_of(by_gaps)


@pytest.mark.parametrize("make", [SolarI, SolarIIDiagonal])
@given(documents_and_pairs=rankings())
def test_sparse_rows_give_the_same_bits_as_dense_rows(make: Any, documents_and_pairs: Any) -> None:
    documents, pairs = documents_and_pairs
    dense, sparse = make(documents.shape[1], 1.0), make(documents.shape[1], 1.0)
    rows = csr_array(documents)
    steps, again = dense.learn_pairs(documents, pairs), sparse.learn_pairs(rows, pairs)
    assert steps.loss.tobytes() == again.loss.tobytes()
    assert steps.outcome.tobytes() == again.outcome.tobytes()
    assert state_of(dense) == state_of(sparse)
    assert dense.score(documents).tobytes() == sparse.score(rows).tobytes()


@given(streams(), st.data(), hyperparameters)
def test_saving_and_restoring_mid_stream_changes_no_bit(
    stream: Stream, data: st.DataObject, gamma: float
) -> None:
    cut = data.draw(st.integers(0, len(stream.gaps)))
    through, first = SolarII(stream.n, gamma), SolarII(stream.n, gamma)
    through.learn(*stream)
    first.learn(stream.gaps[:cut], stream.weights[:cut])
    second = SolarII(stream.n, gamma, weights=first.weights, covariance=first.covariance)
    second.learn(stream.gaps[cut:], stream.weights[cut:])
    assert state_of(second) == state_of(through)


def test_reading_the_covariance_changes_no_bit() -> None:
    gaps = np.random.default_rng(1).standard_normal((50, 13))
    inspected, untouched = SolarII(13, 10.0), SolarII(13, 10.0)
    for gap in gaps:
        inspected.learn(gap[None])
        assert inspected.covariance.shape == (91,)
    untouched.learn(gaps)
    assert state_of(inspected) == state_of(untouched)


def test_sparse_rows_of_ten_million_features_are_learnt() -> None:
    n = 10_000_000
    rows = csr_array(
        (np.array([1.0, 2.0, 1.0]), np.array([0, n - 1, 7]), np.array([0, 2, 3])), shape=(2, n)
    )
    for learner in (SolarI(n, 1.0), SolarIIDiagonal(n, 1.0)):
        learner.learn_pairs(rows, Pairs.of([(0, 1)]))
        w = learner.weights
        assert np.flatnonzero(w).tolist() == [0, 7, n - 1]
        assert w[n - 1] == 2 * w[0] == -2 * w[7] > 0.0


# ---- refused gaps and invalid arguments ----


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e60])
def test_a_gap_that_is_not_finite_or_too_large_is_refused(make: Any, bad: float) -> None:
    learner, untouched = make(3), make(3)
    good = np.array([[1.0, 2.0, 3.0]])
    steps = learner.learn(np.vstack([good, [[0.0, bad, 1.0]], 2.0 * good]))
    assert steps.outcome.tolist() == [STEPPED, REFUSED, STEPPED]
    assert steps.loss[1] == 0.0
    assert (steps.stepped, steps.refused) == (2, 1)
    assert steps.squared_norm == steps.tally().squared_norm == 56.0
    untouched.learn(np.vstack([good, 2.0 * good]))
    assert state_of(learner) == state_of(untouched)


@pytest.mark.parametrize("make", [SolarI, SolarIIDiagonal])
def test_a_sparse_gap_that_is_not_finite_is_refused(make: Any) -> None:
    learner = make(3)
    before = state_of(learner)
    steps = learner.learn(csr_array(np.array([[np.nan, 0.0, 1.0], [0.0, np.inf, 0.0]])))
    assert steps.outcome.tolist() == [REFUSED, REFUSED]
    assert steps.squared_norm == 0.0
    assert state_of(learner) == before


@pytest.mark.parametrize("make", [SolarII, SolarIIDiagonal])
def test_a_gap_that_would_leave_only_rounding_errors_in_the_covariance_is_refused(
    make: Any,
) -> None:
    learner, untouched = make(3, 1.0), make(3, 1.0)
    good = np.array([[1.0, 2.0, 3.0]])
    steps = learner.learn(np.vstack([good, [[0.0, -1e7, 1.0]], good]))
    assert steps.outcome.tolist() == [STEPPED, REFUSED, STEPPED]
    assert steps.loss[1] == 0.0
    untouched.learn(np.vstack([good, good]))
    assert state_of(learner) == state_of(untouched)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("parameter", [1e-12, 1e12])
def test_a_model_at_all_limits_stays_finite_for_extreme_gaps(make: Any, parameter: float) -> None:
    extreme: dict[str, Any] = {"weights": np.array([-1e100, 1e100])}
    if make is SolarII:
        extreme["covariance"] = np.array([1e12, 1e12, 1e12])
    if make is SolarIIDiagonal:
        extreme["variances"] = np.array([1e12, 1e12])
    learner = make(2, parameter, **extreme)
    gaps = np.array([[1e49, -1e49], [-1e49, 1e-49], [1e-300, 1.0], [3e38, -3e38]])
    for _ in range(3):
        learner.learn(np.vstack([gaps, -gaps]), np.array([1e-12, 1e12] * 4))
        assert all(np.isfinite(np.frombuffer(part)).all() for part in state_of(learner))


@st.composite
def parallel_streams(draw: st.DrawFn) -> Any:
    """Gaps along two directions, at scales from tiny to huge: they shrink Σ fastest."""
    directions = draw(arrays.arrays(np.float64, (2, 3), elements=values(3.0)))
    scales = st.sampled_from([10.0**power for power in range(-3, 13)])
    picks = draw(st.lists(st.tuples(st.integers(0, 1), scales, st.booleans()), max_size=60))
    rows = [directions[at] * scale * (-1.0 if flip else 1.0) for at, scale, flip in picks]
    return np.array(rows).reshape(-1, 3).astype(np.float32)


@given(parallel_streams(), st.sampled_from([1e-3, 1.0, 10.0, 1e4]))
def test_parallel_gaps_at_all_scales_leave_a_valid_covariance(gaps: Any, gamma: float) -> None:
    learner = SolarII(3, gamma)
    learner.learn(gaps)
    sigma = square(learner.covariance, 3)
    assert (np.diag(sigma) > 0.0).all()
    assert np.linalg.eigvalsh(sigma).min() > -1e-15
    SolarII(3, gamma, weights=learner.weights, covariance=learner.covariance)  # can be restored


def test_six_gaps_that_once_made_a_variance_negative_leave_every_variance_positive() -> None:
    x = np.array([522726.40625, -1619995.5, 791977.0], np.float32).astype(np.float64)
    gaps = np.outer([1, 1, 1, -1e5, -10, -1e3], x).astype(np.float32)
    learner = SolarII(3, 10.0)
    learner.learn(gaps)
    assert (np.diag(square(learner.covariance, 3)) > 0.0).all()


def test_huge_collinear_features_keep_the_covariance_definite() -> None:
    rng = np.random.default_rng(0)
    base = rng.standard_normal((3000, 6))
    base[:, 1] = 1.1 * base[:, 0] + 1e-3 * rng.standard_normal(3000)
    learner = SolarII(6)
    learner.learn(1e8 * base)
    assert np.linalg.eigvalsh(square(learner.covariance, 6)).min() > 0.0
    assert np.isfinite(learner.weights).all()


@given(
    st.lists(
        st.lists(st.floats(width=32, allow_nan=True), min_size=3, max_size=3),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([1e-12, 1e-5, 1.0, 1e12]),
)
def test_the_model_stays_finite_for_any_gaps(rows: list[list[float]], parameter: float) -> None:
    gaps = np.array(rows)
    for make in MAKERS:
        learner = make(3, parameter)
        learner.learn(gaps)
        assert np.isfinite(learner.weights).all()
        if isinstance(learner, SolarII):
            sigma = square(learner.covariance, 3)
            assert np.isfinite(sigma).all()
            assert (np.diag(sigma) > 0.0).all()
        if isinstance(learner, SolarIIDiagonal):
            assert np.isfinite(learner.variances).all()
            assert (learner.variances > 0.0).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: SolarI(0), "n: expected 1 to 10000000 features, got 0"),
        (lambda: SolarI(3, -1.0), "C: expected a value from 1e-12"),
        (lambda: SolarI(3, np.nan), "C: expected a value from 1e-12"),
        (lambda: SolarII(3, 0.0), "gamma: expected a value from 1e-12"),
        (lambda: SolarII(2001), "n: expected at most 2000 features with a full covariance"),
        (lambda: SolarI(3, weights=np.array([1.0, np.nan, 0.0])), "weights: expected numbers from"),
        (lambda: SolarI(3, weights=np.array([1.0, 1e101, 0.0])), "weights: expected numbers from"),
        (lambda: SolarII(1, covariance=np.array([1e13])), "covariance: expected numbers from"),
        (lambda: SolarIIDiagonal(1, variances=np.array([np.inf])), "variances: expected numbers"),
        (lambda: SolarI(3, weights=np.ones(4)), r"weights: expected shape \(3,\), got \(4,\)"),
        (lambda: SolarII(2, covariance=np.ones(4)), r"covariance: expected shape \(3,\)"),
        (lambda: SolarII(2, covariance=np.array([1.0, 0.0, 0.0])), "covariance: expected a posit"),
        (lambda: SolarIIDiagonal(2, variances=np.array([1.0, 0.0])), "variances: expected posi"),
        (lambda: SolarI(3).learn(np.ones((1, 4))), "rows: expected 3 features, got 4"),
        (lambda: SolarI(3).learn(np.ones(3)), "rows: expected two dimensions, got 1"),
        (lambda: SolarI(3).learn(np.ones((1, 3)), np.ones(2)), "weights: expected 1 values"),
        (lambda: SolarI(3).learn(np.ones((1, 3)), np.zeros(1)), "weights: expected values from"),
        (lambda: SolarI(3).learn(np.ones((1, 3)), np.full(1, np.nan)), "weights: expected values"),
        (
            lambda: SolarI(3).learn_pairs(np.ones((2, 3)), Pairs.of([(0, 2)])),
            "rows from 0, below 2",
        ),
        (
            lambda: SolarI(3).learn_pairs(np.ones((2, 3)), Pairs.of([(-1, 0)])),
            "rows from 0, below 2",
        ),
        (
            lambda: SolarI(3).learn_pairs(
                np.ones((2, 3)), Pairs(np.zeros(2, int), np.zeros(1, int), np.ones(2))
            ),
            "pairs: expected equal numbers of other and preferred, got 1, 2",
        ),
        (
            lambda: SolarI(3).learn_pairs(
                np.ones((2, 3)),
                Pairs(np.zeros(1), np.ones(1), np.ones(1)),  # type: ignore[arg-type]
            ),
            "pairs: expected integer rows",
        ),
        (lambda: SolarII(2, covariance=np.array([1.0, 2.0, 1.0])), "covariance: expected correl"),
        (lambda: SolarII(3).learn(csr_array(np.ones((1, 3)))), "dense rows for SolarII, got spars"),
        (lambda: SolarI(3).learn(csc_array(np.ones((3, 3)))), "expected CSR form, got csc"),
    ],
)
def test_invalid_arguments_raise_a_clear_error(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("indptr", "indices"),
    [
        ([0, 3], [0, 1, 3]),  # a column out of range
        ([0, 3], [0, 2, 1]),  # columns that do not ascend
        ([0, 3], [0, 1, 1]),  # a column twice
        ([0, 3], [-1, 1, 2]),
        ([1, 3], [0, 1, 2]),  # does not start at 0
        ([0, 2], [0, 1, 2]),  # ends early
        ([0, 9], [0, 1, 2]),  # exceeds the number of values
        ([0, 2, 1], [0, 1, 2]),  # more rows than the shape has
        ([0, 3], [0, 1]),  # fewer columns than values
    ],
)
def test_malformed_sparse_rows_are_refused(indptr: list[int], indices: list[int]) -> None:
    class Rows:
        shape = (1, 3)
        data = np.ones(3)

    rows = Rows()
    rows.indptr, rows.indices = np.array(indptr), np.array(indices)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="sparse rows: expected"):
        SolarI(3).learn(rows)


def test_row_starts_that_exceed_the_values_and_then_descend_are_refused() -> None:
    class Rows:
        shape = (2, 3)
        data = np.ones(3)
        indptr = np.array([0, 9, 3])
        indices = np.array([0, 1, 2])

    with pytest.raises(ValueError, match="sparse rows: expected"):
        SolarI(3).learn(Rows())


def test_the_number_of_features_may_be_a_numpy_integer() -> None:
    for n in (np.uint8(250), np.int32(5), np.uint64(3)):
        assert SolarI(n).learn(np.ones((50, int(n)))).stepped > 0  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        SolarI(3.0)  # type: ignore[arg-type]


def test_models_without_a_full_covariance_accept_wide_dense_rows() -> None:
    gaps = np.random.default_rng(0).random((3, 3001)) - 0.5
    for make in (SolarI, SolarIIDiagonal):
        dense, sparse = make(3001, 1.0), make(3001, 1.0)
        dense.learn(gaps)
        sparse.learn(csr_array(gaps))
        assert state_of(dense) == state_of(sparse)


def test_the_default_parameters_are_those_of_the_paper() -> None:
    gap = np.array([[2.0]])
    first, second = SolarI(1), SolarII(1)
    first.learn(gap)
    second.learn(gap)
    assert first.weights[0] == pytest.approx(2.0 / (4.0 + 1.0 / 2e-5), rel=1e-14)
    assert second.weights[0] == pytest.approx(2.0 / (4.0 + 1e4), rel=1e-14)


def test_returned_arrays_are_read_only() -> None:
    learner = SolarII(2)
    diagonal = SolarIIDiagonal(2)
    for array in (learner.weights, learner.covariance, diagonal.variances):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0


def test_read_only_documents_are_accepted() -> None:
    documents = np.ones((2, 3), np.float32)
    documents[1] = 0.0
    documents.flags.writeable = False
    assert SolarI(3).learn_pairs(documents, Pairs.of([(0, 1)])).stepped == 1


# ---- long streams ----


def test_ten_million_updates_keep_the_covariance_exact() -> None:
    n, gamma, chunk = 6, 1e4, 500_000
    rng = np.random.default_rng(7)
    learner = SolarII(n, gamma)
    precision, updates = np.eye(n), 0
    for _ in range(20):
        gaps = rng.random((chunk, n)) - 0.5
        moved = learner.learn(gaps).outcome == STEPPED
        precision += gaps[moved].T @ gaps[moved] / gamma
        updates += int(moved.sum())
    assert updates == 10_000_000
    sigma = square(learner.covariance, n)
    assert np.array_equal(sigma, sigma.T)
    assert np.linalg.eigvalsh(sigma).min() > 0.0
    np.testing.assert_allclose(sigma, np.linalg.inv(precision), rtol=1e-9, atol=1e-12)


def test_ten_million_steps_of_solar_i_stay_bounded() -> None:
    rng = np.random.default_rng(8)
    learner, C = SolarI(6, 1e-5), 1e-5
    for _ in range(20):
        learner.learn(rng.random((500_000, 6)) - 0.5)
    assert (learner.weights**2).sum() <= 2.0 * C * 10_000_000  # Theorem 1 with u = 0
