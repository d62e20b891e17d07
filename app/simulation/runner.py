"""`solar simulate`: judged data as live traffic, in process.

Simulated users issue random training queries, see a ranking and click. The model learns from the
clicks. Checkpoints measure the model order on the test queries. Each seed is a separate run. Two
scenarios with the same seeds get the same queries and the same random numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from tqdm import tqdm

from app.domain.candidates import min_max, with_order
from app.domain.learners import restored
from app.domain.model import initial_state, initial_variances
from app.domain.model_config import EXPLORING, Algorithm, ModelConfig, new_model_config
from app.errors import SolarError
from app.evaluation.letor import JudgedData
from app.ranking import traffic
from app.ranking import users as crowd
from app.ranking.arrays import Dense, Floats, Integers
from app.ranking.bounds import bounded
from app.ranking.certainty import UNKNOWN, after_ranking
from app.ranking.online import LabelledQuery
from app.ranking.solar import DEFAULT_C, DEFAULT_GAMMA, LinearLearner
from app.ranking.traffic import MODEL_ORDER, USERS_AT_ONCE, Show, Site, Visit
from app.simulation.results import Trace, checkpoints


@dataclass(frozen=True, slots=True)
class Scenario:
    """The settings of a simulation: users, rankings and learner."""

    clicks: str = "debiased"
    stop: str = "click"
    attackers: float = 0.0
    algorithm: str = "solar-ii"
    C: float = DEFAULT_C
    gamma: float = DEFAULT_GAMMA
    prior: float = 0.0
    pair_bound: float | None = None  # None: the default of a new model
    exploration: float = 1.0
    forgetting: float | None = None  # None: the default of a new model
    submitted: str = "file"
    impressions: int = 10_000
    top_k: int = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """Training queries, which users issue, and test queries."""

    train: Sequence[LabelledQuery]
    test: Sequence[LabelledQuery]

    @classmethod
    def of(cls, train: JudgedData, test: JudgedData | None, holdout: float) -> "Judged":
        """Use both data sets, or hold out a random share of the first; dense rows only."""
        if train.sparse:
            raise SolarError(f"simulate: expected at most 2000 features, got {train.n}")
        if test is not None:
            return cls(train.queries, test.queries)
        tests = round(holdout * len(train.queries))
        if not 0 < tests < len(train.queries):
            raise SolarError(
                "--holdout: expected a share that leaves training and test queries, "
                f"got {tests} test queries of {len(train.queries)}"
            )
        drawn = np.random.default_rng(0).permutation(len(train.queries)).tolist()
        kept = [train.queries[q] for q in sorted(drawn[tests:])]
        return cls(kept, [train.queries[q] for q in sorted(drawn[:tests])])

    def normalised(self) -> "Judged":
        """Scale each feature over the documents of a query (min-max)."""
        return self._each(lambda query: LabelledQuery(query.labels, min_max(query.documents)))

    def with_order(self) -> "Judged":
        """Append the submitted order as one more feature."""
        return self._each(lambda query: LabelledQuery(query.labels, with_order(query.documents)))

    def _each(self, change: Callable[[LabelledQuery], LabelledQuery]) -> "Judged":
        return Judged(*([change(query) for query in part] for part in (self.train, self.test)))

    @property
    def n(self) -> int:
        """The number of features."""
        return int(self.train[0].documents.shape[1])

    @property
    def grades(self) -> int:
        """The number of grades of the click tables that fit all labels: 3 or 5."""
        return crowd.grades(np.concatenate([q.labels for q in (*self.train, *self.test)]))

    def submitted(self, how: str, rng: np.random.Generator) -> "Judged":
        """Arrange the documents in the submitted order that `how` names."""
        if how == "file":
            return self
        if how == "random":
            return self._each(lambda query: _taken(query, rng.permutation(len(query.labels))))
        column, sign = best_feature(self.train) if how == "best" else self._column(how)
        return self._each(lambda query: _by_feature(query, column, sign))

    def _column(self, how: str) -> tuple[int, float]:
        if not (how.isascii() and how.isdigit() and 1 <= int(how) <= self.n):
            expected = f"file, random, best or a feature from 1 to {self.n}"
            raise SolarError(f"--submitted: expected {expected}, got {how!r}")
        return int(how) - 1, 1.0


def best_feature(queries: Sequence[LabelledQuery]) -> tuple[int, float]:
    """Return the feature and the sign that alone give the best NDCG@10; the first of equals."""
    site = Site.of(queries)
    each = np.eye(site.documents.shape[1])
    found = np.array([[site.ndcg(sign * one) for sign in (1.0, -1.0)] for one in each])
    column, falling = np.unravel_index(found.argmax(), found.shape)
    return int(column), -1.0 if falling else 1.0


def _by_feature(query: LabelledQuery, column: int, sign: float) -> LabelledQuery:
    return _taken(query, np.argsort(-sign * query.documents[:, column], kind="stable"))


def _taken(query: LabelledQuery, order: Integers) -> LabelledQuery:
    return LabelledQuery(query.labels[order], query.documents[order])


def run_simulation(
    scenario: Scenario, judged: Judged, users: Sequence[str], seeds: int, *, progress: bool = True
) -> Iterator[tuple[str, list[Trace]]]:
    """Simulate all users, each with all seeds; show a progress bar on a terminal."""
    check_scenario(scenario, judged, users)
    scenario, judged = settle_scenario(scenario, judged)
    play_traffic(replace(scenario, impressions=USERS_AT_ONCE), judged, users[0], 0)  # compiles
    total = len(users) * seeds * scenario.impressions
    with tqdm(total=total, unit="ranking", disable=None if progress else True, leave=False) as bar:
        for name in users:
            bar.set_description(name)
            yield (
                name,
                [play_traffic(scenario, judged, name, seed, bar.update) for seed in range(seeds)],
            )


def check_scenario(scenario: Scenario, judged: Judged, users: Sequence[str]) -> None:
    """Report invalid settings before hours of work."""
    Show.to_learn(scenario.clicks, scenario.top_k)
    model(scenario, judged.n)
    judged.submitted(scenario.submitted, np.random.default_rng(0))
    for name in users:
        visitors(scenario, judged, name)


def settle_scenario(scenario: Scenario, judged: Judged) -> tuple[Scenario, Judged]:
    """Arrange a submitted order that does not depend on the seed once, for all runs."""
    if scenario.submitted == "random":
        return scenario, judged
    arranged = judged.submitted(scenario.submitted, np.random.default_rng(0))
    return replace(scenario, submitted="file"), arranged


def visitors(scenario: Scenario, judged: Judged, name: str) -> crowd.Users:
    """Return the users of this name with the scenario's settings."""
    return crowd.users(name, judged.grades, scenario.top_k, scenario.stop, scenario.attackers)


