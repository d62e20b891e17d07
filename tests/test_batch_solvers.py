"""The solvers find the minimum of independent solvers over explicit pairs."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear, minimize
from scipy.sparse import csr_array

from app.evaluation.synthetic import SyntheticData
from app.ranking.batch import bundle, domination, newton, path
from app.ranking.batch.accuracy import pairwise_accuracy
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.ranksvm import hinge, squared_hinge
from app.ranking.batch.simplex import highest
from app.ranking.batch.trainers import GRID, TRAINERS, Kind, trainer
from tests.oracles import Floats, ndcg, ranking
from tests.oracles_batch import NaiveRankSVM, gaps


def synthetic(seed: int, levels: int | None) -> Judgements:
    """Three queries of 15 documents with 4 features and noisy labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((45, 4))
    worth = X @ [1.0, -0.5, 0.25, 0.0] + 0.5 * rng.standard_normal(45)
    labels = worth if levels is None else np.floor(levels * (np.argsort(np.argsort(worth)) / 45))
    return Judgements(X, labels, np.array([0, 15, 30, 45]))


CASES = [(levels, C) for levels in (2, 3, 5, None) for C in (1e-3, 0.1, 10.0)]


@pytest.mark.parametrize(("levels", "C"), CASES)
def test_newton_finds_the_minimum_over_explicit_pairs(levels: int | None, C: float) -> None:
    judged = synthetic(1, levels)
    naive = NaiveRankSVM(gaps(judged.X, judged.labels, judged.starts), C)
    exact = minimize(
        naive.l2, np.zeros(4), jac=naive.l2_gradient, hess=naive.hessian, method="trust-exact",
        options={"gtol": 1e-10, "maxiter": 500},
    )  # fmt: skip
    found = newton.minimise(squared_hinge(judged, C), tolerance=1e-9)
    assert found.converged
    np.testing.assert_allclose(found.w, exact.x, rtol=1e-5, atol=1e-7)
    assert found.value == pytest.approx(naive.l2(found.w), rel=1e-12)
    assert found.distance <= 1e-9 * np.linalg.norm(naive.l2_gradient(np.zeros(4)))
    rough = newton.minimise(squared_hinge(judged, C))
    assert rough.distance <= 1e-3 * np.linalg.norm(naive.l2_gradient(np.zeros(4)))


def certificate(naive: NaiveRankSVM, w: Floats) -> float:
    """A dual value, Σα - ½‖Σ α x‖² with 0 ≤ α ≤ C: a lower bound of the L1 objective.

    At the optimum α is C inside the margin and 0 outside; on the margin it solves w = Σ α x.
    """
    margin = naive.gaps @ w
    edge = np.abs(margin - 1.0) < 1e-3
    alpha = np.where(margin < 1.0, naive.C, 0.0)
    alpha[edge] = 0.0
    if edge.any():
        rest = w - naive.gaps.T @ alpha
        alpha[edge] = lsq_linear(naive.gaps[edge].T, rest, (0.0, naive.C), tol=1e-14).x
    u = naive.gaps.T @ alpha
    return float(alpha.sum() - u @ u / 2)


@pytest.mark.parametrize(("levels", "C"), CASES)
def test_cutting_planes_reach_the_dual_bound_over_explicit_pairs(
    levels: int | None, C: float
) -> None:
    judged = synthetic(2, levels)
    naive = NaiveRankSVM(gaps(judged.X, judged.labels, judged.starts), C)
    found = bundle.minimise(hinge(judged, C), tolerance=1e-7)
    assert found.converged
    assert found.value == pytest.approx(naive.l1(found.w), rel=1e-12)
    bound = certificate(naive, found.w)
    assert bound <= found.value * (1.0 + 1e-12)
    assert found.value - bound <= 1e-5 * found.value
    # the objective is strongly convex, so ½‖w - w*‖² has the same bound
    assert found.value - found.distance <= found.value * (1.0 + 1e-12)


