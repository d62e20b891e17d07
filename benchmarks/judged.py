"""The data of `clicks`: training and test queries, by name.

`SOLAR_DEV_MQ2008=FOLDER` (S1.txt.xz …) selects fold 1 of LETOR's MQ2008; the default is synthetic
data. `SOLAR_DEV_MSLR=FOLDER` (train.txt.xz, test.txt.xz) adds a sample of MSLR-WEB10K, scaled
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


def main_data() -> tuple[str, Judged]:
    """MQ2008, fold 1, or synthetic data of its size."""
    folder = os.environ.get("SOLAR_DEV_MQ2008")
    if folder:
        files = [Path(folder) / f"S{part}.txt.xz" for part in (1, 2, 3, 5)]
        return "MQ2008, fold 1", _read(files)
    _, queries = SyntheticData(46, 628, DOCUMENTS, noise=1.0).draw(np.random.default_rng(8))
    return "synthetic data", Judged(queries[:471], queries[471:])


def other_data() -> Iterator[tuple[str, Judged]]:
    """Yield the other available data sets, normalised within the query."""
    folder = os.environ.get("SOLAR_DEV_MSLR")
    if folder:
        files = [Path(folder) / f"{part}.txt.xz" for part in ("train", "test")]
        yield "MSLR-sample", _read(files).normalised()
    if missing("sklearn.datasets:load_digits"):
        print("scikit-learn is not installed: digits and diabetes are skipped")
        return
    for name, make in (("digits", _digits), ("diabetes", _diabetes)):
        loaded = getattr(import_module("sklearn.datasets"), f"load_{name}")()
        yield name, _halves(loaded, make).normalised()


def _read(files: list[Path]) -> Judged:
    *train, test = letor.read_parts(files)
    return Judged([query for part in train for query in part.queries], test.queries)


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