def sites(scenario: Scenario, judged: Judged, seed: int) -> tuple[Site, Site]:
    """Return training and test queries in the submitted order of this run."""
    arranged = judged.submitted(scenario.submitted, np.random.default_rng([seed, 1]))
    if scenario.prior:
        arranged = arranged.with_order()
    return Site.of(arranged.train), Site.of(arranged.test)


class LearningRanker(traffic.Ranker, Protocol):
    """A ranker that learns from visits."""

    learner: LinearLearner

    def learn(self, documents: Dense, visit: Visit) -> None:
        """Learn the clicks of a visit."""


def model_config(scenario: Scenario, n: int) -> ModelConfig:
    """Return the configuration of a new model of n features, plus one if there is a prior."""
    names = tuple(f"f{at}" for at in range(1, n + 1))
    diagonal = scenario.algorithm.endswith("-diagonal")
    algorithm: Algorithm = "solar-i" if scenario.algorithm == "solar-i" else "solar-ii"
    return new_model_config(
        names, algorithm=algorithm, covariance="diagonal" if diagonal else "full", C=scenario.C,
        gamma=scenario.gamma, clicks=scenario.clicks, prior=scenario.prior,
        pair_bound=scenario.pair_bound, exploration=scenario.exploration,
        forgetting=scenario.forgetting,
    )  # fmt: skip


class SimulatedModel:
    """A model that learns from the clicks of a simulation, like the reducer of the service."""

    def __init__(self, config: ModelConfig, top_k: int) -> None:
        self._config, self.learner = config, restored(initial_state(config).model)
        self._initial, self.certainty = initial_variances(config), UNKNOWN
        show = Show.to_learn(config.clicks, top_k) if config.explores else Show(MODEL_ORDER, top_k)
        self._show = show._replace(amount=config.exploration or 1.0, kappa=config.kappa)

    @property
    def show(self) -> Show:
        """How the next ranking is made."""
        scale = self.certainty.scale(self._config.noise, self._config.exploration or 0.0)
        return self._show._replace(scale=scale)

    def score(self, documents: Dense) -> Floats:
        """Return the score of each document."""
        return self.learner.score(documents)

    def learn(self, documents: Dense, visit: Visit) -> None:
        """Learn the clicks of a visit."""
        classical = self._config.clicks not in EXPLORING
        pairs = visit.classical(self._config.clicks) if classical else visit.pairs
        if not len(pairs):
            return
        pairs, _ = bounded(documents, pairs, self._config.pair_bound)
        tally = self.learner.learn_pairs(documents, pairs).tally()
        self.certainty = after_ranking(
            self.certainty, tally, self.learner, self._config.forgetting or 0.0, self._initial
        )


def model(scenario: Scenario, n: int) -> SimulatedModel:
    """Return a new model."""
    return SimulatedModel(model_config(scenario, n), scenario.top_k)


def play_traffic(
    scenario: Scenario,
    judged: Judged,
    users: str,
    seed: int,
    tick: Callable[[int], object] = lambda _: None,
) -> Trace:
    """Run one simulation with a new model."""
    site, test = sites(scenario, judged, seed)
    fresh = model(scenario, judged.n)
    return follow_traffic(
        scenario, site, test, fresh, visitors(scenario, judged, users), seed, tick
    )


def follow_traffic(
    scenario: Scenario,
    site: Site,
    test: Site,
    ranker: LearningRanker,
    users: crowd.Users,
    seed: int,
    tick: Callable[[int], object] = lambda _: None,
) -> Trace:
    """Run all impressions: the model ranks, then learns from the clicks."""
    trace = Trace.begun(scenario.impressions, site.submitted_ndcg())
    ends = checkpoints(scenario.impressions)
    trace.test[0], at = test.ndcg(ranker.learner.weights), 1
    rng = np.random.default_rng([seed, 0])
    visits = traffic.visits(site, ranker, users, rng, scenario.impressions)
    for t, visit in enumerate(trace.timed(visits)):
        trace.add(t, visit)
        ranker.learn(site.of_query(visit.query), visit)
        if t + 1 == ends[at]:
            with trace.paused():
                trace.test[at] = test.ndcg(ranker.learner.weights)
                tick(int(ends[at] - ends[at - 1]))
                at += 1
    return trace
