"""The choice of C on validation queries, by pairwise accuracy and by mean NDCG (section 4.4)."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from app.ranking.arrays import Floats
from app.ranking.batch.trainers import GRID, Kind, trainer
from benchmarks.timing import cpu_seconds
from tools.paper.inputs import Split
from tools.paper.quality import tested

Score = Callable[[Any], Floats]


class Fitted(NamedTuple):
    """A model for one C: how it scores rows, and a training of the same model from the start."""

    C: float
    score: Score
    train: Callable[[], object]


class Chosen(NamedTuple):
    """The best C by each measure, test quality there, and CPU seconds with the first C."""

    C_accuracy: float
    C_ndcg: float
    ndcg: float
    accuracy: float
    seconds: float


def chosen(fits: Iterable[Fitted], split: Split) -> Chosen:
    """Choose by validation, and measure the chosen models on the test queries."""
    found = [(tested(split.validation, fit.score(split.validation.X)), fit) for fit in fits]
    by_ndcg = max(found, key=lambda one: one[0][0])[1]
    by_accuracy = max(found, key=lambda one: one[0][1])[1]
    ndcg, _ = tested(split.test, by_ndcg.score(split.test.X))
    _, accuracy = tested(split.test, by_accuracy.score(split.test.X))
    return Chosen(by_accuracy.C, by_ndcg.C, ndcg, accuracy, cpu_seconds(by_accuracy.train))


def ranksvm_fits(kind: Kind, split: Split) -> Iterator[Fitted]:
    """Yield RankSVM for each C of the grid; each fit starts from the one before."""
    w, trained = None, trainer(kind, split.train)
    for C in GRID:
        w = trained.fit(C, w).w
        yield Fitted(C, _linear(w), lambda C=C: trained.fit(C))  # type: ignore[misc]


def svr_fits(loss: str, split: Split) -> Iterator[Fitted]:
    """Yield LIBLINEAR's support vector regression (ε = 0, no bias) for each C of the grid."""
    for C in GRID:
        model = svr(loss, C, split)
        yield Fitted(C, model.predict, lambda C=C: svr(loss, C, split))  # type: ignore[misc]


def svr(loss: str, C: float, split: Split) -> Any:
    """Fit a regression of the labels; L2 by its primal problem, L1 by its dual one."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  # in the extra `compare`
    from sklearn.svm import LinearSVR  # noqa: PLC0415

    name, dual = {
        "l1": ("epsilon_insensitive", True),
        "l2": ("squared_epsilon_insensitive", False),
    }[loss]
    model = LinearSVR(C=C, loss=name, dual=dual, fit_intercept=False, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the paper stops there, too
        return model.fit(split.train.X, split.train.labels)


def _linear(w: Floats) -> Score:
    def score(X: Any) -> Floats:
        scores: Floats = X @ w
        return scores

    return score
