"""What lists of duels teach: test NDCG@10 after 10,000 requests, without a duel and with one.

The model learns from all its lists. It duels with the submitted order and with a follower, on a
share of the requests. NDCG@10 of the lists as users saw them shows what the duel costs them.
"""

from typing import NamedTuple

import numpy as np

from app.domain.duels import SUBMITTED, Duel
from app.ranking import measures
from app.ranking.arrays import Floats, Integers
from app.ranking.traffic import DEPTH, Site, discount_table
from app.simulation import runner
from app.simulation.duel_runner import FOLLOWER, requests
from app.simulation.in_process import InProcessModel
from app.simulation.runner import Scenario
from benchmarks.clicks_runs import USERS, error, reach, seeds, share_out, signed
from benchmarks.duels_cases import ALPHA
from benchmarks.report import Goal, table
from benchmarks.worlds import folds, worlds

SHARES = (0.2, 0.5)
#: The follower that the model duels with.
FOLLOWS = {"gamma": 1e3}
STRATEGIES = ("debiased", "fair-pairs")


class Case(NamedTuple):
    """How a model learns, from whom, and its duel; share 0 is none."""

    clicks: str
    users: str
    challenger: str
    share: float


class Learnt(NamedTuple):
    """NDCG@10 by seed: of the test at the end, and the mean of the lists shown."""

    test: Floats
    shown: Floats


def run() -> list[Goal]:
    """Print all cases; no duel should cost the model a hundredth of NDCG@10."""
    found = dict(zip(cases(), share_out(measure, cases()), strict=True))
    rows, leads = [], list[float]()
    for case, one in found.items():
        without = found[Case(case.clicks, case.users, "", 0.0)]
        lead = one.test - without.test
        rows.append([
            case.clicks, case.users, case.challenger or "no duel", f"{case.share:g}",
            f"{one.test.mean():.4f} ± {error(one.test):.4f}", signed(lead) if case.share else "",
            f"{one.shown.mean():.4f}", signed(one.shown - without.shown) if case.share else "",
        ])  # fmt: skip
        if case.share:
            leads.append(float(lead.mean()))
    head = ["clicks", "users", "duel with", "share", "test", "lead", "shown", "lead of the shown"]
    title = f"NDCG@10 after {Scenario().impressions:,} requests, {folds()[0]}, {seeds()} seeds"
    print(table(title, head, rows, words=3), end="\n\n")
    return [reach("NDCG@10 of a model that duels, least lead", -0.01, min(leads))]


def cases() -> list[Case]:
    """Return all cases."""
    duels = [("", 0.0), *((name, share) for name in (SUBMITTED, FOLLOWER) for share in SHARES)]
    return [
        Case(clicks, users, *duel) for clicks in STRATEGIES for users in USERS for duel in duels
    ]


def measure(case: Case) -> Learnt:
    """Play all seeds of a case."""
    found = np.array([play(case, seed) for seed in range(seeds())])
    return Learnt(found[:, 0], found[:, 1])


def play(case: Case, seed: int) -> tuple[float, float]:
    """Return NDCG@10 of the test at the end, and of the lists shown."""
    scenario, judged = Scenario(clicks=case.clicks), worlds()[folds()[0]].judged
    site, test = runner.sites(scenario, judged, seed)
    model = InProcessModel(runner.model_config(scenario, judged.n), scenario.top_k)
    if case.challenger == FOLLOWER:
        model.follow(FOLLOWER, FOLLOWS)
    if case.share:
        model.append(Duel(case.challenger, case.share, ALPHA))
    users = runner.visitors(scenario, judged, case.users)
    shown = [ndcg(site, *one) for one in requests(model, scenario, site, users, seed)]
    return test.ndcg(model.state().model.weights), float(np.mean(shown))


def ndcg(site: Site, query: int, shown: Integers) -> float:
    """Return the NDCG@10 of one list."""
    labels, ideal = site.labels[site.starts[query] + shown], site.ideal[query]
    gained = measures.discounted(labels, discount_table(), min(DEPTH, len(shown)))
    return float(gained / ideal) if ideal > 0.0 else 0.0
