"""What it is worth to know how far down a list was examined.

Users read from the top and stop at a known position. Three runs on the same queries, rankings of
the model's own, and random numbers: no depth is stated (documents down to one below the last
click count as seen), the true depth is stated, and the whole page is stated although users stopped
before: the worst that a page can do. Runs with the same seed are compared. The goal is for the mean
cost plus two standard errors. The whole page changes nothing for `click-no-click-next`, so only the
true depth is measured there. `SOLAR_DEV_PROCESSES` (1) sets the number of processes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from app.domain import candidates, codec
from app.domain.candidates import exploring_by
from app.domain.impressions import PriorFeedback, on_request
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig, new_model_config
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.ranking import users as crowd
from app.ranking.arrays import Floats, Integers
from app.ranking.traffic import Site
from app.ranking.users import Users
from app.simulation.runner import Judged
from benchmarks.clicks_runs import share_out
from benchmarks.report import Goal, table
from benchmarks.worlds import folds, worlds

LISTS, SHOWN = 3_000, 10
#: Seeds by users: the cost varies most with informational users.
SEEDS = {"perfect": 40, "navigational": 40, "informational": 150}
#: Seeds of the runs with the true depth, which no goal needs.
KNOWN_SEEDS = {"perfect": 40, "navigational": 40, "informational": 12}
STATED = ("none", "whole page", "true depth")
#: Seeds of the runs of `click-no-click-next`. Perfect users read the whole page.
NEXT_SEEDS = {"navigational": 19, "informational": 19}
#: The most NDCG@10 that a wrong depth may cost; else the depth is off by default.
MOST_COST = 0.005
NOTHING = PriorFeedback.load(b"")


class Run(NamedTuple):
    """One model that learns from one kind of users."""

    users: str
    stated: str
    seed: int
    clicks: str = "debiased"


class Read(NamedTuple):
    """The clicked positions of a user, and how many positions the user has examined."""

    clicked: Integers
    depth: int


def read(users: Users, labels: Floats, uniforms: Floats) -> Read:
    """Return what a user of a cascade does, as `users.visit_ranking`, with the depth.

    >>> found = read(crowd.users("navigational", 3, 3), np.array([2.0, 0.0, 0.0]), np.full(7, 0.4))
    >>> found.clicked, found.depth
    (array([0]), 1)
    """
    clicked = crowd.clicks(users, labels, uniforms)
    for i, label in enumerate(labels.astype(np.int64).tolist()):
        stops = users.every or i in clicked
        if stops and uniforms[2 + 2 * i] < users.stop[label]:
            return Read(clicked, i + 1)
    return Read(clicked, len(labels))


def run() -> list[Goal]:
    """Print NDCG@10 on test queries for each kind of user; the goals bound the worst cost."""
    runs = [Run(users, stated, seed) for users in SEEDS for stated in STATED
            for seed in range(_seeds(users, stated))]  # fmt: skip
    found = dict(zip(runs, share_out(final, runs), strict=True))
    rows, goals = [], list[Goal]()
    for users, seeds in SEEDS.items():
        none, whole, true = (
            np.array([found[Run(users, stated, at)] for at in range(_seeds(users, stated))])
            for stated in STATED
        )
        costs = mean_and_error(none - whole), mean_and_error(none[: len(true)] - true)
        means = [f"{one.mean():.4f}" for one in (none, whole)]
        signed = [f"{mean:+.4f} ± {error:.4f}" for mean, error in costs]
        rows.append([users, str(seeds), *means, signed[0], str(len(true)), signed[1]])
        goals.append(_goal(users, *costs[0]))
    title = f"Depth stated, {folds()[0]}: {LISTS:,} lists, test NDCG@10"
    head = ["users", "seeds", *STATED[:2], "cost", "seeds", "cost of the true depth"]
    print(table(title, head, rows, words=1), end="\n\n")
    _print_next()
    return goals


def _print_next() -> None:
    """Print what the true depth is worth to `click-no-click-next`, which shows the plain order."""
    runs = [Run(users, stated, seed, "click-no-click-next") for users, seeds in NEXT_SEEDS.items()
            for stated in ("none", "true depth") for seed in range(seeds)]  # fmt: skip
    each = iter(share_out(final, runs))
    rows = []
    for users, seeds in NEXT_SEEDS.items():
        none, true = (np.array([next(each) for _ in range(seeds)]) for _ in range(2))
        mean, error = mean_and_error(none - true)
        means = [f"{one.mean():.4f}" for one in (none, true)]
        rows.append([users, str(seeds), *means, f"{mean:+.4f} ± {error:.4f}"])
    title = f"Depth stated, click-no-click-next, {folds()[0]}: {LISTS:,} lists, test NDCG@10"
    head = ["users", "seeds", "none", "true depth", "cost of the true depth"]
    print(table(title, head, rows, words=1), end="\n\n")


def _seeds(users: str, stated: str) -> int:
    return (KNOWN_SEEDS if stated == "true depth" else SEEDS)[users]


def mean_and_error(each: Floats) -> tuple[float, float]:
    """Return the mean and its standard error.

    >>> mean_and_error(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))


def _goal(users: str, mean: float, error: float) -> Goal:
    """A cost that is surely low enough: an undecided one misses the goal."""
    most = mean + 2.0 * error
    name = f"{folds()[0]}, {users}: NDCG@10 that a whole page costs, mean + 2 errors"
    return Goal(name, f"<= {MOST_COST}", f"{most:+.4f}", most <= MOST_COST)


def final(run: Run) -> float:
    """Return the test NDCG@10 of a model after all lists."""
    judged = worlds()[folds()[0]].judged
    n = judged.train[0].documents.shape[1]
    names = tuple(f"f{at}" for at in range(n))
    config = new_model_config(names, prior=0.0, clicks=run.clicks)
    reducer = Reducer(initial_state(config))
    users = crowd.users(run.users, judged.grades, SHOWN)
    for event in lists(judged, users, run.stated, run.seed, reducer, config):
        reducer.apply(codec.dump_record(event))
    return Site.of(judged.test).ndcg(reducer.state().model.weights)


def lists(
    judged: Judged, users: Users, stated: str, seed: int, reducer: Reducer, config: ModelConfig
) -> Iterator[Feedback]:
    """Yield the clicks of each user on a list of the present model."""
    rng = np.random.default_rng(seed)
    for _ in range(LISTS):
        query = judged.train[int(rng.integers(len(judged.train)))]
        model = reducer.state().model
        scale = model.certainty.scale(config.noise, config.exploration or 0.0)
        explore = exploring_by(config, rng.random, scale) if config.explores else None
        found = candidates.rank_candidates(query.documents, model.weights, SHOWN, explore)
        seen = read(users, query.labels[found.shown], rng.random(1 + 2 * SHOWN))
        event = Feedback(
            "e", "clicks", query.documents[found.shown], found.shown, clicks=seen.clicked,
            odds=found.odds, examined=_stated(stated, seen.depth, len(found.shown)),
        )  # fmt: skip
        yield on_request(event, NOTHING, counts_abandoned=True)[0]


def _stated(stated: str, depth: int, shown: int) -> Integers | None:
    return {"none": None, "true depth": np.array([depth]), "whole page": np.array([shown])}[stated]
