"""The contenders: linear learners of SOLAR and of other libraries, each with prepared data.

The constructor converts the data to the form of its library. A call makes one pass over the gaps,
in order; only the call is timed. A library is imported only when its contender is constructed.
"""

import warnings
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.solar import DEFAULT_C, LinearLearner


class Contender(Protocol):
    """The interface of all contenders."""

    def __call__(self) -> object:
        """Learn from all gaps, in order."""

    @property
    def weights(self) -> Floats:
        """The learnt weights."""


class SolarBatch:
    """SOLAR, all gaps in one call."""

    def __init__(self, learner: LinearLearner, gaps: Floats) -> None:
        self._learner, self._gaps = learner, gaps

    def __call__(self) -> None:
        """Learn from all gaps."""
        self._learner.learn(self._gaps)

    @property
    def weights(self) -> Floats:
        """The learnt weights."""
        return self._learner.weights


class SolarOneByOne(SolarBatch):
    """SOLAR, one call for each gap."""

    def __call__(self) -> None:
        """Learn from all gaps."""
        for t in range(len(self._gaps)):
            self._learner.learn(self._gaps[t : t + 1])


class River:
    """river's passive-aggressive classifier; mode 2 with SOLAR's C is SOLAR-I."""

    def __init__(self, gaps: Floats) -> None:
        linear_model = import_module("river.linear_model")
        self._model = linear_model.PAClassifier(C=DEFAULT_C, mode=2, learn_intercept=False)
        rows, labels = two_classes(gaps)
        dicts = [dict(enumerate(row)) for row in rows.tolist()]
        self._examples = list(zip(dicts, (labels > 0.0).tolist(), strict=True))

    def __call__(self) -> None:
        """Learn from all gaps."""
        for x, y in self._examples:
            self._model.learn_one(x, y)

    @property
    def weights(self) -> Floats:
        """The learnt weights."""
        return np.array([self._model.weights[k] for k in sorted(self._model.weights)])


class ScikitLearn:
    """A linear classifier of scikit-learn by name, with `size` gaps a call."""

    def __init__(self, gaps: Floats, size: int, name: str, **settings: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a class that a later version removes
            classifier = getattr(import_module("sklearn.linear_model"), name)
            self._model = classifier(fit_intercept=False, shuffle=False, **settings)
        self._rows, self._labels = two_classes(gaps)
        self._size = size

    def __call__(self) -> None:
        """Learn from all gaps."""
        for t in range(0, len(self._rows), self._size):
            some = slice(t, t + self._size)
            self._model.partial_fit(self._rows[some], self._labels[some], classes=[-1.0, 1.0])

    @property
    def weights(self) -> Floats:
        """The learnt weights."""
        weights: Floats = self._model.coef_[0]
        return weights


class VowpalWabbit:
    """Vowpal Wabbit's default learner with the hinge loss, on parsed examples."""

    def __init__(self, gaps: Floats) -> None:
        workspace = import_module("vowpalwabbit").Workspace
        self._model = workspace("--quiet --noconstant --loss_function hinge")
        self._features = gaps.shape[1]
        rows, labels = two_classes(gaps)
        self._examples = [
            self._model.example(_vw_line(row, label))
            for row, label in zip(rows.tolist(), labels.tolist(), strict=True)
        ]

    def __call__(self) -> None:
        """Learn from all gaps."""
        for example in self._examples:
            self._model.learn(example)

    @property
    def weights(self) -> Floats:
        """The learnt weights."""
        return np.array([self._model.get_weight(k) for k in range(self._features)])


def _vw_line(row: list[float], label: float) -> str:
    return f"{label:g} | " + " ".join(f"{k}:{value:.8g}" for k, value in enumerate(row))


def two_classes(gaps: Floats) -> tuple[Floats, Floats]:
    """The gaps as examples of two classes: every second gap is negated."""
    labels = np.where(np.arange(len(gaps)) % 2 == 0, 1.0, -1.0)
    return gaps * labels[:, None], labels