@given(st.integers(0, 10**6), st.sampled_from([1e-3, 0.1, 3.0]))
@settings(max_examples=20)
def test_the_planes_give_a_lower_bound_of_the_minimum(seed: int, C: float) -> None:
    judged = synthetic(seed, 3)
    loss, seen = hinge(judged, C), []
    w = None if seed % 2 else np.random.default_rng(seed).standard_normal(4)
    bundle.minimise(loss, w, tolerance=1e-4, progress=lambda *step: seen.append(step))
    values = [value for _, value, _, _ in seen]
    assert values == sorted(values, reverse=True)
    best = bundle.minimise(loss, tolerance=1e-8).value
    assert all(value - gap <= best * (1 + 1e-9) for _, value, gap, _ in seen)


def test_cutting_planes_that_start_at_the_minimum_stay_there() -> None:
    loss = hinge(synthetic(9, 3), 1.0)
    there = bundle.minimise(loss, tolerance=1e-7)
    again = bundle.minimise(loss, there.w, tolerance=1e-6)
    assert again.value <= there.value
    assert again.converged
    assert again.iterations < there.iterations


@given(st.integers(0, 10**6), st.integers(1, 12))
@settings(max_examples=30)
def test_the_quadratic_programme_is_solved(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, 3)), rng.standard_normal(m)
    alpha = highest(a @ a.T, b, np.eye(m)[0], 1e-12)
    assert alpha.min() >= 0.0
    assert alpha.sum() == pytest.approx(1.0)
    slope = b - a @ (a.T @ alpha)
    assert slope.max() - alpha @ slope <= 1e-9  # the optimality condition


def test_sparse_and_dense_rows_give_the_same_models() -> None:
    judged = synthetic(3, 3)
    sparse = Judgements(csr_array(judged.X), judged.labels, judged.starts)
    smooth = [newton.minimise(squared_hinge(one, 0.1), tolerance=1e-8) for one in (judged, sparse)]
    hinged = [bundle.minimise(hinge(one, 0.1), tolerance=1e-9) for one in (judged, sparse)]
    for dense, other in (smooth, hinged):
        np.testing.assert_allclose(dense.w, other.w, rtol=1e-4)


@pytest.mark.parametrize("C", [1e-4, 1.0, 1e4])
def test_judgements_without_pairs_give_zero_weights(C: float) -> None:
    judged = Judgements(np.ones((3, 2)), np.ones(3), np.array([0, 3]))
    for empty in (judged, judged.with_pairs()):
        assert newton.minimise(squared_hinge(empty, C)).w.tolist() == [0.0, 0.0]
        assert bundle.minimise(hinge(empty, C)).w.tolist() == [0.0, 0.0]


class Hyperbola:
    """f(w) = Σ √(1 + w²), on which full Newton steps diverge from any start beyond ±1."""

    n, diagonal = 2, None

    def __init__(self, w: Floats | None = None) -> None:
        self.w = np.zeros(2) if w is None else w
        root = np.sqrt(1.0 + self.w**2)
        self.value, self.gradient = float(root.sum()), self.w / root
        self._curve = root**-3

    def at(self, w: Floats) -> "Hyperbola":
        return Hyperbola(w)

    def hessian_product(self, v: Floats) -> Floats:
        return np.asarray(self._curve * v)


def test_newton_steps_stay_within_the_trust_region() -> None:
    start = np.array([5.0, -3.0])
    point = Hyperbola(start)
    step = newton.truncated_step(point, radius=0.5)
    assert step.on_boundary
    assert step.length == np.linalg.norm(step.s) == pytest.approx(0.5)
    assert step.slope == pytest.approx(point.gradient @ step.s)
    assert step.predicted == pytest.approx(step.slope + step.s @ point.hessian_product(step.s) / 2)
    assert not newton.truncated_step(point, radius=1e9).on_boundary
    found = newton.minimise(Hyperbola(), start, tolerance=1e-9, scale=1.0)
    assert found.converged
    np.testing.assert_allclose(found.w, 0.0, atol=1e-8)


