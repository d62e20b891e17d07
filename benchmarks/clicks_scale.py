"""All features times a factor: how much the results of `clicks` depend on the scale.

If `gamma` and `pair_bound` grow with the square of the factor, the rankings should stay the same:
all of them for a factor of 8, which is exact in binary. A factor of 10 or 0.1 rounds features, and
a near tie that is broken differently once changes all later clicks.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.ranking.arrays import Dense, Floats, Integers
from app.ranking.online import LabelledQuery
from app.ranking.traffic import Visit
from app.simulation import runner
from app.simulation.runner import Judged, SimulatedModel
from benchmarks.clicks_runs import PLAIN, follow, share_out, signed
from benchmarks.report import Goal, table
from benchmarks.worlds import World, folds, worlds

EXACT = 8.0
FACTORS = (10.0, 0.1, EXACT)
USERS = ("perfect", "informational")
SEEDS = 5


class Case(NamedTuple):
    """Features times `factor`, `gamma` and `pair_bound` times `settings`."""

    users: str
    seed: int
    factor: float = 1.0
    settings: float = 1.0


class Scaled(NamedTuple):
    """The results of a case: last test, mean of the shown rankings, and the lists."""

    test: float
    shown: float
    lists: Sequence[Integers]


class Recorded(SimulatedModel):
    """A model that keeps the lists it showed."""

    lists: list[Integers]

    def learn(self, documents: Dense, visit: Visit) -> None:
        """Keep the list, then learn."""
        self.lists.append(visit.shown)
        super().learn(documents, visit)


def run() -> list[Goal]:
    """Print the changes; the goal is that the lists stay the same if the settings fit."""
    cases = [Case(users, seed, *scale) for users in USERS for seed in range(SEEDS)
             for scale in ((1.0, 1.0), *_scales())]  # fmt: skip
    found = dict(zip(cases, share_out(scaled, cases), strict=True))
    rows, goals = [], []
    for users in USERS:
        for scale in _scales():
            changes = np.array([_change(found, users, seed, scale) for seed in range(SEEDS)])
            same = float(changes[:, 2].mean())
            least = float(changes[:, 2].min())
            row = [signed(changes[:, 0]), signed(changes[:, 1]), f"{same:.2%}", f"{least:.2%}"]
            rows.append([users, f"{scale[0]:g}", f"{scale[1]:g}", *row])
            if scale == (EXACT, EXACT**2):
                name = f"features times {EXACT:g}, {users}: same lists"
                goals.append(Goal(name, "100 %", f"{same:.2%}", same == 1.0))
    head = ["users", "features times", "gamma, pair_bound times", "final", "shown", "same lists",
            "worst seed"]  # fmt: skip
    print(table(f"Scale, {folds()[0]}: change of NDCG@10, {SEEDS} seeds", head, rows), end="\n\n")
    return goals


def _scales() -> list[tuple[float, float]]:
    return [(factor, settings) for factor in FACTORS for settings in (1.0, round(factor**2, 9))]


def _change(
    found: dict[Case, Scaled], users: str, seed: int, scale: tuple[float, float]
) -> tuple[float, float, float]:
    before, after = found[Case(users, seed)], found[Case(users, seed, *scale)]
    pairs = zip(before.lists, after.lists, strict=True)
    same = np.mean([np.array_equal(one, other) for one, other in pairs])
    return after.test - before.test, after.shown - before.shown, float(same)


def scaled(case: Case) -> Scaled:
    """Run one case."""
    judged = worlds()[folds()[0]].judged
    world = World(times(judged, case.factor))
    usual = runner.model_config(PLAIN, judged.n)
    bound = (usual.pair_bound or 0.0) * case.settings
    scenario = replace(PLAIN, gamma=PLAIN.gamma * case.settings, pair_bound=bound)
    model = Recorded(runner.model_config(scenario, judged.n), PLAIN.top_k)
    model.lists = []
    trace = follow(scenario, world, model, case.users, case.seed)
    return Scaled(trace.end, float(trace.shown.mean()), model.lists)


def times(judged: Judged, factor: float) -> Judged:
    """Multiply all features."""
    parts = (judged.train, judged.test)
    return Judged(*([_times(query, factor) for query in part] for part in parts))


def _times(query: LabelledQuery, factor: float) -> LabelledQuery:
    documents: Floats = query.documents * np.float64(factor)
    return LabelledQuery(query.labels, documents.astype(np.float32))
