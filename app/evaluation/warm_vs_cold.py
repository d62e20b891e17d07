"""Warm against cold start: the gain of an online learner that starts from a batch model.

Three models run Algorithm 1 on the test queries of each fold, in the same permutations:

    solar-ii-warm     SOLAR-II starts from RankSVM and continues to learn
    solar-ii-cold     SOLAR-II starts from zero weights
    ranksvm-frozen    RankSVM, which does not learn
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from app.evaluation.folds import Fold
from app.evaluation.online_experiment import Experiment
from app.ranking import online
from app.ranking.arrays import Floats
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.warmstart import covariance_after
from app.ranking.online import Contestant, LabelledQuery, Pairwise
from app.ranking.solar import LinearLearner, Rows, SolarII

STARTS = ("solar-ii-warm", "solar-ii-cold", "ranksvm-frozen")
#: Number of queries in the first column: the start of the run.
FIRST_QUERIES = 100


@dataclass(frozen=True, slots=True)
class Frozen:
    """A contestant that never learns."""

    learner: LinearLearner

    def score(self, documents: Rows) -> Floats:
        """Score each document."""
        return self.learner.score(documents)

    def learn(self, query: LabelledQuery, rng: np.random.Generator) -> None:
        """Do nothing."""


class Played(NamedTuple):
    """Online NDCG@10: mean and standard deviation (n - 1) over the permutations.

    `against_warm` is the mean minus that of the warm start. `error` is the standard error of this
    difference over the folds, so the choice of the first 100 queries cancels out.
    """

    mean: float
    std: float
    against_warm: float
    error: float


@dataclass(frozen=True, slots=True)
class Start:
    """The results of one start: over the first queries of each fold, and over all."""

    start: str
    queries: int
    first: Played
    all: Played

    def as_json(self) -> str:
        """Return one JSON object on one line."""
        played = {
            f"online-ndcg@10-first-{FIRST_QUERIES}": self.first._asdict(),
            "online-ndcg@10": self.all._asdict(),
        }
        return json.dumps({"start": self.start, "queries": self.queries, **played})


def play_start(
    experiment: Experiment, fold: Fold, weights: Floats, done: Callable[[str], None]
) -> Floats:
    """Return online NDCG@10 by start, permutation and (first queries, all queries)."""
    makers = contestants(fold, weights, experiment.gamma)
    found = np.empty((len(STARTS), experiment.permutations, 2))
    for index, start in enumerate(STARTS):
        for at in range(experiment.permutations):
            rng = np.random.default_rng([experiment.seed, at])
            played = list(online.play_online(makers[start](), fold.test, rng, experiment.discount))
            found[index, at] = [
                online.mean_quality(some).ndcg_10 for some in (played[:FIRST_QUERIES], played)
            ]
            done(start)
    return found


def contestants(
    fold: Fold, weights: Floats, gamma: float
) -> Mapping[str, Callable[[], Contestant]]:
    """Return constructors of the three models of a fold, given RankSVM's weights."""
    n, covariance = fold.n, covariance_after(Judgements.of(fold.train), weights, gamma)
    warm = partial(SolarII, n, gamma, weights=weights, covariance=covariance)
    return {
        "solar-ii-warm": lambda: Pairwise(warm()),
        "solar-ii-cold": lambda: Pairwise(SolarII(n, gamma)),
        "ranksvm-frozen": lambda: Frozen(LinearLearner(n, weights)),
    }


def summarise_starts(played: Sequence[Floats], queries: int) -> Iterator[Start]:
    """Yield the results of each start over all folds."""
    found = np.array(played)
    for index, start in enumerate(STARTS):
        first, every = (_played(found[:, index, :, k], found[:, 0, :, k]) for k in (0, 1))
        yield Start(start, queries, first, every)


def _played(found: Floats, warm: Floats) -> Played:
    means, leads = found.mean(axis=0), (found - warm).mean(axis=1)
    error = _deviation(leads) / len(leads) ** 0.5
    return Played(float(means.mean()), _deviation(means), float(leads.mean()), error)


def _deviation(values: Floats) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def start_table(rows: Sequence[Start]) -> str:
    """Format the starts as text, one a row."""
    columns = (f"FIRST {FIRST_QUERIES}", "MINUS WARM", "ALL", "MINUS WARM")
    lines = [f"{'online NDCG@10':<22}" + "".join(f"{name:<18}" for name in columns)]
    lines += [f"{row.start:<22}{_cells(row.first)}{_cells(row.all)}" for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _cells(played: Played) -> str:
    return "{:.4f} ± {:.4f}   {:+.4f} ± {:.4f}  ".format(*played)
