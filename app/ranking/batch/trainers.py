"""The three losses behind one interface: fitted to judged queries, one parameter at a time.

    l2           squared hinge by newton.py; the parameter is C
    l1           hinge by bundle.py; C
    domination   domination.py; the ℓ1 penalty λ, and the smaller the less regular

What all parameters share (the order tree, the columns) is built once, with the trainer.

Each fit of a path starts from the last w: seen on MQ2008 (fold 1), the hinge over the whole grid
took 4 s of CPU like that and 32 s with each C from 0. With the path's patience 0.6 s are left, next
to 0.2 s for the squared hinge and 9 s for the domination loss, which finds the best model of the
three.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Literal, Protocol, get_args

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.batch import Progress, bundle, domination, newton, silent
from app.ranking.batch.domination import Domination
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.newton import Minimum, norm
from app.ranking.batch.ordertree import OrderTree
from app.ranking.batch.ranksvm import Hinge, SquaredHinge

Kind = Literal["l2", "l1", "domination"]

#: The C of the paper's grid (section 4.4).
GRID = tuple(2.0**e for e in range(-15, 11))
#: The penalties, as shares of the one that leaves nothing of the model.
SHARES = tuple(2.0**-e for e in range(1, 13))
#: Cutting planes in one fit: beyond, the small programme under them takes the time.
MOST_PLANES = 500


class Trainer(Protocol):
    """Judged queries, ready for fits with several parameters."""

    n: int
    #: The parameters to try, the most regular first.
    grid: tuple[float, ...]

    def fit(
        self, parameter: float, start: Floats | None = None, progress: Progress = silent
    ) -> Minimum:
        """The model of least objective with this parameter, from `start` or 0."""


def trainer(kind: Kind, judged: Judgements, tolerance: float | None = None) -> Trainer:
    """A trainer of this kind; `tolerance` is that of its solver.

    >>> judged = Judgements(np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), np.array([0, 2]))
    >>> trainer("l2", judged, tolerance=1e-9).fit(1.0).w.round(6)
    array([0.444444])
    """
    if kind not in TRAINERS:
        raise ValueError(f"kind: expected one of {', '.join(get_args(Kind))}, got {kind!r}")
    judged = judged.with_pairs()
    if not len(judged.labels):
        raise ValueError(
            "labels: expected two documents of one query with different labels, got none"
        )
    return TRAINERS[kind](judged, tolerance)


class SquaredHingeTrainer:
    """Eq. 3, by Newton's steps."""

    grid = GRID

    def __init__(self, judged: Judgements, tolerance: float | None = None) -> None:
        self.n, self._X = judged.n, judged.X
        self._tree = OrderTree.of(judged.labels, judged.starts)
        self._tolerance = newton.GRADIENT_TOLERANCE if tolerance is None else tolerance

    def fit(
        self, parameter: float, start: Floats | None = None, progress: Progress = silent
    ) -> Minimum:
        """Until `‖∇f‖ ≤ tolerance ‖∇f(0)‖` with this C, wherever it starts."""
        objective = SquaredHinge(self._X, self._tree, parameter)
        scale = self._unit * parameter
        return newton.minimise(
            objective, start, tolerance=self._tolerance, scale=scale, progress=progress
        )

    @cached_property
    def _unit(self) -> float:
        """`‖∇f(0)‖` with C = 1: it grows with C alone."""
        return norm(SquaredHinge(self._X, self._tree, 1.0).at(np.zeros(self.n)).gradient)


class HingeTrainer:
    """Eq. 2, by cutting planes."""

    grid = GRID

    def __init__(self, judged: Judgements, tolerance: float | None = None) -> None:
        self.n, self._X = judged.n, judged.X
        self._tree = OrderTree.of(judged.labels, judged.starts)
        self._tolerance = bundle.GAP_TOLERANCE if tolerance is None else tolerance

    def fit(
        self, parameter: float, start: Floats | None = None, progress: Progress = silent
    ) -> Minimum:
        """Until the gap is `tolerance` of the objective with this C; or there are `MOST_PLANES`."""
        loss = Hinge(self._X, self._tree, parameter)
        return bundle.minimise(
            loss, start, tolerance=self._tolerance, most=MOST_PLANES, progress=progress
        )


class DominationTrainer:
    """Sparse models, by coordinates."""

    def __init__(self, judged: Judgements, tolerance: float | None = None) -> None:
        self.n, self._loss = judged.n, Domination(judged)
        self._tolerance = domination.DOMINATION_TOLERANCE if tolerance is None else tolerance
        self.grid = tuple(share * self._loss.largest_penalty for share in SHARES)

    def fit(
        self, parameter: float, start: Floats | None = None, progress: Progress = silent
    ) -> Minimum:
        """Until no coordinate is far from optimal with this λ."""
        found = domination.lower(
            self._loss, parameter, start, tolerance=self._tolerance, progress=progress
        )
        return Minimum(found.w, found.value, found.distance, found.sweeps, 0, found.converged)


TRAINERS: dict[Kind, Callable[[Judgements, float | None], Trainer]] = {
    "l2": SquaredHingeTrainer,
    "l1": HingeTrainer,
    "domination": DominationTrainer,
}
