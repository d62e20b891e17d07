"""Splines: what `solar train --splines auto` chooses and gains, and what ramps cost `/rank`.

The generated worlds have five features, one of them best in the middle (bent), or none.
`SOLAR_DEV_MQ2008=FOLDER` (S1.txt.xz …) adds the five folds of LETOR's MQ2008: the validation part
chooses, the test part measures.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.domain import candidates
from app.domain.model_config import ModelConfig, new_model_config
from app.evaluation.folds import read_folds
from app.evaluation.letor import JudgedData
from app.evaluation.synthetic import SyntheticData
from app.ranking import measures, serving
from app.ranking.arrays import Floats
from app.training import trainer
from app.training.options import Training
from app.training.splines import SEGMENTS, with_splines
from app.training.targets.file import new_config, trained
from benchmarks.report import Goal, at_least, table
from benchmarks.timing import again, side_by_side

SEEDS = range(10)
WORLD = SyntheticData(features=5, queries=600, documents=20)
LEAST_GAIN = 0.01
BOUND = 1e4
#: Documents and features of a timed ranking.
DOCUMENTS, FEATURES = 50, 46
REPEATED, LASTING = 500, 5.0


class Choice(NamedTuple):
    """Qualities on held-out queries, and NDCG@10 of each test query: without and with splines."""

    held_out: tuple[float, float]
    test: tuple[Floats, Floats]

    @property
    def gains(self) -> Floats:
        """What the choice gains on each test query."""
        chosen = self.held_out[1] > self.held_out[0]
        return self.test[int(chosen)] - self.test[0]


def run() -> list[Goal]:
    """Print all tables."""
    goals = [*_worlds(1, "best in the middle"), *_worlds(0, "linear")]
    goals += _folds()
    _costs()
    return goals


def _worlds(bent: int, kind: str) -> Iterator[Goal]:
    """Print the gain in generated worlds; the standard error is over worlds."""
    found = [_world(seed, bent) for seed in SEEDS]
    gains = np.array([one.gains.mean() for one in found])
    chosen = sum(one.held_out[1] > one.held_out[0] for one in found)
    error = _error(gains)
    row = [
        f"{chosen} of {len(found)}",
        f"{gains.mean():+.4f}",
        f"{error:.4f}",
        f"{gains.min():+.4f}",
    ]
    print(table(f"Worlds whose first feature is {kind}",
                ["splines chosen", "test NDCG@10", "error", "least"], [row]))  # fmt: skip
    if bent:
        yield at_least("gain of splines in bent worlds", LEAST_GAIN, "NDCG@10", gains.mean())


def _world(seed: int, bent: int) -> Choice:
    world = SyntheticData(WORLD.features, WORLD.queries, WORLD.documents, bent=bent)
    _, queries = world.draw(np.random.default_rng(seed))
    half = WORLD.queries // 2
    data, test = (JudgedData(WORLD.features, some) for some in (queries[:half], queries[half:]))
    return _chosen(data, test, Training())


def _folds() -> list[Goal]:
    """Print the choice on the folds of MQ2008; the standard error is over test queries."""
    folder = os.environ.get("SOLAR_DEV_MQ2008")
    if not folder:
        return []
    found = []
    for fold in read_folds(Path(folder)):
        data = JudgedData(fold.n, [*fold.train, *fold.validation])
        training = Training(validation=float(len(fold.validation)))
        found.append(_chosen(data, JudgedData(fold.n, fold.test), training))
    rows = [_row(str(at), one) for at, one in enumerate(found, start=1)]
    gains = np.concatenate([one.gains for one in found])
    rows.append(["all", "", "", "", "", "", f"{gains.mean():+.4f}", f"{_error(gains):.4f}"])
    head = ["fold", "held out, 0", f"held out, {SEGMENTS}", "chosen", "test, 0",
            f"test, {SEGMENTS}", "gain of auto", "error"]  # fmt: skip
    print(table("MQ2008, NDCG@10 by segments of each feature", head, rows))
    loss, error = -float(gains.mean()), _error(gains)
    return [
        Goal("loss of auto on MQ2008", "<= 1 error", f"{loss / error:.2f} errors", loss <= error)
    ]


def _row(name: str, one: Choice) -> list[str]:
    chosen = SEGMENTS if one.held_out[1] > one.held_out[0] else 0
    qualities = [f"{quality:.4f}" for quality in one.held_out]
    tests = [f"{some.mean():.4f}" for some in one.test]
    return [name, *qualities, str(chosen), *tests, f"{one.gains.mean():+.4f}",
            f"{_error(one.gains):.4f}"]  # fmt: skip


def _error(gains: Floats) -> float:
    return float(gains.std(ddof=1) / np.sqrt(len(gains)))


def _chosen(data: JudgedData, test: JudgedData, training: Training) -> Choice:
    plain = new_config(data.n, None)
    bent = with_splines(plain, data, training, BOUND)
    (first, before), (second, after) = (
        _measured(data, test, training, config) for config in (plain, bent)
    )
    return Choice((first, second), (before, after))


def _measured(
    data: JudgedData, test: JudgedData, training: Training, config: ModelConfig
) -> tuple[float, Floats]:
    """Return the quality on held-out queries, and NDCG@10 of each test query."""
    found, _ = trained(data, training, config, BOUND)
    judged = trainer.judgements(test, config, BOUND)
    scores = judged.X @ found.weights
    ndcg = [measures.quality(judged.labels[q][serving.order(scores[q])]).ndcg_10
            for q in judged.queries]  # fmt: skip
    return max(quality for _, quality in found.tried), np.array(ndcg)


def _costs() -> None:
    """Print the CPU time of rows, from numbers to a ranking, without and with splines."""
    rows = np.random.default_rng(0).random((DOCUMENTS, FEATURES))
    names = tuple(f"f{at}" for at in range(1, FEATURES + 1))
    knots = {name: [0.25, 0.5, 0.75] for name in names}
    configs = {"linear": new_model_config(names), "splines": new_model_config(names, splines=knots)}
    runs = {name: again(partial(_ranked, rows, config)) for name, config in configs.items()}
    found = side_by_side(runs, LASTING)
    each = [[name, str(configs[name].n), f"{1e6 * seconds / REPEATED:.1f}",
             f"{seconds / found['linear']:.2f}"] for name, seconds in found.items()]  # fmt: skip
    print(table(f"Ranking of {DOCUMENTS} documents of {FEATURES} features",
                ["model", "columns", "µs", "ratio"], each))  # fmt: skip


def _ranked(rows: Floats, config: ModelConfig) -> None:
    weights = np.ones(config.n)
    for _ in range(REPEATED):
        documents = candidates.as_documents(
            rows, "none", BOUND, ordered=config.prior > 0.0, ramps=config.ramps
        )
        candidates.rank_candidates(documents, weights, 10)