@pytest.mark.parametrize(
    ("share", "on_boundary", "least", "most"),
    [(0.76, True, 8.0, 8.0), (0.76, False, 2.0, 3.0), (0.5, True, 0.5, 2.0), (0.1, True, 0.5, 1.0)],
)
def test_the_radius_grows_fourfold_only_after_a_good_step_to_the_boundary(
    share: float, on_boundary: bool, least: float, most: float
) -> None:
    step = newton.Step(np.array([2.0]), 2.0, -1.0, -0.5, 1, on_boundary)
    assert least <= newton.resized(2.0, step, -0.5 * share) <= most


class Quadratic:
    """`½ w·Hw - b·w` for a random H with entries of very different sizes."""

    n = 6

    def __init__(self, seed: int, preconditioned: bool) -> None:
        rng = np.random.default_rng(seed)
        root = rng.standard_normal((6, 6)) * 10.0 ** rng.uniform(-2, 2, 6)
        self.H, self.b = root.T @ root + np.eye(6), rng.standard_normal(6)
        self.diagonal = self.H.diagonal() if preconditioned else None

    def at(self, w: Floats) -> "Quadratic":
        self.w, self.gradient = w, self.H @ w - self.b
        self.value = float(w @ (self.gradient - self.b)) / 2
        return self

    def hessian_product(self, v: Floats) -> Floats:
        return np.asarray(self.H @ v)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_a_newton_step_without_a_boundary_solves_the_linear_system(
    preconditioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newton, "FORCING", 1e-10)
    point = Quadratic(1, preconditioned).at(np.ones(6))
    model = newton.Preconditioned.of(point)
    step = newton.truncated_step(model, radius=1e9)
    exact = np.linalg.solve(point.H, point.b) - point.w
    np.testing.assert_allclose(model.unscaled(step.s), exact, rtol=1e-7)
    np.testing.assert_allclose(step.predicted, -exact @ point.H @ exact / 2, rtol=1e-7)


@pytest.mark.parametrize("radius", [1e-3, 0.1])
def test_a_preconditioned_step_stays_in_the_trust_region_of_its_norm(radius: float) -> None:
    point = Quadratic(2, preconditioned=True).at(np.ones(6))
    model = newton.Preconditioned.of(point)
    step = newton.truncated_step(model, radius)
    w = model.unscaled(step.s)
    assert step.on_boundary
    assert np.sqrt(w @ (point.H.diagonal() * w)) == pytest.approx(radius)
    assert step.predicted == pytest.approx(point.gradient @ w + w @ point.H @ w / 2)


def rare_and_frequent(documents: int = 600, n: int = 300) -> Judgements:
    """Sparse rows; the first features are in most documents, the last ones in almost none."""
    rng = np.random.default_rng(3)
    columns = np.floor(3.0 * rng.pareto(0.7, (documents, 12))) % n
    X = np.zeros((documents, n))
    for row, some in zip(X, columns.astype(int), strict=True):
        row[some] = rng.uniform(0.1, 1.1, 12)
    worth = X @ rng.standard_normal(n) + rng.standard_normal(documents)
    labels = (worth > np.quantile(worth, 0.8)).astype(np.float64)
    return Judgements(csr_array(X), labels, np.arange(0, documents + 1, 10))


def test_sparse_rows_are_preconditioned_and_need_fewer_products_for_the_same_minimum() -> None:
    sparse = rare_and_frequent()
    dense = Judgements(sparse.X.toarray(), sparse.labels, sparse.starts)
    assert squared_hinge(dense, 1.0).at(np.zeros(dense.n)).diagonal is None
    fast, slow = (newton.minimise(squared_hinge(one, 1.0)) for one in (sparse, dense))
    assert fast.products < 0.6 * slow.products
    exact = [newton.minimise(squared_hinge(one, 1.0), tolerance=1e-11) for one in (sparse, dense)]
    assert exact[0].value == pytest.approx(exact[1].value, rel=1e-12)
    np.testing.assert_allclose(exact[0].w, exact[1].w, atol=1e-8)


class Cancelled(Exception):
    pass


