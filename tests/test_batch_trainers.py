"""The trainer interface of three losses: each fit agrees with its solver, from any start."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from app.evaluation.synthetic import SyntheticData
from app.ranking.batch import bundle, domination, newton, path
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.ordertree import OrderTree
from app.ranking.batch.ranksvm import hinge, squared_hinge
from app.ranking.batch.trainers import GRID, TRAINERS, Kind, trainer


def synthetic(seed: int, queries: int = 20) -> Judgements:
    """Synthetic judged queries, one of them with a single label."""
    _, drawn = SyntheticData(6, queries, 10, noise=1.0).draw(np.random.default_rng(seed))
    judged = Judgements.of(drawn)
    X, labels = np.concatenate([judged.X, judged.X[:3]]), np.append(judged.labels, [1.0, 1.0, 1.0])
    return Judgements(X, labels, np.append(judged.starts, len(labels)))


def alone(kind: Kind, judged: Judgements, parameter: float) -> float:
    """The objective at the minimum that the solver finds without the trainer."""
    if kind == "l2":
        return newton.minimise(squared_hinge(judged, parameter), tolerance=1e-7).value
    if kind == "l1":
        return bundle.minimise(hinge(judged, parameter), tolerance=1e-7).value
    return domination.train_domination(judged, parameter, tolerance=1e-7).value


@pytest.mark.parametrize("kind", TRAINERS)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_fit_agrees_with_its_solver_from_any_start(kind: Kind, sparse: bool) -> None:
    judged = synthetic(1)
    if sparse:
        judged = Judgements(csr_array(judged.X), judged.labels, judged.starts)
    fitting = trainer(kind, judged, tolerance=1e-7)
    assert fitting.n == 6
    for parameter in fitting.grid[2:10:3]:
        expected = alone(kind, judged, parameter)
        for start in (None, np.linspace(-2.0, 2.0, 6)):
            found = fitting.fit(parameter, start)
            assert found.converged
            assert found.value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_warm_start_takes_fewer_iterations(kind: Kind) -> None:
    fitting = trainer(kind, synthetic(2), tolerance=1e-4)
    first = fitting.fit(fitting.grid[7])
    cold, warm = fitting.fit(fitting.grid[8]), fitting.fit(fitting.grid[8], first.w)
    assert warm.iterations < cold.iterations
    assert fitting.fit(fitting.grid[7], first.w).value <= first.value * (1.0 + 1e-12)


def test_the_stopping_rule_does_not_depend_on_the_start() -> None:
    judged = synthetic(3)
    fitting, objective = trainer("l2", judged, 1e-2), squared_hinge(judged, 0.1)
    steepest = newton.norm(objective.at(np.zeros(6)).gradient)
    for start in (None, np.full(6, 50.0)):
        assert fitting.fit(0.1, start).distance <= 1e-2 * steepest
    assert trainer("l2", judged).fit(0.1).distance <= newton.GRADIENT_TOLERANCE * steepest


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_grid_starts_with_the_strongest_regularisation(kind: Kind) -> None:
    fitting = trainer(kind, synthetic(4))
    sizes = [np.abs(fitting.fit(parameter).w).sum() for parameter in fitting.grid[:4]]
    assert sizes == sorted(sizes)
    assert sizes[0] > 0.0
    if kind == "domination":
        assert fitting.grid[0] == domination.largest_penalty(synthetic(4)) / 2.0
    else:
        assert fitting.grid == GRID


def test_a_given_grid_is_sorted_by_regularisation() -> None:
    judged = synthetic(5)
    for kind, expected in {"l2": [0.5, 1.0], "l1": [0.5, 1.0], "domination": [1.0, 0.5]}.items():
        for grid in ([0.5, 1.0], [1.0, 0.5]):
            found = path.follow_path(trainer(kind, judged), judged, grid=grid)  # type: ignore[arg-type]
            assert [one.parameter for one in found.tried] == expected


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_order_tree_is_built_once(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    of = OrderTree.of

    def counted(labels: Any, starts: Any) -> OrderTree:
        built.append(len(labels))
        return of(labels, starts)

    monkeypatch.setattr(OrderTree, "of", counted)
    fitting = trainer(kind, synthetic(6))
    for parameter in fitting.grid[:3]:
        fitting.fit(parameter)
    assert built == [200]  # without the query of one label


def test_judgements_without_pairs_are_refused() -> None:
    judged = Judgements(np.ones((3, 2)), np.ones(3), np.array([0, 3]))
    for kind in TRAINERS:
        with pytest.raises(ValueError, match="labels: expected two documents of one query"):
            trainer(kind, judged)


def test_unknown_kinds_and_invalid_parameters_are_refused() -> None:
    judged = synthetic(7)
    with pytest.raises(ValueError, match="kind: expected one of l2, l1, domination, got 'l3'"):
        trainer("l3", judged)  # type: ignore[arg-type]
    for kind, words in {"l2": "C: expected", "l1": "C: expected", "domination": "penalty:"}.items():
        with pytest.raises(ValueError, match=words):
            trainer(kind, judged).fit(-1.0)  # type: ignore[arg-type]
