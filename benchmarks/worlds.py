"""The data sets of `clicks`: judged data, and invented data with properties that those lack.

An invented query has a hidden linear utility of its features, and grades by thresholds of utility
plus noise. All generators have fixed seeds.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from app.domain.candidates import min_max
from app.ranking.arrays import Dense, Floats
from app.ranking.online import LabelledQuery
from app.simulation.runner import Judged
from benchmarks.judged import main_data, other_data

DOCUMENTS = 20
NEEDLE = "needle"
#: Queries of the data set that is small enough to overfit.
FEW = 60

Draw = Callable[[np.random.Generator], LabelledQuery]


class World(NamedTuple):
    """A data set; `real`: not invented; `pair_bound` None: the default of a new model."""

    judged: Judged
    real: bool = False
    pair_bound: float | None = None


@cache
def worlds() -> dict[str, World]:
    """Return all data sets by name; the first is the main one."""
    found = {name: World(judged, real=True) for name, judged in main_data()}
    few = _few(next(iter(found.values())).judged)
    found |= {name: World(judged, real=True) for name, judged in other_data()}
    return {**found, "few queries": World(few), **dict(_invented())}


def folds() -> list[str]:
    """Return the names of the main data sets: the folds of MQ2008."""
    others = [name for name in worlds() if "fold" in name]
    return others or [next(iter(worlds()))]


def _few(judged: Judged) -> Judged:
    drawn = np.random.default_rng(3).choice(len(judged.train), FEW, replace=False)
    return Judged([judged.train[q] for q in drawn.tolist()], judged.test)


def _invented() -> Iterator[tuple[str, World]]:
    yield NEEDLE, World(_drawn(_needle, np.random.default_rng(12), 60, 30))
    for name, make, tests in (
        ("long lists", _long_lists, 100),
        ("two documents", _two_documents, 200),
        ("correlated", _correlated, 200),
        ("30 % without relevant", _some_without, 200),
    ):
        rng = np.random.default_rng(13)
        yield name, World(_drawn(make(rng), rng, 400, tests))
    rng = np.random.default_rng(15)
    scales = 10.0 ** np.linspace(-3.0, 3.0, 13)
    bound = float(2.0 * len(scales) * scales.max() ** 2)
    judged = _drawn(_on_scales(rng, scales), rng, 400, 200)
    yield "scales 0.001 to 1,000", World(judged, pair_bound=bound)


def _drawn(draw: Draw, rng: np.random.Generator, train: int, tests: int) -> Judged:
    return Judged([draw(rng) for _ in range(train)], [draw(rng) for _ in range(tests)])


def _needle(rng: np.random.Generator) -> LabelledQuery:
    """One relevant document in a thousand; sparse, skewed features; as in named-page finding."""
    count, n = 1_000, 40
    documents = rng.random((count, n)) ** 6 * (rng.random((count, n)) < 0.3)
    one = int(rng.integers(count))
    raised = rng.random(n) * (rng.random(n) < 0.4)
    documents[one] = np.maximum(documents[one], raised)
    labels = np.zeros(count)
    labels[one] = 2.0
    return LabelledQuery(labels, min_max(documents.astype(np.float32)))


def _long_lists(rng: np.random.Generator) -> Draw:
    """300 documents, noise as large as the utility, few relevant documents."""
    utility = _unit(rng, 30)

    def draw(rng: np.random.Generator) -> LabelledQuery:
        documents = rng.standard_normal((300, 30))
        return _graded(rng, documents @ utility, 1.0, (1.8, 2.6), min_max(_dense(documents)))

    return draw


def _two_documents(rng: np.random.Generator) -> Draw:
    """Two documents; the better one has grade 1 or 2."""
    utility = rng.standard_normal(10)

    def draw(rng: np.random.Generator) -> LabelledQuery:
        documents = rng.random((2, 10))
        labels = np.zeros(2)
        better = np.argmax(documents @ utility + 0.5 * rng.standard_normal(2))
        labels[better] = float(rng.integers(1, 3))
        return LabelledQuery(labels, _dense(documents))

    return draw


def _on_scales(rng: np.random.Generator, scales: Floats) -> Draw:
    """Features that differ in scale, not normalised."""
    utility = _unit(rng, len(scales))

    def draw(rng: np.random.Generator) -> LabelledQuery:
        documents = rng.standard_normal((DOCUMENTS, len(scales)))
        return _graded(rng, documents @ utility, 0.5, (0.8, 1.5), _dense(documents * scales))

    return draw


def _correlated(rng: np.random.Generator) -> Draw:
    """40 features that are mixtures of five factors, plus noise."""
    factors = rng.standard_normal((5, 40))
    utility = _unit(rng, 40) / 3.0

    def draw(rng: np.random.Generator) -> LabelledQuery:
        mixed = rng.standard_normal((DOCUMENTS, 5)) @ factors
        documents = mixed + 0.3 * rng.standard_normal((DOCUMENTS, 40))
        return _graded(rng, documents @ utility, 0.5, (0.6, 1.3), min_max(_dense(documents)))

    return draw


def _some_without(rng: np.random.Generator) -> Draw:
    """30 % of the queries have no relevant document."""
    utility = _unit(rng, 25)

    def draw(rng: np.random.Generator) -> LabelledQuery:
        documents = rng.standard_normal((DOCUMENTS, 25))
        query = _graded(rng, documents @ utility, 0.7, (1.0, 1.8), min_max(_dense(documents)))
        none = rng.random() < 0.3
        return LabelledQuery(np.zeros(DOCUMENTS), query.documents) if none else query

    return draw


def _unit(rng: np.random.Generator, n: int) -> Floats:
    """Return a utility of variance 1 on standard normal features, in expectation."""
    utility: Floats = rng.standard_normal(n) / n**0.5
    return utility


def _graded(
    rng: np.random.Generator,
    utility: Floats,
    noise: float,
    cuts: tuple[float, float],
    documents: Dense,
) -> LabelledQuery:
    noisy = utility + noise * rng.standard_normal(len(utility))
    return LabelledQuery(np.digitize(noisy, cuts).astype(np.float64), documents)


def _dense(documents: Floats) -> Dense:
    return documents.astype(np.float32)
