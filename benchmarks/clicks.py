"""Learning from clicks: SOLAR against PDGD, classical clicks and supervised learning.

Simulated users on judged data (`judged` says which), 10,000 lists, ten documents shown; all
contenders meet the same queries and numbers. `SOLAR_DEV_SEEDS` (10) says how many runs.
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
from app.simulation.results import FIRST_LISTS, Trace
from app.simulation.runner import Judged, Scenario
from benchmarks import clicks_wins
from benchmarks.judged import main_data, other_data
from benchmarks.pdgd import SHOW, Pdgd
from benchmarks.report import Goal, at_least, table

USERS = ("perfect", "navigational", "informational")
PRIOR = PRIORS["solar-ii"]
COLD_SEEDS = 60
PLAIN = Scenario()

Play = Callable[[Judged, str, int], Trace]


def pdgd(judged: Judged, users: str, seed: int, scenario: Scenario = PLAIN) -> Trace:
    """PDGD through the same traffic."""
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
#: On other data.
FEW = ("debiased", "fair-pairs", "PDGD")


class Found(NamedTuple):
    """One contender with one kind of users: a number for each seed."""

    test: Floats
    shown: Floats

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Found":
        """The test at the end, and the mean of the lists shown."""
        ends, shown = [t.end for t in traces], [t.shown.mean() for t in traces]
        return cls(np.array(ends), np.array(shown))


def run() -> list[Goal]:
    """All tables; the goals are those of the issue."""
    seeds = int(os.environ.get("SOLAR_DEV_SEEDS", "10"))
    name, judged = main_data()
    goals = contest(name, judged, tuple(CONTENDERS), seeds)
    goals += cold_start(name, judged)
    goals += attacked(name, judged, seeds)
    goals += clicks_wins.run(name, judged)
    for other, data in other_data():
        goals += contest(other, data, FEW, seeds)
    return [*goals, *speed(judged)]


def contest(name: str, judged: Judged, who: Sequence[str], seeds: int) -> list[Goal]:
    """Everybody against PDGD, and against who was told the labels."""
    found = {
        (one, users): Found.of([CONTENDERS[one](judged, users, seed) for seed in range(seeds)])
        for one in who
        for users in USERS
    }
    best = supervised(judged, seeds)
    head = ["NDCG@10, test / shown", *USERS]
    rows = [[one, *(_both(found[one, users]) for users in USERS)] for one in who]
    rows.append(["SOLAR-II, supervised", *([_mean(best)] * len(USERS))])
    print(table(f"Clicks, {name}: {seeds} seeds", head, rows), end="\n\n")
    rows = [[one, *(_lead(found[one, u], found["PDGD", u]) for u in USERS)] for one in who]
    title = f"Clicks, {name}: lead on PDGD, ± standard error over the seeds"
    print(table(title, head, [row for row in rows if row[0] != "PDGD"]), end="\n\n")
    return [goal for users in USERS for goal in _goals(name, found, best, users)]


def _goals(
    name: str, found: Mapping[tuple[str, str], Found], best: Floats, users: str
) -> list[Goal]:
    ours, theirs = found["debiased", users], found["PDGD", users]
    return [
        _reach(f"{name}, {users}: test against PDGD", 0.0, (ours.test - theirs.test).mean()),
        _reach(f"{name}, {users}: shown against PDGD", 0.005, (ours.shown - theirs.shown).mean()),
        _reach(f"{name}, {users}: test against supervised", -0.01, ours.test.mean() - best.mean()),
    ]


def _reach(name: str, least: float, reached: float) -> Goal:
    return Goal(name, f">= {least:+.3f}", f"{reached:+.4f}", reached >= least)


def supervised(judged: Judged, seeds: int) -> Floats:
    """The test after SOLAR-II has learnt all labels of the same queries once, in random order."""
    found = []
    for seed in range(seeds):
        site, test = runner.sites(PLAIN, judged, seed)
        found.append(test.ndcg(taught(judged, site, np.random.default_rng(seed))))
    return np.array(found)


def taught(judged: Judged, site: Site, rng: np.random.Generator) -> Floats:
    """The weights after one pass over all labels."""
    learner = SolarII(site.documents.shape[1])
    for q in rng.permutation(len(judged.train)).tolist():
        learner.learn_pairs(site.of_query(q), judged.train[q].pairs.shuffled(rng))
    return learner.weights


def cold_start(name: str, judged: Judged) -> list[Goal]:
    """The first 2,000 lists, where the submitted order is good and where it says nothing."""
    short = replace(PLAIN, impressions=FIRST_LISTS)
    rows, goals = [], []
    for users in USERS:
        best = _first(replace(short, prior=PRIOR, submitted="best"), judged, users)
        guess = _first(replace(short, prior=PRIOR, submitted="random"), judged, users)
        paper = _first(replace(short, submitted="random"), judged, users)
        without = _first(replace(short, submitted="best"), judged, users)
        good, bad = best[:, 0] - best[:, 1], guess[:, 0] - paper[:, 0]
        rows.append([users, _signed(good), _signed(without[:, 0] - without[:, 1]), _signed(bad)])
        goals += [
            _reach(f"{name}, {users}: cold start, good order submitted", -0.005, good.mean()),
            _reach(f"{name}, {users}: cold start, random order submitted", -0.01, bad.mean()),
        ]
    head = [
        "shown NDCG@10",
        "best feature: prior",
        "without, against it",
        "random: against prior 0",
    ]
    title = f"Cold start, {name}: first {FIRST_LISTS:,} lists, prior {PRIOR}, {COLD_SEEDS} seeds"
    print(table(title, head, rows), end="\n\n")
    return goals


def _first(scenario: Scenario, judged: Judged, users: str) -> Floats:
    """The means of shown and submitted lists, by seed."""
    scenario, judged = runner.settle_scenario(scenario, judged)
    traces = [runner.play_traffic(scenario, judged, users, seed) for seed in range(COLD_SEEDS)]
    return np.array([(t.shown.mean(), t.submitted.mean()) for t in traces])


def attacked(name: str, judged: Judged, seeds: int) -> list[Goal]:
    """One user in a hundred clicks the last document shown."""
    goals = []
    for users in USERS:
        calm, loud = (
            np.array([runner.play_traffic(one, judged, users, seed).end for seed in range(seeds)])
            for one in (PLAIN, replace(PLAIN, attackers=0.01))
        )
        goals.append(_reach(f"{name}, {users}: 1 % attackers", -0.01, (loud - calm).mean()))
    return goals


def speed(judged: Judged) -> list[Goal]:
    """Lists a second of one core's time, learning included; the best of three runs."""
    goals = []
    for users in USERS:
        runs = [runner.play_traffic(PLAIN, judged, users, seed) for seed in range(3)]
        rate = max(len(run.shown) / run.seconds for run in runs)
        goals.append(at_least(f"simulated lists, {users}", 20.0, "k/s", rate / 1e3))
    return goals


def _both(found: Found) -> str:
    return f"{_mean(found.test)} / {found.shown.mean():.4f}"


def _mean(values: Floats) -> str:
    return f"{values.mean():.4f} ± {values.std(ddof=1):.4f}"


def _lead(ours: Found, theirs: Found) -> str:
    return f"{_signed(ours.test - theirs.test)} / {_signed(ours.shown - theirs.shown)}"


def _signed(values: Floats) -> str:
    return f"{values.mean():+.4f} ± {values.std(ddof=1) / len(values) ** 0.5:.4f}"
