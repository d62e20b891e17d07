"""Judged data of `clicks`: training and test queries, by name.

`SOLAR_DEV_MQ2008=FOLDER` (S1.txt.xz …) selects the five folds of LETOR's MQ2008; the default is
synthetic data. `SOLAR_DEV_MSLR=FOLDER` (train.txt.xz, test.txt.xz) adds a sample of MSLR, scaled
within the query. If scikit-learn is installed, its data sets add two more: digits as image
retrieval (does an image show the digit of the query?), and diabetes patients in groups, graded by
disease progression.
"""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from app.evaluation import letor
from app.evaluation.synthetic import SyntheticData
from app.ranking.online import LabelledQuery
from app.simulation.runner import Judged
from benchmarks.peers import missing

DOCUMENTS = 20
PARTS = 5


def main_data() -> Iterator[tuple[str, Judged]]:
    """Yield the five folds of MQ2008, or synthetic data of the size of one."""
    folder = os.environ.get("SOLAR_DEV_MQ2008")
    if folder:
        yield from _folds(Path(folder))
        return
    _, queries = SyntheticData(46, 628, DOCUMENTS, noise=1.0).draw(np.random.default_rng(8))
    yield "synthetic data", Judged(queries[:471], queries[471:])


def other_data() -> Iterator[tuple[str, Judged]]:
    """Yield the other available data sets, normalised within the query."""
    folder = os.environ.get("SOLAR_DEV_MSLR")
    if folder:
        train, test = _read(Path(folder), ("train", "test"))
        yield "MSLR-sample", Judged(train, test).normalised()
    if missing("sklearn.datasets:load_digits"):
        print("scikit-learn is not installed: digits and diabetes are skipped")
        return
    for name, make in (("digits", _digits), ("diabetes", _diabetes)):
        loaded = getattr(import_module("sklearn.datasets"), f"load_{name}")()
        yield name, _halves(loaded, make).normalised()


def _folds(folder: Path) -> Iterator[tuple[str, Judged]]:
    """Fold N trains on S_N, S_N+1 and S_N+2, and tests on S_N+4."""
    parts = _read(folder, [f"S{part}" for part in range(1, PARTS + 1)])
    for fold in range(PARTS):
        train = [query for part in range(3) for query in parts[(fold + part) % PARTS]]
        yield f"MQ2008, fold {fold + 1}", Judged(train, parts[(fold + 4) % PARTS])


def _read(folder: Path, names: Any) -> list[list[LabelledQuery]]:
    found = letor.read_parts([folder / f"{name}.txt.xz" for name in names])
    return [part.queries for part in found]


def _halves(loaded: Any, make: Callable[..., LabelledQuery]) -> Judged:
    """Build training queries from two thirds of the rows, test queries from the others."""
    rng = np.random.default_rng(1)
    rows = rng.permutation(len(loaded.target))
    cut = 2 * len(rows) // 3
    train, test = (
        [make(loaded, some, rng) for _ in range(count)]
        for some, count in ((rows[:cut], 400), (rows[cut:], 200))
    )
    return Judged(train, test)


def _digits(loaded: Any, rows: Any, rng: np.random.Generator) -> LabelledQuery:
    """An image queries others of its digit; features: differences and products of the pixels."""
    asked, *found = rng.choice(rows, 1 + DOCUMENTS, replace=False)
    pixels, query = loaded.data[found], loaded.data[asked]
    features = np.hstack([np.abs(pixels - query), pixels * query / 16.0]).astype(np.float32)
    return LabelledQuery(2.0 * (loaded.target[found] == loaded.target[asked]), features)


def _diabetes(loaded: Any, rows: Any, rng: np.random.Generator) -> LabelledQuery:
    """A group of patients: of all patients, the worst tenth has grade 2, the next three 1."""
    found = rng.choice(rows, DOCUMENTS, replace=False)
    grades = np.digitize(loaded.target[found], np.quantile(loaded.target, [0.6, 0.9]))
    return LabelledQuery(grades.astype(np.float64), loaded.data[found].astype(np.float32))
