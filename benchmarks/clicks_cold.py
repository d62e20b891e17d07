"""The cold start of `clicks`: the first rankings, with a good submitted order and a random one."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.domain.model_config import PRIOR
from app.ranking.arrays import Floats
from app.simulation import runner
from app.simulation.results import FIRST_RANKINGS, Trace
from benchmarks.clicks_runs import PLAIN, USERS, reach, seeds, share_out, signed
from benchmarks.report import Goal, table
from benchmarks.worlds import NEEDLE, folds, worlds

COLD_SEEDS = 60
#: Rankings with one relevant document in a thousand, and how many of the last are measured.
NEEDLE_RANKINGS, NEEDLE_LAST = 5_000, 1_000


class Start(NamedTuple):
    """A data set, users, submitted order and prior."""

    data: str
    users: str
    submitted: str
    prior: float


def run() -> list[Goal]:
    """Print the tables, and return the goals of the first one."""
    return [*first_rankings(), *needle()]


def first_rankings() -> list[Goal]:
    """The first rankings on the main data."""
    data = folds()[0]
    starts = [Start(data, users, submitted, prior) for users in USERS
              for submitted in ("best", "random") for prior in (PRIOR, 0.0)]  # fmt: skip
    found = dict(zip(starts, share_out(_first, starts), strict=True))
    rows, goals = [], []
    for users in USERS:
        best, no_prior = (found[Start(data, users, "best", prior)] for prior in (PRIOR, 0.0))
        random, without = (found[Start(data, users, "random", prior)] for prior in (PRIOR, 0.0))
        good, bad = best[:, 0] - best[:, 1], random[:, 0] - without[:, 0]
        rows.append([users, signed(good), signed(no_prior[:, 0] - no_prior[:, 1]), signed(bad)])
        goals += [
            reach(f"{data}, {users}: cold start, good submitted order", -0.005, good.mean()),
            reach(f"{data}, {users}: cold start, random submitted order", -0.01, bad.mean()),
        ]
    head = [
        "shown NDCG@10, difference",
        "best feature, prior: to submitted",
        "best feature, no prior: to submitted",
        "random order, prior: to no prior",
    ]
    title = (
        f"Cold start, {data}: first {FIRST_RANKINGS:,} rankings, prior {PRIOR}, {COLD_SEEDS} seeds"
    )
    print(table(title, head, rows), end="\n\n")
    return goals


def _first(start: Start) -> Floats:
    """The mean NDCG@10 of shown rankings and of submitted orders, by seed."""
    traces = _traces(start, FIRST_RANKINGS, COLD_SEEDS)
    return np.array([(trace.shown.mean(), trace.submitted.mean()) for trace in traces])


def needle() -> list[Goal]:
    """Whether a prior on a random order lets a model learn to find one document in a thousand."""
    starts = [Start(NEEDLE, users, "random", prior) for users in USERS for prior in (PRIOR, 0.0)]
    found = dict(zip(starts, share_out(_last, starts), strict=True))
    rows, goals = [], []
    for users in USERS:
        with_prior, without = (found[Start(NEEDLE, users, "random", p)] for p in (PRIOR, 0.0))
        cells = [f"{one.mean():.4f} (worst {one.min():.4f})" for one in (with_prior, without)]
        rows.append([users, *cells, signed(with_prior - without)])
        name = f"{NEEDLE}, {users}: random submitted order, prior minus no prior"
        goals.append(reach(name, -0.05, (with_prior - without).mean()))
    title = (
        f"Cold start, {NEEDLE}: shown NDCG@10 of the last {NEEDLE_LAST:,} of "
        f"{NEEDLE_RANKINGS:,} rankings, random submitted order, {seeds()} seeds"
    )
    print(table(title, ["users", f"prior {PRIOR}", "no prior", "difference"], rows), end="\n\n")
    return goals


def _last(start: Start) -> Floats:
    traces = _traces(start, NEEDLE_RANKINGS, seeds())
    return np.array([trace.shown[-NEEDLE_LAST:].mean() for trace in traces])


def _traces(start: Start, rankings: int, count: int) -> list[Trace]:
    scenario = replace(PLAIN, impressions=rankings, prior=start.prior, submitted=start.submitted)
    scenario, judged = runner.settle_scenario(scenario, worlds()[start.data].judged)
    return [runner.play_traffic(scenario, judged, start.users, seed) for seed in range(count)]
