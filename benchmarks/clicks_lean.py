"""How debiased wins and click-NDCG lean: two fixed models, with each of them drawing the rankings.

Three models rank the test queries: one trained on all labels (`good`), one trained on few labels
(`few`), and the best single feature (`feature`). Of several few labels those are chosen whose
NDCG@10 is nearest to that of the feature, so two models are equal. No model learns while it is
measured, so the truth is known. One model draws the rankings, the other is the submitted order. An
unbiased measure of the lead does not depend on which of the two draws.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from app.ranking import traffic
from app.ranking.arrays import Floats
from app.ranking.online import LabelledQuery
from app.ranking.solar import SolarII
from app.ranking.traffic import FixedRanker, Show, Site
from app.simulation import runner
from app.simulation.runner import Judged, Scenario, best_feature
from benchmarks.clicks_runs import USERS, error, seeds, share_out, signed
from benchmarks.clicks_wins import click_ndcg, ordered, trained_on_labels
from benchmarks.report import Goal, table
from benchmarks.worlds import folds, worlds

RANKINGS = 20_000
#: Click-NDCG is measured on every tenth ranking, if it has a click.
EVERY = 10
#: Numbers of training queries to learn few labels from, and how often each is drawn.
FEW, DRAWS = (1, 2, 3, 5, 10, 25, 50), 8
MODELS = ("good", "few", "feature")
#: Data beside the folds, if there is any: long lists are invented.
OTHERS = ("MSLR-sample", "long lists")
#: True leads in NDCG@10: the least, and the least of the next.
TRUTHS = (("better", 0.005, 1.0), ("equal", -0.005, 0.005), ("worse", -1.0, -0.005))
#: A lead of this many standard errors is a verdict.
CLEAR = 3.0


class Case(NamedTuple):
    """One model draws the rankings, the other is the submitted order."""

    data: str
    users: str
    model: str
    submitted: str


class Found(NamedTuple):
    """The lead of the model in NDCG@10; by seed: wins of both orders, lead in click-NDCG@10."""

    truth: float
    wins: Floats
    submitted_wins: Floats
    clicked: Floats

    @property
    def lead(self) -> Floats:
        """Lead of the model in debiased wins."""
        return self.wins - self.submitted_wins


def run() -> list[Goal]:
    """Print leads, wins and verdicts; the goal is that no better model looks worse by both."""
    found: dict[Case, Found] = {}
    for data in (*folds(), *OTHERS):
        if data in worlds():
            found |= _compared(data)
    head = ["users", "the model is", "cases", "wins: better", "worse", "click-NDCG: better",
            "worse", "both: better", "worse"]  # fmt: skip
    groups = {(users, name): [one for case, one in found.items() if case.users == users
                              and low <= one.truth < high]
              for users in USERS for name, low, high in TRUTHS}  # fmt: skip
    rows = [[*names, *_verdicts(cases)] for names, cases in groups.items()]
    title = f"Verdicts on the model that draws, by {CLEAR:g} standard errors"
    print(table(title, head, rows, words=2), end="\n\n")
    better = [one for (_, name), cases in groups.items() if name == "better" for one in cases]
    alarms = sum(_by_both(one) < 0 for one in better)
    goal = "better models that look worse by wins and click-NDCG"
    return [Goal(goal, "0", f"{alarms} of {len(better)}", alarms == 0)]


def _compared(data: str) -> dict[Case, Found]:
    """Measure all pairs of models on one data set, and print them."""
    cases = [Case(data, users, *pair) for pair in permutations(MODELS, 2) for users in USERS]
    found = dict(zip(cases, share_out(measure, cases), strict=True))
    site = Site.of(worlds()[data].judged.test)
    ndcg = ", ".join(f"{name} {site.ndcg(weights):.4f}" for name, weights in models(data).items())
    print(f"{data}: {seeds()} seeds of {RANKINGS:,} rankings; NDCG@10: {ndcg}")
    print(_leads(data, found), end="\n\n")
    print(_same_order(data, found), end="\n\n")
    return found


def _leads(data: str, found: Mapping[Case, Found]) -> str:
    head = ["lead of", "users", "truth", "wins: first draws", "second draws", "lean",
            "click-NDCG: first draws", "second draws"]  # fmt: skip
    rows = []
    for one, other in combinations(MODELS, 2):
        for users in USERS:
            first = found[Case(data, users, one, other)]
            second = found[Case(data, users, other, one)]
            rows.append([
                f"{one} over {other}", users, f"{first.truth:+.4f}",
                signed(first.lead), signed(-second.lead), signed((-second.lead - first.lead) / 2.0),
                signed(first.clicked), signed(-second.clicked),
            ])  # fmt: skip
    return table("Lead of the first model, ± standard error", head, rows, words=2)


def _same_order(data: str, found: Mapping[Case, Found]) -> str:
    rows = []
    for order in MODELS:
        beside = [name for name in MODELS if name != order]
        for users in USERS:
            wins = [found[Case(data, users, name, order)].submitted_wins for name in beside]
            cells = [f"{one.mean():.4f} ± {error(one):.4f}" for one in wins]
            rows.append([order, " / ".join(beside), users, *cells])
    head = ["submitted", "beside", "users", "first", "second"]
    return table("Debiased wins of the same submitted order beside two models", head, rows, words=3)


def _verdicts(cases: Sequence[Found]) -> list[str]:
    """Count cases, and how often each measure calls the model better or worse."""
    measures: list[Callable[[Found], int]] = [
        lambda case: _verdict(case.lead), lambda case: _verdict(case.clicked), _by_both,
    ]  # fmt: skip
    called = [[measure(case) for case in cases] for measure in measures]
    counts = [str(one.count(sign)) for one in called for sign in (1, -1)]
    return [str(len(cases)), *counts]


def _by_both(case: Found) -> int:
    wins = _verdict(case.lead)
    return wins if wins == _verdict(case.clicked) else 0


def _verdict(lead: Floats) -> int:
    """1: better, -1: worse, 0: not clear."""
    return 0 if abs(lead.mean()) < CLEAR * error(lead) else int(np.sign(lead.mean()))


@cache
def models(data: str) -> Mapping[str, Floats]:
    """Return the weights of the three models by name."""
    judged = worlds()[data].judged
    column, sign = best_feature(judged.train)
    feature = sign * np.eye(judged.n)[column]
    good = trained_on_labels(judged.train, np.random.default_rng(20))
    few = _as_good(judged, Site.of(judged.test).ndcg(feature))
    return dict(zip(MODELS, (good, few, feature), strict=True))


def _as_good(judged: Judged, ndcg: float) -> Floats:
    """Return weights from few labels whose NDCG@10 on the test queries is nearest to this one."""
    site, rng = Site.of(judged.test), np.random.default_rng(21)
    tried = [trained_on_labels(_drawn(judged, few, rng), rng) for few in FEW for _ in range(DRAWS)]
    return min(tried, key=lambda weights: abs(site.ndcg(weights) - ndcg))


def _drawn(judged: Judged, count: int, rng: np.random.Generator) -> list[LabelledQuery]:
    drawn = rng.choice(len(judged.train), min(count, len(judged.train)), replace=False)
    return [judged.train[q] for q in drawn.tolist()]


def measure(case: Case) -> Found:
    """Let the model draw the rankings of the test queries, beside the submitted order."""
    judged, weights = worlds()[case.data].judged, models(case.data)
    site = Site.of([ordered(query, weights[case.submitted]) for query in judged.test])
    users = runner.visitors(Scenario(), judged, case.users)
    fixed = FixedRanker(SolarII(judged.n, weights=weights[case.model]), Show())
    found = np.empty((3, seeds()))
    for seed in range(seeds()):
        sums, clicked = np.zeros(3), []
        rng = np.random.default_rng([seed, 22])
        for at, visit in enumerate(traffic.visits(site, fixed, users, rng, RANKINGS)):
            sums += visit.weight, visit.won, visit.submitted_won
            if at % EVERY == 0 and visit.clicked.any():
                clicked.append(click_ndcg(visit))
        served, submitted = np.mean(clicked, axis=0).tolist()
        found[:, seed] = sums[1] / sums[0], sums[2] / sums[0], served - submitted
    truth = site.ndcg(weights[case.model]) - float(site.submitted_ndcg().mean())
    return Found(truth, *found)
