"""Warm against cold: what an online learner gains by starting from a batch model.

The test queries of each fold are played online (Algorithm 1) by SOLAR-II that starts from RankSVM
and goes on learning (warm), by SOLAR-II that starts from nothing (cold), and by RankSVM as it is
(frozen), on the same permutations.
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
#: "From the first query on" is measured over so many.
FIRST_QUERIES = 100


@dataclass(frozen=True, slots=True)
class Frozen:
    """Serves, and learns nothing."""

    learner: LinearLearner

    def score(self, documents: Rows) -> Floats:
        """Score each document."""
        return self.learner.score(documents)

    def learn(self, query: LabelledQuery, rng: np.random.Generator) -> None:
        """Stay as it is."""


class Played(NamedTuple):
    """Online NDCG@10: its mean and standard deviation over the permutations (n - 1).

    `against_warm` is its mean less that of the warm start, `error` the standard error of this
    difference over the folds: which 100 queries come first does not blur it.
    """

    mean: float
    std: float
    against_warm: float
    error: float


@dataclass(frozen=True, slots=True)
class Start:
    """One start, over the first queries of each fold and over all of them."""

    start: str
    queries: int
    first: Played
    all: Played

    def as_json(self) -> str:
        """One object, on one line."""
        played = {
            f"online-ndcg@10-first-{FIRST_QUERIES}": self.first._asdict(),
            "online-ndcg@10": self.all._asdict(),
        }
        return json.dumps({"start": self.start, "queries": self.queries, **played})


def play_start(
    experiment: Experiment, fold: Fold, weights: Floats, done: Callable[[str], None]
) -> Floats:
    """Online NDCG@10 over the first queries and over all: by start, permutation, (first, all)."""
    makers = contestants(fold, weights, experiment.gamma)
    found = np.empty((len(STARTS), experiment.permutations, 2))
    for place, start in enumerate(STARTS):
        for at in range(experiment.permutations):
            rng = np.random.default_rng([experiment.seed, at])
            played = list(online.play_online(makers[start](), fold.test, rng, experiment.discount))
            found[place, at] = [
                online.mean_quality(some).ndcg_10 for some in (played[:FIRST_QUERIES], played)
            ]
            done(start)
    return found


def contestants(
    fold: Fold, weights: Floats, gamma: float
) -> Mapping[str, Callable[[], Contestant]]:
    """Who plays the test queries of a fold, given what RankSVM found on its training queries."""
    n, covariance = fold.n, covariance_after(Judgements.of(fold.train), weights, gamma)
    warm = partial(SolarII, n, gamma, weights=weights, covariance=covariance)
    return {
        "solar-ii-warm": lambda: Pairwise(warm()),
        "solar-ii-cold": lambda: Pairwise(SolarII(n, gamma)),
        "ranksvm-frozen": lambda: Frozen(LinearLearner(n, weights)),
    }


def summed_up(played: Sequence[Floats], queries: int) -> Iterator[Start]:
    """What was played on all folds, a start at a time."""
    found = np.array(played)
    for place, start in enumerate(STARTS):
        first, every = (_played(found[:, place, :, k], found[:, 0, :, k]) for k in (0, 1))
        yield Start(start, queries, first, every)


def _played(found: Floats, warm: Floats) -> Played:
    means, leads = found.mean(axis=0), (found - warm).mean(axis=1)
    error = _deviation(leads) / len(leads) ** 0.5
    return Played(float(means.mean()), _deviation(means), float(leads.mean()), error)


def _deviation(values: Floats) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def start_table(rows: Sequence[Start]) -> str:
    """The starts side by side, for people to read."""
    columns = (f"FIRST {FIRST_QUERIES}", "AGAINST WARM", "ALL", "AGAINST WARM")
    lines = [f"{'online NDCG@10':<22}" + "".join(f"{name:<18}" for name in columns)]
    lines += [f"{row.start:<22}{_cells(row.first)}{_cells(row.all)}" for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _cells(played: Played) -> str:
    return "{:.4f} ± {:.4f}   {:+.4f} ± {:.4f}  ".format(*played)
