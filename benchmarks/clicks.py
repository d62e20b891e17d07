"""Learning from clicks: SOLAR against PDGD, classical clicks and training on labels.

Simulated users on the data sets of `worlds`: 10,000 rankings with ten documents shown. All
contenders get the same queries and random numbers. `SOLAR_DEV_SEEDS` (10) sets the number of runs,
`SOLAR_DEV_PROCESSES` (1) the number of processes.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.ranking.arrays import Floats
from app.simulation import runner
from benchmarks import (
    clicks_cold,
    clicks_contest,
    clicks_drift,
    clicks_examined,
    clicks_forgetting,
    clicks_frontier,
    clicks_lean,
    clicks_scale,
    clicks_wins,
)
from benchmarks.clicks_runs import PLAIN, USERS, reach, seeds, share_out
from benchmarks.report import Goal, at_least
from benchmarks.worlds import folds, worlds

ATTACKERS = (0.01, 0.05, 0.1)
PARTS = (
    clicks_contest,
    clicks_frontier,
    clicks_cold,
    clicks_scale,
    clicks_wins,
    clicks_lean,
    clicks_forgetting,
    clicks_drift,
    clicks_examined,
)


class Attacked(NamedTuple):
    """Users, and the share of attackers among them."""

    users: str
    share: float


def run() -> list[Goal]:
    """Print all tables, return the goals."""
    goals = speed()
    for part in PARTS:
        goals += part.run()
    return goals + under_attack()


def under_attack() -> list[Goal]:
    """Some of the users click the last document shown."""
    cases = [Attacked(users, share) for users in USERS for share in (0.0, *ATTACKERS)]
    ends = dict(zip(cases, share_out(_ends, cases), strict=True))
    return [
        reach(
            f"{folds()[0]}, {users}: {share:.0%} attackers", -0.01,
            (ends[Attacked(users, share)] - ends[Attacked(users, 0.0)]).mean(),
        )
        for users in USERS
        for share in ATTACKERS
    ]  # fmt: skip


def _ends(case: Attacked) -> Floats:
    scenario, judged = replace(PLAIN, attackers=case.share), worlds()[folds()[0]].judged
    traces = (runner.play_traffic(scenario, judged, case.users, s) for s in range(seeds()))
    return np.array([trace.end for trace in traces])


def speed() -> list[Goal]:
    """Rankings per second of CPU time, learning included; the best of three runs."""
    judged, goals = worlds()[folds()[0]].judged, []
    for users in USERS:
        runs = [runner.play_traffic(PLAIN, judged, users, seed) for seed in range(3)]
        rate = max(len(run.shown) / run.seconds for run in runs)
        goals.append(at_least(f"simulated rankings, {users}", 20.0, "k/s", rate / 1e3))
    return goals
