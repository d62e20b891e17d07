"""The Newton solver: growth of the trust region, and direct counting (PRSVM+) against the tree.

`SOLAR_DEV_MQ2008=FOLDER` selects fold 1 of LETOR's MQ2008, else synthetic data of its size.
`SOLAR_DEV_MSLR=FOLDER` adds the sample of MSLR-WEB30K (train.txt.xz), scaled by query-minmax.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from app.domain import candidates
from app.evaluation import letor
from app.ranking.arrays import Floats
from app.ranking.batch import newton
from app.ranking.batch.direct_counting import DirectCounting
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.newton import Minimum, NewtonPoint, Objective, Step
from app.ranking.batch.ranksvm import SquaredHinge, squared_hinge
from app.ranking.online import LabelledQuery
from benchmarks.batch import judged, training_data
from benchmarks.report import Goal, at_most, table
from benchmarks.timing import again, side_by_side

COSTS, TOLERANCES = (1e-4, 1e-2, 1.0), (1e-3, 1e-5)
#: The tolerance at which both rules must find the same minimum, and how close its value must be.
EXACT, SAME = 1e-12, 1e-9
Rule = Callable[[float, Step, float], float]


def run() -> list[Goal]:
    """Print the tables, return the goals."""
    sets = data_sets()
    goals = trust_region(sets)
    direct_counting(few_and_many_labels(sets))
    return goals


def data_sets() -> dict[str, Judgements]:
    """Judged data by name."""
    data, name = training_data()
    sets = {name: data}
    folder = os.environ.get("SOLAR_DEV_MSLR")
    if folder:
        read = letor.read_letor([Path(folder) / "train.txt.xz"])
        sets["MSLR sample"] = Judgements.of([_scaled(one) for one in read.queries]).with_pairs()
    sets["1,000 queries, 5 labels"] = judged(100_000, 50, 1_000, 5)
    sets["1 query, all labels differ"] = judged(100_000, 50, 1, None)
    return sets


def _scaled(query: LabelledQuery) -> LabelledQuery:
    rows = np.asarray(query.documents, np.float32)
    return LabelledQuery(query.labels, candidates.min_max(rows))


# ---- the trust region ----


class Cost(NamedTuple):
    """What a fit took."""

    evaluations: int
    products: int
    seconds: float


class Counted:
    """An objective that counts its evaluations."""

    def __init__(self, inner: Objective) -> None:
        self.n, self._inner, self.evaluations = inner.n, inner, 0

    def at(self, w: Floats) -> NewtonPoint:
        """The objective around w."""
        self.evaluations += 1
        return self._inner.at(w)


GROWS: Rule = newton.resized


def grown_by_the_parabola(radius: float, step: Step, actual: float) -> float:
    """The rule before: the boundary makes no difference."""
    return GROWS(radius, step._replace(on_boundary=False), actual)


RULES: dict[str, Rule] = {"before": grown_by_the_parabola, "now": GROWS}


def fitted(objective: Objective, rule: Rule, tolerance: float) -> tuple[Minimum, Cost]:
    """Minimise with a rule for the radius."""
    counted, began = Counted(objective), time.process_time()
    with patch.object(newton, "resized", rule):
        found = newton.minimise(counted, tolerance=tolerance)
    return found, Cost(counted.evaluations, found.products, time.process_time() - began)


def trust_region(sets: dict[str, Judgements]) -> list[Goal]:
    """Evaluations, products and CPU time of both rules, for each set, C and tolerance."""
    rows, costs, differences = [], [], []
    for name, data in sets.items():
        for C in COSTS:
            objective = squared_hinge(data, C)
            exact = [fitted(objective, rule, EXACT)[0] for rule in RULES.values()]
            differences.append(apart(*exact))
            for tolerance in TOLERANCES:
                before, now = (fitted(objective, rule, tolerance)[1] for rule in RULES.values())
                costs.append((before, now))
                rows.append([name, f"{C:g}", f"{tolerance:g}", *described(before, now)])
    before, now = (Cost(*map(sum, zip(*one, strict=True))) for one in zip(*costs, strict=True))
    rows.append(["sum", "", "", *described(before, now)])
    head = ["set", "C", "stop", "evaluations", "ratio", "products", "ratio", "CPU ms"]
    print(table("Trust region: before, now", head, rows, words=3), end="\n\n")
    value, weights = np.max(differences, axis=0)
    print(
        f"minima at {EXACT:g}: values differ by {value:.0e}, weights by {weights:.0e}", end="\n\n"
    )
    worst = max(max(b.evaluations / a.evaluations, b.products / a.products) for a, b in costs)
    evaluations, products = now.evaluations / before.evaluations, now.products / before.products
    return [
        at_most("trust region, evaluations in sum", 0.6, "x before", evaluations),
        at_most("trust region, Hessian products in sum", 0.95, "x before", products),
        at_most("trust region, worst case of both", 1.2, "x before", worst),
        Goal("trust region, same minimum", f"<= {SAME:g}", f"{value:.0e}", value <= SAME),
    ]


def described(before: Cost, now: Cost) -> list[str]:
    """The columns of both rules."""
    return [
        f"{before.evaluations} {now.evaluations:3}", f"{now.evaluations / before.evaluations:.2f}",
        f"{before.products} {now.products:4}", f"{now.products / before.products:.2f}",
        f"{before.seconds * 1e3:.0f} {now.seconds * 1e3:4.0f}",
    ]  # fmt: skip


def apart(one: Minimum, other: Minimum) -> tuple[float, float]:
    """The relative differences of two minima: of their values, and of their weights."""
    values = abs(one.value - other.value) / abs(one.value)
    return values, newton.norm(one.w - other.w) / newton.norm(one.w)


# ---- direct counting ----


def direct_counting(sets: dict[str, Judgements]) -> None:
    """Whole fits of Tree-TRON and PRSVM+, which differ only in the sums over pairs."""
    rows = []
    for name, data in sets.items():
        counting = DirectCounting.of(data.labels, data.starts)
        solvers = {
            "tree": squared_hinge(data, 0.01),
            "PRSVM+": SquaredHinge(data.X, counting, 0.01),
        }
        found = [newton.minimise(one, tolerance=EXACT) for one in solvers.values()]
        runs = {key: again(partial(newton.minimise, one)) for key, one in solvers.items()}
        tree, direct = side_by_side(runs, lasting=1.0).values()
        k = int(np.diff(counting.tree.first).max())
        times = [f"{seconds * 1e3:.1f} ms" for seconds in (tree, direct)]
        rows.append([name, f"{k:,}", *times, f"{direct / tree:.2f}", f"{apart(*found)[0]:.0e}"])
    head = ["set", "k", "tree", "PRSVM+", "PRSVM+ / tree", "difference"]
    print(table("Tree and direct counting, a fit, C = 0.01", head, rows), end="\n\n")


def few_and_many_labels(sets: dict[str, Judgements]) -> dict[str, Judgements]:
    """The sets, with shorter queries of all labels different (k = l): PRSVM+ takes k·l steps."""
    *some, _ = sets.items()
    return dict(some) | {
        f"1 query, {length:,} documents": judged(length, 50, 1, None)
        for length in (100, 1_000, 10_000)
    }
