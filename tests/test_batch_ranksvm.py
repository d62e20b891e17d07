"""Order tree, RankSVM objectives and Σ after RankSVM equal naive sums over all pairs."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.sparse import csr_array

from app.ranking import covariance
from app.ranking.batch import newton, warmstart
from app.ranking.batch.accuracy import pairwise_accuracy
from app.ranking.batch.direct_counting import DirectCounting
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.ordertree import OrderTree
from app.ranking.batch.ranksvm import Hinge, SquaredHinge, hinge, squared_hinge
from app.ranking.batch.warmstart import covariance_after, variances_after
from app.ranking.online import LabelledQuery
from app.ranking.solar import SolarII, SolarIIDiagonal
from app.ranking.sparse import SparseRows
from tests.oracles_batch import NaiveRankSVM, all_pairs, gaps, inside, naive_variances, sums
from tests.strategies_batch import halves, judged, labels_and_starts


def random_judgements(seed: int, levels: int | None = 5, n: int = 3) -> Judgements:
    """60 documents in 4 queries, one of them empty and one with a single label."""
    rng = np.random.default_rng(seed)
    starts = np.array([0, 25, 25, 50, 60])
    X = rng.standard_normal((60, n))
    drawn = rng.permutation(60) if levels is None else rng.integers(0, levels, 60)
    labels = drawn.astype(np.float64)
    labels[50:] = 1.0
    return Judgements(X, labels, starts)


@settings(max_examples=300)
@given(st.data(), labels_and_starts(), st.sampled_from([1.0, 0.5, 3.0]))
def test_sums_and_counts_equal_those_over_all_pairs(
    data: st.DataObject, known: tuple[Any, Any], margin: float
) -> None:
    labels, starts = known
    scores, u = (
        data.draw(arrays.arrays(np.float64, len(labels), elements=halves(size))) for size in (3, 99)
    )
    pairs = inside(scores, labels, starts, margin)
    expected = [*sums(u, pairs), *sums(np.ones(len(u)), pairs)]
    for structure in (OrderTree.of(labels, starts), DirectCounting.of(labels, starts)):
        assert structure.pairs == len(all_pairs(labels, starts))
        found = structure.at(scores, margin)
        assert [one.tolist() for one in (*found.sums(u), *found.counts())] == expected


@pytest.mark.parametrize("levels", [1, 2, 3, 5, 17, 64, 65, 500])
def test_long_queries_are_sorted_by_merging_runs(levels: int) -> None:
    rng = np.random.default_rng(levels)
    labels = rng.integers(0, levels, 500).astype(np.float64)
    starts = np.array([0, 450, 451, 500])
    scores, u = np.round(8 * rng.standard_normal(500)) / 4, np.round(99 * rng.standard_normal(500))
    pairs = inside(scores, labels, starts, 1.0)
    for structure in (OrderTree.of(labels, starts), DirectCounting.of(labels, starts)):
        found = structure.at(scores).sums(u)
        assert [one.tolist() for one in found] == list(sums(u, pairs))


@pytest.mark.parametrize("levels", [2, 3, None])
def test_direct_counting_and_the_tree_give_the_same_objectives(levels: int | None) -> None:
    judgements, w = random_judgements(7, levels), np.array([0.1, -0.3, 0.2])
    counting = DirectCounting.of(judgements.labels, judgements.starts)
    tree, counted = squared_hinge(judgements, 0.7), SquaredHinge(judgements.X, counting, 0.7)
    here, there = tree.at(w), counted.at(w)
    close = partial(np.testing.assert_allclose, rtol=1e-12)
    close(there.value, here.value)
    close(there.gradient, here.gradient)
    close(there.hessian_product(w), here.hessian_product(w))
    a, b = Hinge(judgements.X, counting, 0.7).at(w), hinge(judgements, 0.7).at(w)
    close(a.toward(b)(0.5)[0].value, b.value)
    found = [newton.minimise(one, tolerance=1e-10).w for one in (tree, counted)]
    close(*found, rtol=1e-9)


@given(st.data(), judged(), st.sampled_from([0.01, 1.0, 30.0]), st.booleans())
def test_both_objectives_equal_those_over_all_pairs(
    data: st.DataObject, judgements: Judgements, C: float, sparse: bool
) -> None:
    w, v = (data.draw(arrays.arrays(np.float64, judgements.n, elements=halves(2))) for _ in "wv")
    naive = NaiveRankSVM(gaps(judgements.X, judgements.labels, judgements.starts), C)
    if sparse:
        judgements = Judgements(csr_array(judgements.X), judgements.labels, judgements.starts)
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9 * C)
    smooth = squared_hinge(judgements, C).at(w)
    close(smooth.value, naive.l2(w))
    close(smooth.gradient, naive.l2_gradient(w))
    close(smooth.hessian_product(v), naive.hessian(w) @ v)
    loss = hinge(judgements, C).at(w)
    close(loss.value + w @ w / 2, naive.l1(w))
    support = naive.gaps[naive.residuals(w) > 0.0]
    close(loss.subgradient, -C * support.sum(axis=0))


@given(st.data(), judged())
def test_the_preconditioner_is_a_weighted_variance_that_bounds_the_diagonal(
    data: st.DataObject, judgements: Judgements
) -> None:
    w = data.draw(arrays.arrays(np.float64, judgements.n, elements=halves(2)))
    X, labels, starts = judgements.X, judgements.labels, judgements.starts
    point = squared_hinge(Judgements(csr_array(X), labels, starts), 0.5).at(w)
    pairs = inside(X @ w, labels, starts, 1.0)
    d = np.bincount(np.ravel(pairs).astype(int), minlength=len(labels))
    naive = np.ones(judgements.n)
    for q in judgements.queries:
        if d[q].any():
            naive += d[q] @ (X[q] - np.average(X[q], axis=0, weights=d[q])) ** 2
    assert point.diagonal is not None
    np.testing.assert_allclose(point.diagonal, naive, rtol=1e-9)
    exact = NaiveRankSVM(gaps(X, labels, starts), 0.5).hessian(w).diagonal()
    assert (exact <= 2.0 * naive * (1.0 + 1e-9)).all()


@pytest.mark.parametrize("levels", [2, 3, 5, None])
def test_the_gradient_equals_finite_differences_of_the_value(levels: int | None) -> None:
    objective, w = squared_hinge(random_judgements(1, levels), 0.7), np.array([0.1, -0.3, 0.2])
    point, h = objective.at(w), 1e-6
    for k, e in enumerate(np.eye(3)):
        slope = (objective.at(w + h * e).value - objective.at(w - h * e).value) / (2 * h)
        assert point.gradient[k] == pytest.approx(slope, rel=1e-6)


def test_points_on_a_line_equal_directly_evaluated_points() -> None:
    loss = hinge(random_judgements(2), 0.3)
    a, b = loss.at(np.array([0.1, 0.2, 0.3])), loss.at(np.array([-1.0, 2.0, 0.5]))
    along = a.toward(b)
    for t in (0.0, 0.25, 1.0):
        point, slope = along(t)
        there = loss.at(a.w + t * (b.w - a.w))
        assert point.value == pytest.approx(there.value, rel=1e-12)
        np.testing.assert_allclose(point.subgradient, there.subgradient, rtol=1e-12)
        assert slope == pytest.approx(float(there.subgradient @ (b.w - a.w)), rel=1e-9)


def test_a_large_offset_common_to_a_query_loses_no_digits() -> None:
    judgements = random_judgements(3)
    moved = judgements.X + 2.0**20 * np.repeat(
        [[1.0], [2.0], [3.0], [4.0]], np.diff(judgements.starts), 0
    )
    w, v = np.array([0.1, -0.3, 0.2]), np.array([1.0, 2.0, 3.0])
    here = squared_hinge(judgements, 1.0).at(w)
    there = squared_hinge(Judgements(moved, judgements.labels, judgements.starts), 1.0).at(w)
    assert there.value == pytest.approx(here.value, rel=1e-8)
    np.testing.assert_allclose(there.hessian_product(v), here.hessian_product(v), rtol=1e-5)


@given(st.data(), labels_and_starts())
def test_accuracy_is_the_share_of_correctly_ordered_pairs(
    data: st.DataObject, known: tuple[Any, Any]
) -> None:
    labels, starts = known
    tiny = st.sampled_from([0.0, 5e-324, 1.0, 1.0 + 2.0**-52])
    elements = st.one_of(halves(2), tiny)
    scores = data.draw(arrays.arrays(np.float64, len(labels), elements=elements))
    pairs = all_pairs(labels, starts)
    right = sum(bool(scores[i] > scores[j]) for i, j in pairs)
    assert pairwise_accuracy(scores, labels, starts) == (right / len(pairs) if pairs else 0.0)


@given(judged(), st.sampled_from([0.5, 100.0, 1e4]), st.booleans())
def test_the_covariance_is_the_inverse_over_all_support_pairs(
    judgements: Judgements, gamma: float, sparse: bool
) -> None:
    w = np.linspace(-0.5, 0.25, judgements.n)
    X = csr_array(judgements.X) if sparse else judgements.X
    found = covariance_after(Judgements(X, judgements.labels, judgements.starts), w, gamma)
    naive = NaiveRankSVM(
        gaps(judgements.X, judgements.labels, judgements.starts), C=1.0 / (2.0 * gamma)
    )
    expected = np.linalg.inv(naive.hessian(w))
    np.testing.assert_allclose(
        covariance.square(found, judgements.n), expected, rtol=1e-9, atol=1e-12
    )
    covariance.check_covariance(found, judgements.n)


def test_the_covariance_equals_that_of_an_online_learner() -> None:
    judgements, gamma = random_judgements(4), 50.0
    w = np.zeros(3)  # every pair is a support vector
    learner = SolarII(3, gamma)
    for gap in gaps(judgements.X, judgements.labels, judgements.starts):
        learner = SolarII(3, gamma, weights=w, covariance=learner.covariance)
        learner.learn(gap[None])
    np.testing.assert_allclose(
        covariance_after(judgements, w, gamma), learner.covariance, rtol=1e-9
    )


@given(
    judged(most=12),
    st.sampled_from([0.5, 100.0, 1e4]),
    st.sampled_from(["dense", "sparse", "through tree"]),
    st.booleans(),
)
def test_the_variances_equal_those_over_all_support_pairs(
    judgements: Judgements, gamma: float, form: str, doubled: bool
) -> None:
    w = np.linspace(-0.5, 0.25, judgements.n)
    X = judgements.X if form == "dense" else csr_array(judgements.X)
    if doubled and form != "dense":  # the same entries, each in two parts
        halves = np.repeat(X.data / 2.0, 2)
        X = csr_array((halves, np.repeat(X.indices, 2), 2 * X.indptr), X.shape)
    limit = -1 if form == "through tree" else warmstart.MOST_COMPARISONS
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(warmstart, "MOST_COMPARISONS", limit)  # -1: all columns use the tree
        found = variances_after(Judgements(X, judgements.labels, judgements.starts), w, gamma)
    support = inside(judgements.X @ w, judgements.labels, judgements.starts, 1.0)
    expected = naive_variances(judgements.X, support, gamma)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("density", [0.001, 0.05, 1.0])
def test_rare_and_frequent_sparse_features_have_the_variances_of_dense_ones(density: float) -> None:
    rng = np.random.default_rng(8)
    X = rng.standard_normal((600, 40)) * (rng.random((600, 40)) < density)
    X[:, 0] = 1e3 + rng.standard_normal(600)  # a feature that all have, and large
    judgements = Judgements(
        X, rng.integers(0, 4, 600).astype(np.float64), np.array([0, 400, 410, 600])
    )
    w = 0.2 * rng.standard_normal(40) * (np.arange(40) > 0)
    sparse = Judgements(csr_array(X), judgements.labels, judgements.starts)
    expected = naive_variances(X, inside(X @ w, judgements.labels, judgements.starts, 1.0), 50.0)
    np.testing.assert_allclose(variances_after(sparse, w, 50.0), expected, rtol=1e-8)
    np.testing.assert_allclose(variances_after(judgements, w, 50.0), expected, rtol=1e-8)


def test_the_variance_of_one_feature_equals_that_of_an_online_learner() -> None:
    judgements, gamma = random_judgements(4, n=1), 50.0
    learner = SolarIIDiagonal(1, gamma)
    for gap in gaps(judgements.X, judgements.labels, judgements.starts):
        learner = SolarIIDiagonal(1, gamma, weights=np.zeros(1), variances=learner.variances)
        learner.learn(gap[None])
    found = variances_after(judgements, np.zeros(1), gamma)
    np.testing.assert_allclose(found, learner.variances, rtol=1e-9)


def test_features_of_very_different_scales_have_a_valid_covariance() -> None:
    judgements = random_judgements(5)
    large = Judgements(judgements.X * [1.0, 1e7, 1e-7], judgements.labels, judgements.starts)
    covariance.check_covariance(covariance_after(large, np.zeros(3), 1.0), 3)


def test_dense_and_sparse_queries_are_joined() -> None:
    dense = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)
    rows = SparseRows((2, 2), np.array([0, 1, 2]), np.array([0, 1]), np.array([1.0, 2.0]))
    labels = np.array([1.0, 0.0])
    for documents in (dense, rows, csr_array(dense)):
        judged = Judgements.of([LabelledQuery(labels, documents)] * 2)
        X = judged.X if documents is dense else judged.X.toarray()
        assert X.tolist() == [[1.0, 0.0], [0.0, 2.0]] * 2
        assert X.dtype == np.float64
        assert judged.starts.tolist() == [0, 2, 4]


@given(labels_and_starts())
def test_queries_with_two_labels_are_found(known: tuple[Any, Any]) -> None:
    labels, starts = known
    judgements = Judgements(np.ones((len(labels), 1)), labels, starts)
    naive = [len(set(labels[q])) > 1 for q in judgements.queries]
    assert judgements.ordering().tolist() == naive


def test_queries_with_one_label_are_dropped_without_changing_the_value() -> None:
    judgements, w = random_judgements(6), np.array([0.3, 0.1, -0.2])
    less = judgements.with_pairs()
    assert len(less.labels) == 50
    assert less.with_pairs() is less
    assert squared_hinge(less, 1.0).at(w).value == squared_hinge(judgements, 1.0).at(w).value


@pytest.mark.parametrize(
    ("X", "labels", "starts", "message"),
    [
        (np.zeros((2, 1)), np.zeros(3), [0, 2], "a label for each row"),
        (np.zeros((2, 1)), np.zeros(2), [0, 3], "ascending numbers from 0 to 2"),
        (np.zeros((2, 1)), np.zeros(2), [0, 2, 1, 2], "ascend"),
        (np.full((2, 1), np.nan), np.zeros(2), [0, 2], "finite"),
    ],
)
def test_inconsistent_judgements_are_refused(
    X: Any, labels: Any, starts: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Judgements(X, labels, np.array(starts))


def test_invalid_parameters_are_refused() -> None:
    judgements = random_judgements(0)
    for C in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="C: expected a positive"):
            squared_hinge(judgements, C)
        with pytest.raises(ValueError, match="gamma: expected a positive"):
            covariance_after(judgements, np.zeros(3), C)
        with pytest.raises(ValueError, match="gamma: expected a positive"):
            variances_after(judgements, np.zeros(3), C)
    with pytest.raises(ValueError, match="at least one"):
        Judgements.of([])
