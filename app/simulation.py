"""`solar simulate`: judged data as live traffic, in process.

Simulated users come to random queries of the training part, see a list, click, and the model learns
from the clicks; the plain order of the model is measured on the test part now and then. Each seed
is a run of its own. Two scenarios with the same seeds meet the same queries and the same numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tqdm import tqdm

from app.errors import SolarError
from app.letor import JudgedData
from app.ranking import covariance, traffic
from app.ranking import users as crowd
from app.ranking.arrays import Integers
from app.ranking.online import JudgedQuery
from app.ranking.solar import (
    DEFAULT_C,
    DEFAULT_GAMMA,
    LinearLearner,
    SolarI,
    SolarII,
    SolarIIDiagonal,
)
from app.ranking.traffic import BLOCK, PLAIN, Show, Site
from app.slates import min_max
from app.traces import Trace, checkpoints

ALGORITHMS = ("solar-i", "solar-ii", "solar-ii-diagonal")
#: What `_order` starts with in Σ, as in a model of a service.
PRIOR_VARIANCE = 20.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Who comes, what they see, and who learns from it."""

    clicks: str = "debiased"
    stop: str = "click"
    attackers: float = 0.0
    algorithm: str = "solar-ii"
    C: float = DEFAULT_C
    gamma: float = DEFAULT_GAMMA
    prior: float = 0.0
    submitted: str = "file"
    impressions: int = 10_000
    top_k: int = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """The queries that users come to, and those that the model is tested on."""

    train: Sequence[JudgedQuery]
    test: Sequence[JudgedQuery]

    @classmethod
    def of(cls, train: JudgedData, test: JudgedData | None, holdout: float) -> "Judged":
        """Both files, or a drawn share of the one as the test; dense rows only."""
        if train.sparse:
            raise SolarError(f"simulate: expected at most 2000 features, got {train.n}")
        if test is not None:
            return cls(train.queries, test.queries)
        many = round(holdout * len(train.queries))
        if not 0 < many < len(train.queries):
            raise SolarError(
                f"--holdout: expected a share that leaves queries to learn from and to test on, "
                f"got {many} of {len(train.queries)} queries to test on"
            )
        drawn = np.random.default_rng(0).permutation(len(train.queries)).tolist()
        kept = [train.queries[q] for q in sorted(drawn[many:])]
        return cls(kept, [train.queries[q] for q in sorted(drawn[:many])])

    def normalised(self) -> "Judged":
        """The same with each feature scaled over a query's documents."""
        return Judged(*([_scaled(one) for one in part] for part in (self.train, self.test)))

    @property
    def grades(self) -> int:
        """Which click tables fit the labels of both."""
        return crowd.grades(np.concatenate([q.labels for q in (*self.train, *self.test)]))

    def submitted(self, how: str, rng: np.random.Generator) -> "Judged":
        """The same in the order in which documents are submitted."""
        if how == "file":
            return self
        if how == "random":
            return Judged(*([_shuffled(q, rng) for q in part] for part in (self.train, self.test)))
        column, sign = best_feature(self.train) if how == "best" else self._column(how)
        return Judged(
            *([_by_feature(q, column, sign) for q in part] for part in (self.train, self.test))
        )

    def _column(self, how: str) -> tuple[int, float]:
        n = self.train[0].documents.shape[1]
        if not (how.isascii() and how.isdigit() and 1 <= int(how) <= n):
            expected = f"file, random, best or a feature from 1 to {n}"
            raise SolarError(f"--submitted: expected {expected}, got {how!r}")
        return int(how) - 1, 1.0


def best_feature(queries: Sequence[JudgedQuery]) -> tuple[int, float]:
    """The feature, rising or falling, that alone has the best NDCG@10; the first of equals."""
    site = Site.of(queries)
    each = np.eye(site.documents.shape[1])
    found = np.array([[site.ndcg(sign * one) for sign in (1.0, -1.0)] for one in each])
    column, falling = np.unravel_index(found.argmax(), found.shape)
    return int(column), -1.0 if falling else 1.0


def _scaled(query: JudgedQuery) -> JudgedQuery:
    return JudgedQuery(query.labels, min_max(query.documents))


def _shuffled(query: JudgedQuery, rng: np.random.Generator) -> JudgedQuery:
    return _taken(query, rng.permutation(len(query.labels)))


