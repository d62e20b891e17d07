"""Runs of `clicks`: one contender on one data set with one kind of users, all seeds.

Contenders get the same queries and random numbers. `SOLAR_DEV_SEEDS` (10) sets the number of
seeds, `SOLAR_DEV_PROCESSES` (1) the number of processes that share the runs.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

import numpy as np

from app.domain.model_config import PRIOR
from app.ranking.arrays import Floats
from app.simulation import runner
from app.simulation.results import Trace
from app.simulation.runner import LearningRanker, Scenario
from benchmarks.pdgd import PdgdRanker
from benchmarks.report import Goal
from benchmarks.worlds import World, worlds

USERS = ("perfect", "navigational", "informational")
DEBIASED, BASELINE = "debiased", "PDGD 0.1"
PRIORED = f"debiased, prior {PRIOR:g}"
PLAIN = Scenario()
SCENARIOS: Mapping[str, Scenario] = {
    DEBIASED: PLAIN,
    **{f"exploration {e:g}": replace(PLAIN, exploration=e) for e in (0.25, 0.5, 2.0, 4.0)},
    PRIORED: replace(PLAIN, prior=PRIOR),
    "debiased, diagonal": replace(PLAIN, algorithm="solar-ii-diagonal"),
    "debiased, SOLAR-I": replace(PLAIN, algorithm="solar-i"),
    "fair-pairs": replace(PLAIN, clicks="fair-pairs"),
    "click-skip-above": replace(PLAIN, clicks="click-skip-above"),
}
#: The learning rates of PDGD.
RATES: Mapping[str, float] = {"PDGD 0.03": 0.03, BASELINE: 0.1, "PDGD 0.3": 0.3}

Job = TypeVar("Job")
Done = TypeVar("Done")


class Run(NamedTuple):
    """One contender, on a data set, with one kind of users."""

    data: str
    users: str
    contender: str
    seeds: int


class Result(NamedTuple):
    """NDCG@10 of the last test and the mean of the shown rankings, by seed."""

    test: Floats
    shown: Floats

    def minus(self, other: "Result") -> "Result":
        """Return the differences, seed by seed."""
        return Result(self.test - other.test, self.shown - other.shown)


_FOUND: dict[Run, Result] = {}


def seeds() -> int:
    """Return the number of seeds."""
    return int(os.environ.get("SOLAR_DEV_SEEDS", "10"))


def share_out(work: Callable[[Job], Done], jobs: Sequence[Job]) -> list[Done]:
    """Do all jobs, in several processes if wanted; return the results in order."""
    processes = int(os.environ.get("SOLAR_DEV_PROCESSES", "1"))
    worlds()  # read before the processes start
    if processes == 1:
        return [work(job) for job in jobs]
    with get_context("fork").Pool(processes) as pool:
        return pool.map(work, jobs, chunksize=1)


def results(runs: Sequence[Run]) -> Mapping[Run, Result]:
    """Return the results of these runs; none is done twice."""
    new = [run for run in dict.fromkeys(runs) if run not in _FOUND]
    _FOUND.update(zip(new, share_out(result, new), strict=True))
    return _FOUND


def result(run: Run) -> Result:
    """Do one run with all seeds."""
    traces = [trace(run, seed) for seed in range(run.seeds)]
    return Result(
        np.array([one.end for one in traces]), np.array([one.shown.mean() for one in traces])
    )


def trace(run: Run, seed: int) -> Trace:
    """Do one run with one seed."""
    world = worlds()[run.data]
    scenario = SCENARIOS.get(run.contender, PLAIN)
    return follow(scenario, world, ranker(run.contender, world), run.users, seed)


def ranker(contender: str, world: World) -> LearningRanker:
    """Return a new contender."""
    if contender in RATES:
        return PdgdRanker(world.judged.n, RATES[contender], PLAIN.top_k)
    scenario = replace(SCENARIOS[contender], pair_bound=world.pair_bound)
    return runner.model(scenario, world.judged.n)


def follow(
    scenario: Scenario, world: World, ranker: LearningRanker, users: str, seed: int
) -> Trace:
    """Let the ranker meet the traffic of a scenario."""
    site, test = runner.sites(scenario, world.judged, seed)
    crowd = runner.visitors(scenario, world.judged, users)
    return runner.follow_traffic(scenario, site, test, ranker, crowd, seed)


def error(values: Floats) -> float:
    """Return the standard error of the mean; 0 for one value."""
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def signed(values: Floats) -> str:
    """Format the mean difference with its standard error."""
    return f"{values.mean():+.4f} ± {error(values):.4f}"


def reach(name: str, least: float, reached: float) -> Goal:
    """Return the goal that a difference is at least this."""
    return Goal(name, f">= {least:+.3f}", f"{reached:+.4f}", bool(reached >= least))


def not_behind(name: str, values: Floats) -> Goal:
    """Return the goal that differences are not below 0 by two standard errors."""
    met = values.mean() + 2.0 * error(values) >= 0.0
    return Goal(name, ">= 0 - 2 errors", signed(values), bool(met))
