"""What forgetting costs if nothing changes: final and shown NDCG@10 with it, minus without."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.domain.model_config import FORGETTING
from app.ranking.arrays import Floats
from app.simulation import runner
from app.simulation.results import Trace, checkpoints
from benchmarks.clicks_runs import PLAIN, USERS, follow, share_out, signed
from benchmarks.report import Goal, table
from benchmarks.worlds import worlds

#: The numbers of rankings after which the cost is measured; all are checkpoints.
ENDS = (10_000, 50_000)
#: The largest cost.
LARGEST = 0.003


class Case(NamedTuple):
    """One seed on a data set with one kind of users."""

    data: str
    users: str
    seed: int


def run() -> list[Goal]:
    """Print the cost for all data; seven seeds with three kinds of users are 21 runs."""
    seeds = int(os.environ.get("SOLAR_DEV_CALM_SEEDS", "7"))
    cases = [Case(data, u, seed) for data in worlds() for seed in range(seeds) for u in USERS]
    costs = dict(zip(cases, share_out(cost, cases), strict=True))
    rows, goals = [], []
    for data in worlds():
        found = np.array([costs[case] for case in cases if case.data == data])
        rows.append([data, *(signed(column) for column in found.T)])
        goals += [_goal(data, name, column) for name, column in zip(HEAD, found.T, strict=True)]
    title = f"Forgetting {FORGETTING:g} minus none, no change: NDCG@10, {3 * seeds} runs each"
    print(table(title, ["data", *HEAD], rows), end="\n\n")
    return goals


HEAD = [f"{kind}, {end:,}" for end in ENDS for kind in ("final", "shown")]


def _goal(data: str, name: str, values: Floats) -> Goal:
    """Return the goal that the cost is small; values are gains, with their standard error."""
    wanted, met = f">= {-LARGEST:+.3f}", values.mean() >= -LARGEST
    return Goal(f"{data}: forgetting, {name}", wanted, signed(values), bool(met))


def cost(case: Case) -> Floats:
    """Return the differences of one seed, in the order of HEAD."""
    kept, forgot = (_measured(_trace(case, forgetting)) for forgetting in (0.0, None))
    return np.subtract(forgot, kept)


def _trace(case: Case, forgetting: float | None) -> Trace:
    world = worlds()[case.data]
    scenario = replace(
        PLAIN, impressions=ENDS[-1], forgetting=forgetting, pair_bound=world.pair_bound
    )
    model = runner.model(scenario, world.judged.n)
    return follow(scenario, world, model, case.users, case.seed)


def _measured(trace: Trace) -> Sequence[float]:
    tested = dict(zip(checkpoints(ENDS[-1]).tolist(), trace.test.tolist(), strict=True))
    return [x for end in ENDS for x in (tested[end], float(trace.shown[:end].mean()))]