def _by_feature(query: JudgedQuery, column: int, sign: float) -> JudgedQuery:
    return _taken(query, np.argsort(-sign * query.documents[:, column], kind="stable"))


def _taken(query: JudgedQuery, order: Integers) -> JudgedQuery:
    return JudgedQuery(query.labels[order], query.documents[order])


def run(
    scenario: Scenario, judged: Judged, users: Sequence[str], seeds: int, *, progress: bool = True
) -> Iterator[tuple[str, list[Trace]]]:
    """All users, one after the other, each with all seeds; a progress bar on a terminal."""
    checked(scenario, judged, users)
    play(replace(scenario, impressions=BLOCK), judged, users[0], 0)  # compiles
    total = len(users) * seeds * scenario.impressions
    with tqdm(total=total, unit="list", disable=None if progress else True, leave=False) as bar:
        for name in users:
            bar.set_description(name)
            yield name, [play(scenario, judged, name, seed, bar.update) for seed in range(seeds)]


def checked(scenario: Scenario, judged: Judged, users: Sequence[str]) -> None:
    """What cannot be is said before hours of work."""
    Show.to_learn(scenario.clicks, scenario.top_k)
    learner(scenario, judged.train[0].documents.shape[1] + (scenario.prior > 0.0))
    judged.submitted(scenario.submitted, np.random.default_rng(0))
    for name in users:
        visitors(scenario, judged, name)


def visitors(scenario: Scenario, judged: Judged, name: str) -> crowd.Users:
    """Users by name, as the scenario has them."""
    return crowd.users(name, judged.grades, scenario.top_k, scenario.stop, scenario.attackers)


def sites(scenario: Scenario, judged: Judged, seed: int) -> tuple[Site, Site]:
    """What users come to and what the model is tested on, as submitted in this run."""
    arranged = judged.submitted(scenario.submitted, np.random.default_rng([seed, 1]))
    prior = scenario.prior > 0.0
    return Site.of(arranged.train, prior), Site.of(arranged.test, prior)


def learner(scenario: Scenario, n: int) -> LinearLearner:
    """One that has learnt nothing; the last of n features is `_order` if there is a prior."""
    w, first = np.zeros(n), 1.0
    if scenario.prior > 0.0:
        w[-1], first = scenario.prior, PRIOR_VARIANCE
    if scenario.algorithm == "solar-i":
        return SolarI(n, scenario.C, weights=w)
    full = scenario.algorithm == "solar-ii"
    spread = covariance.identity(n) if full else np.ones(n)
    spread[-1] = first  # the last of the diagonal is the last of the triangle
    if full:
        return SolarII(n, scenario.gamma, weights=w, covariance=spread)
    return SolarIIDiagonal(n, scenario.gamma, weights=w, variances=spread)


def play(
    scenario: Scenario,
    judged: Judged,
    users: str,
    seed: int,
    tick: Callable[[int], object] = lambda _: None,
) -> Trace:
    """One run with a fresh learner."""
    site, test = sites(scenario, judged, seed)
    fresh = learner(scenario, site.documents.shape[1])
    show = Show.to_learn(scenario.clicks, scenario.top_k)
    return follow(scenario, site, test, fresh, show, visitors(scenario, judged, users), seed, tick)


def follow(
    scenario: Scenario,
    site: Site,
    test: Site,
    learner: LinearLearner,
    show: Show,
    users: crowd.Users,
    seed: int,
    tick: Callable[[int], object] = lambda _: None,
) -> Trace:
    """A learner through all impressions: it serves, and learns from what is clicked."""
    trace = Trace.begun(scenario.impressions, site.submitted_ndcg())
    ends = checkpoints(scenario.impressions)
    trace.test[0], at = test.ndcg(learner.weights), 1
    rng = np.random.default_rng([seed, 0])
    visits = traffic.visits(site, learner, show, users, rng, scenario.impressions)
    for t, visit in enumerate(trace.timed(visits)):
        trace.add(t, visit)
        pairs = visit.pairs if show.how != PLAIN else visit.classical(scenario.clicks)
        if len(pairs):
            learner.learn_pairs(site.of_query(visit.query), pairs)
        if t + 1 == ends[at]:
            with trace.paused():
                trace.test[at] = test.ndcg(learner.weights)
                tick(int(ends[at] - ends[at - 1]))
                at += 1
    return trace
