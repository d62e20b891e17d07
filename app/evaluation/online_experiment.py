"""`solar evaluate`: the paper's online experiment (section 5.2) on judged data.

All algorithms run Algorithm 1 on the same random permutations of the queries. The table shows the
mean and the standard deviation of the online cumulative measures over the permutations.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Never

import numpy as np
from tqdm import tqdm

from app.errors import SolarError
from app.evaluation.letor import JudgedData
from app.evaluation.published import PUBLISHED_ONLINE, published_for
from app.ranking import online
from app.ranking.arrays import Floats
from app.ranking.baselines.committee import CommitteePerceptron
from app.ranking.baselines.pamir import Pamir
from app.ranking.baselines.perceptron import PairwisePerceptron
from app.ranking.baselines.prank import PRank
from app.ranking.measures import MEASURE_NAMES, Discount, Quality
from app.ranking.online import Contestant, LabelledQuery, Pairwise
from app.ranking.solar import DEFAULT_C, DEFAULT_GAMMA, Rows, SolarI, SolarII, SolarIIDiagonal

BASELINES = ("prank-pointwise", "prank-pairwise", "committee-perceptron", "pamir")
DEFAULT_PERMUTATIONS = 10


@dataclass(frozen=True, slots=True)
class Experiment:
    """The settings of an evaluation."""

    algorithms: tuple[str, ...] = ("solar-i", "solar-ii")
    permutations: int = DEFAULT_PERMUTATIONS
    discount: Discount = "standard"
    seed: int = 0
    C: float = DEFAULT_C
    gamma: float = DEFAULT_GAMMA


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A contestant that learns single documents of a query, in random order."""

    learner: PRank

    def score(self, documents: Rows) -> Floats:
        """Score each document."""
        return self.learner.score(documents)

    def learn(self, query: LabelledQuery, rng: np.random.Generator) -> None:
        """Learn the query's documents, shuffled."""
        order = rng.permutation(len(query.labels))
        self.learner.learn_labels(query.documents[order], query.labels[order])


@dataclass(frozen=True, slots=True)
class OnlineRow:
    """Means and standard deviations (n - 1) of one algorithm over the permutations.

    `published` has the known figures of the paper (NDCG@1, @5, @10). `untuned` means that no
    setting was chosen on validation queries.
    """

    algorithm: str
    queries: int
    mean: Quality
    std: Quality
    published: tuple[float, ...] | None
    untuned: bool = False

    @classmethod
    def of(
        cls,
        algorithm: str,
        queries: int,
        means: list[Quality],
        published: tuple[float, ...] | None,
        *,
        untuned: bool = False,
    ) -> "OnlineRow":
        """Build a row from the means of each permutation."""
        mean, std = online.mean_quality(means), _std(means)
        return cls(algorithm, queries, mean, std, published, untuned)

    def as_json(self) -> str:
        """Return one JSON object on one line; `published` and `untuned` only if they apply."""
        values = zip(MEASURE_NAMES, self.mean, self.std, strict=True)
        found: dict[str, Any] = {"algorithm": self.algorithm, "queries": self.queries}
        found |= {name: {"mean": mean, "std": std} for name, mean, std in values}
        if self.published:
            found["published"] = dict(zip(MEASURE_NAMES, self.published, strict=False))
        if self.untuned:
            found["untuned"] = True
        return json.dumps(found)


def run_online(
    experiment: Experiment, data: JudgedData, *, progress: bool = True
) -> Iterator[OnlineRow]:
    """Evaluate one algorithm after the other; show a progress bar on a terminal."""
    makers = [contestant_maker(algorithm, experiment, data) for algorithm in experiment.algorithms]
    for make in makers:
        make()  # reports a bad parameter before hours of work
    total = len(experiment.algorithms) * experiment.permutations * len(data.queries)
    published = published_for(PUBLISHED_ONLINE, data, experiment.discount)
    with tqdm(total=total, unit="query", disable=None if progress else True, leave=False) as bar:
        for algorithm, make in zip(experiment.algorithms, makers, strict=True):
            bar.set_description(algorithm)
            means = [
                _permutation(make, experiment, data, at, bar)
                for at in range(experiment.permutations)
            ]
            yield OnlineRow.of(algorithm, len(data.queries), means, published.get(algorithm))


def _permutation(
    make: Callable[[], Contestant],
    experiment: Experiment,
    data: JudgedData,
    at: int,
    bar: "tqdm[Never]",
) -> Quality:
    rng = np.random.default_rng([experiment.seed, at])
    qualities = []
    for quality in online.play_online(make(), data.queries, rng, experiment.discount):
        qualities.append(quality)
        bar.update()
    return online.mean_quality(qualities)


def contestant_maker(
    algorithm: str, experiment: Experiment, data: JudgedData
) -> Callable[[], Contestant]:
    """Return a constructor of the algorithm; PRank has thresholds for the labels of the data."""
    n, C, gamma = data.n, experiment.C, experiment.gamma
    if data.sparse and algorithm not in ("solar-i", "solar-ii-diagonal"):
        raise SolarError(
            f"{algorithm}: expected at most 2000 features, got {n}; "
            "solar-i and solar-ii-diagonal take more"
        )
    makers: dict[str, Callable[[], Contestant]] = {
        "solar-i": lambda: Pairwise(SolarI(n, C)),
        "solar-ii": lambda: Pairwise(SolarII(n, gamma)),
        "solar-ii-diagonal": lambda: Pairwise(SolarIIDiagonal(n, gamma)),
        "prank-pointwise": lambda: Pointwise(PRank(n, _thresholds(data))),
        "prank-pairwise": lambda: Pairwise(PairwisePerceptron(n)),
        "committee-perceptron": lambda: Pairwise(CommitteePerceptron(n)),
        "pamir": lambda: Pairwise(Pamir(n)),
    }
    return makers[algorithm]


def _thresholds(data: JudgedData) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """PRank's thresholds: one between any two labels that occur."""
    return np.unique(np.concatenate([query.labels for query in data.queries]))[1:]


def _std(means: list[Quality]) -> Quality:
    if len(means) == 1:
        return Quality(0.0, 0.0, 0.0, 0.0, 0.0)
    return Quality(*np.std(np.array(means), axis=0, ddof=1).tolist())


def online_table(rows: list[OnlineRow]) -> str:
    """Format the rows as text, each with the published figures (if known) below."""
    lines = [f"{'':<22}" + "".join(f"{name.upper():<18}" for name in MEASURE_NAMES)]
    for row in rows:
        cells = zip(row.mean, row.std, strict=True)
        name = f"{row.algorithm} *" if row.untuned else row.algorithm
        lines.append(f"{name:<22}" + "".join(f"{m:.4f} ± {s:.4f}   " for m, s in cells))
        if row.published:
            pairs = list(zip(row.published, row.mean, strict=False))
            lines.append(f"{'  published':<22}" + "".join(f"{p:<18.4f}" for p, _ in pairs))
            lines.append(f"{'  difference':<22}" + "".join(f"{m - p:<+18.4f}" for p, m in pairs))
    if any(row.untuned for row in rows):
        lines.append("* untuned: fixed settings, none chosen on validation queries")
    return "\n".join(line.rstrip() for line in lines)