def test_progress_is_called_every_iteration_and_its_exception_cancels() -> None:
    judged = synthetic(4, 3)

    def third(iteration: int, objective: float, distance: float, w: Floats) -> None:
        assert np.isfinite([objective, distance, *w]).all()
        assert w.shape == (4,)
        if iteration == 3:
            raise Cancelled

    trainers: list[Any] = [
        lambda: newton.minimise(squared_hinge(judged, 1.0), tolerance=0.0, progress=third),
        lambda: bundle.minimise(hinge(judged, 1.0), tolerance=0.0, progress=third),
        lambda: domination.train_domination(judged, 0.0, tolerance=0.0, progress=third),
        *(
            partial(path.follow_path, trainer(kind, judged), judged, progress=third)
            for kind in TRAINERS
        ),
    ]
    for train in trainers:
        with pytest.raises(Cancelled):
            train()


def test_newton_stops_at_the_precision_of_float64() -> None:
    found = newton.minimise(squared_hinge(synthetic(5, 5), 1.0), tolerance=0.0)
    assert not found.converged
    assert found.iterations < 100


def naive_quality(judged: Judgements, w: Floats) -> float:
    found = []
    for a, b in zip(judged.starts[:-1], judged.starts[1:], strict=True):
        shown = ranking((judged.X[a:b] @ w).tolist())
        found.append(ndcg([float(judged.labels[a:b][d]) for d in shown], 10))
    return float(np.mean(found))


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_the_quality_of_many_queries_is_the_mean_of_their_ndcg(seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = np.array([0, 12, 12, 20, 45])
    labels = rng.integers(0, 5, 45).astype(np.float64)
    judged = Judgements(rng.integers(-1, 2, (45, 2)).astype(np.float64), labels, starts)
    w = np.array([1.0, -1.0])  # many ties, also of 0.0 and -0.0
    nonempty = Judgements(judged.X, judged.labels, np.unique(starts))
    assert path.batch_quality(judged, w, "ndcg@10") == pytest.approx(naive_quality(nonempty, w))


def test_scores_that_are_not_finite_have_no_quality() -> None:
    with pytest.raises(ValueError, match="expected a finite number"):
        path.batch_quality(synthetic(1, 3), np.array([np.inf, 0.0, 0.0, 0.0]), "ndcg@10")


@pytest.mark.parametrize("by", ["ndcg@10", "pairwise"])
def test_the_path_chooses_the_best_tried_parameter(by: path.Measure) -> None:
    _, queries = SyntheticData(features=8, queries=60, noise=1.0).draw(np.random.default_rng(6))
    train, held_out = Judgements.of(queries[:30]), Judgements.of(queries[30:])
    seen: list[int] = []
    found = path.follow_path(
        trainer("l2", train), held_out, by, progress=lambda i, *_: seen.append(i)
    )
    assert seen == list(range(len(seen)))
    assert 1 < len(found.tried) < len(GRID)
    assert [one.parameter for one in found.tried] == list(GRID[: len(found.tried)])
    assert found.best.quality == max(one.quality for one in found.tried)
    for one in found.tried:
        alone = newton.minimise(squared_hinge(train, one.parameter), tolerance=1e-8)
        w = one.minimum.w
        assert one.minimum.converged
        assert one.minimum.value == pytest.approx(alone.value, rel=1e-4)
        in_order = pairwise_accuracy(held_out.X @ w, held_out.labels, held_out.starts)
        expected = in_order if by == "pairwise" else naive_quality(held_out, w)
        assert one.quality == pytest.approx(expected)


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_path_finds_the_hidden_utility(kind: Kind) -> None:
    u, queries = SyntheticData(features=8, queries=60, noise=0.1).draw(np.random.default_rng(7))
    train, held_out = Judgements.of(queries[:30]), Judgements.of(queries[30:])
    found = path.follow_path(trainer(kind, train), held_out, "pairwise")
    w = found.best.minimum.w
    assert w @ u > 0.99 * np.linalg.norm(w)


def test_invalid_path_arguments_are_refused() -> None:
    judged = synthetic(8, 2)
    with pytest.raises(ValueError, match=r"by: expected one of ndcg@10, pairwise"):
        path.follow_path(trainer("l2", judged), judged, "map")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="grid: expected at least one"):
        path.follow_path(trainer("l2", judged), judged, grid=[])
