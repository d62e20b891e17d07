"""Learning from clicks: SOLAR against PDGD, classical clicks and training on labels.

Simulated users on the judged data of `judged`: 10,000 rankings with ten documents shown. All
contenders get the same queries and random numbers. `SOLAR_DEV_SEEDS` (10) sets the number of runs.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from app.domain.model_config import PRIORS
from app.ranking.arrays import Floats
from app.ranking.solar import SolarII
from app.ranking.traffic import Site
from app.simulation import runner
from app.simulation.results import FIRST_RANKINGS, Trace
from app.simulation.runner import Judged, Scenario
from benchmarks import clicks_wins
from benchmarks.judged import main_data, other_data
from benchmarks.pdgd import SHOW, Pdgd
from benchmarks.report import Goal, at_least, table

USERS = ("perfect", "navigational", "informational")
PRIOR = PRIORS["solar-ii"]
COLD_SEEDS = 60
PLAIN = Scenario()
ATTACKERS = (0.01, 0.05, 0.1)

Play = Callable[[Judged, str, int], Trace]


def pdgd(judged: Judged, users: str, seed: int, scenario: Scenario = PLAIN) -> Trace:
    """Run PDGD on the same traffic."""
    site, test = runner.sites(scenario, judged, seed)
    crowd = runner.visitors(scenario, judged, users)
    learner = Pdgd(judged.n)
    return runner.follow_traffic(scenario, site, test, learner, SHOW, crowd, seed)


CONTENDERS: Mapping[str, Play] = {
    "debiased": partial(runner.play_traffic, PLAIN),
    "fair-pairs": partial(runner.play_traffic, replace(PLAIN, clicks="fair-pairs")),
    f"debiased, prior {PRIOR}": partial(runner.play_traffic, replace(PLAIN, prior=PRIOR)),
    "PDGD": pdgd,
    "click-skip-above": partial(runner.play_traffic, replace(PLAIN, clicks="click-skip-above")),
}
#: The contenders on the other data sets.
OTHER_DATA_CONTENDERS = ("debiased", "fair-pairs", "PDGD")


class Result(NamedTuple):
    """The results of one contender with one kind of users, by seed."""

    test: Floats
    shown: Floats

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Result":
        """Take the last test, and the mean of the shown rankings."""
        ends, shown = [t.end for t in traces], [t.shown.mean() for t in traces]
        return cls(np.array(ends), np.array(shown))


def run() -> list[Goal]:
    """Print all tables, return the goals."""
    seeds = int(os.environ.get("SOLAR_DEV_SEEDS", "10"))
    name, judged = main_data()
    goals = contest(name, judged, tuple(CONTENDERS), seeds)
    goals += cold_start(name, judged)
    goals += under_attack(name, judged, seeds)
    goals += clicks_wins.run(name, judged)
    for other, data in other_data():
        goals += contest(other, data, OTHER_DATA_CONTENDERS, seeds)
    return [*goals, *speed(judged)]


def contest(name: str, judged: Judged, contenders: Sequence[str], seeds: int) -> list[Goal]:
    """All contenders against PDGD and against training on labels."""
    found = {
        (one, users): Result.of([CONTENDERS[one](judged, users, seed) for seed in range(seeds)])
        for one in contenders
        for users in USERS
    }
    best = trained_on_labels(judged, seeds)
    head = ["NDCG@10, test / shown", *USERS]
    rows = [[one, *(_both(found[one, users]) for users in USERS)] for one in contenders]
    rows.append(["SOLAR-II, trained on labels", *([_mean(best)] * len(USERS))])
    print(table(f"Clicks, {name}: {seeds} seeds", head, rows), end="\n\n")
    rows = [[one, *(_lead(found[one, u], found["PDGD", u]) for u in USERS)] for one in contenders]
    title = f"Clicks, {name}: difference to PDGD, ± standard error over the seeds"
    print(table(title, head, [row for row in rows if row[0] != "PDGD"]), end="\n\n")
    return [goal for users in USERS for goal in _goals(name, found, best, users)]


def _goals(
    name: str, found: Mapping[tuple[str, str], Result], best: Floats, users: str
) -> list[Goal]:
    solar, pdgd = found["debiased", users], found["PDGD", users]
    return [
        _reach(f"{name}, {users}: test minus PDGD", 0.0, (solar.test - pdgd.test).mean()),
        _reach(f"{name}, {users}: shown minus PDGD", 0.005, (solar.shown - pdgd.shown).mean()),
        _reach(
            f"{name}, {users}: test minus trained on labels", -0.01, solar.test.mean() - best.mean()
        ),
    ]


def _reach(name: str, least: float, reached: float) -> Goal:
    return Goal(name, f">= {least:+.3f}", f"{reached:+.4f}", reached >= least)


def trained_on_labels(judged: Judged, seeds: int) -> Floats:
    """The test after SOLAR-II learnt all labels of the same queries once, in random order."""
    found = []
    for seed in range(seeds):
        site, test = runner.sites(PLAIN, judged, seed)
        found.append(test.ndcg(label_weights(judged, site, np.random.default_rng(seed))))
    return np.array(found)


def label_weights(judged: Judged, site: Site, rng: np.random.Generator) -> Floats:
    """The weights after one pass over all labels."""
    learner = SolarII(site.documents.shape[1])
    for q in rng.permutation(len(judged.train)).tolist():
        learner.learn_pairs(site.of_query(q), judged.train[q].pairs.shuffled(rng))
    return learner.weights


def cold_start(name: str, judged: Judged) -> list[Goal]:
    """The first 2,000 rankings, with a good submitted order and with a random one."""
    short = replace(PLAIN, impressions=FIRST_RANKINGS)
    rows, goals = [], []
    for users in USERS:
        best = _first(replace(short, prior=PRIOR, submitted="best"), judged, users)
        random = _first(replace(short, prior=PRIOR, submitted="random"), judged, users)
        no_prior = _first(replace(short, submitted="random"), judged, users)
        without = _first(replace(short, submitted="best"), judged, users)
        good, bad = best[:, 0] - best[:, 1], random[:, 0] - no_prior[:, 0]
        rows.append([users, _signed(good), _signed(without[:, 0] - without[:, 1]), _signed(bad)])
        goals += [
            _reach(f"{name}, {users}: cold start, good submitted order", -0.005, good.mean()),
            _reach(f"{name}, {users}: cold start, random submitted order", -0.01, bad.mean()),
        ]
    head = [
        "shown NDCG@10, difference",
        "best feature, prior: to submitted",
        "best feature, no prior: to submitted",
        "random order, prior: to no prior",
    ]
    title = (
        f"Cold start, {name}: first {FIRST_RANKINGS:,} rankings, prior {PRIOR}, {COLD_SEEDS} seeds"
    )
    print(table(title, head, rows), end="\n\n")
    return goals


def _first(scenario: Scenario, judged: Judged, users: str) -> Floats:
    """The mean NDCG@10 of shown rankings and of submitted orders, by seed."""
    scenario, judged = runner.settle_scenario(scenario, judged)
    traces = [runner.play_traffic(scenario, judged, users, seed) for seed in range(COLD_SEEDS)]
    return np.array([(t.shown.mean(), t.submitted.mean()) for t in traces])


def under_attack(name: str, judged: Judged, seeds: int) -> list[Goal]:
    """Some of the users click the last document shown."""
    goals = []
    for users in USERS:
        ends = {
            share: np.array(
                [runner.play_traffic(scenario, judged, users, seed).end for seed in range(seeds)]
            )
            for share in (0.0, *ATTACKERS)
            for scenario in (replace(PLAIN, attackers=share),)
        }
        for share in ATTACKERS:
            title = f"{name}, {users}: {share:.0%} attackers"
            goals.append(_reach(title, -0.01, (ends[share] - ends[0.0]).mean()))
    return goals


def speed(judged: Judged) -> list[Goal]:
    """Rankings per second of CPU time, learning included; the best of three runs."""
    goals = []
    for users in USERS:
        runs = [runner.play_traffic(PLAIN, judged, users, seed) for seed in range(3)]
        rate = max(len(run.shown) / run.seconds for run in runs)
        goals.append(at_least(f"simulated rankings, {users}", 20.0, "k/s", rate / 1e3))
    return goals


def _both(found: Result) -> str:
    return f"{_mean(found.test)} / {found.shown.mean():.4f}"


def _mean(values: Floats) -> str:
    return f"{values.mean():.4f} ± {values.std(ddof=1):.4f}"


def _lead(one: Result, other: Result) -> str:
    return f"{_signed(one.test - other.test)} / {_signed(one.shown - other.shown)}"


def _signed(values: Floats) -> str:
    return f"{values.mean():+.4f} ± {values.std(ddof=1) / len(values) ** 0.5:.4f}"
