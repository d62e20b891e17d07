"""Who is better, the model or the order as submitted? What clicks say, next to the truth.

Nine cases, informational users: a random, a half-trained and a trained model, each standing still
while it is measured, against a random order, the best single feature's and a good one (that of a
model that was told the labels). Debiased wins should order both as the true NDCG@10 does, where
that differs by 0.02 or more; click-NDCG is shown to say why it must not judge.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.ranking import measures, traffic
from app.ranking.arrays import Floats
from app.ranking.online import LabelledQuery
from app.ranking.solar import SolarII
from app.ranking.traffic import Show, Site, Visit
from app.simulation import runner
from app.simulation.runner import Judged, Scenario
from benchmarks.report import Goal, table

LISTS = 100_000
USERS = "informational"
#: A difference that counts.
CLEAR = 0.02
#: After so many lists a model is half-trained, and trained.
HALF, WHOLE = 100, 10_000
#: The share of the lists whose clicks are measured as if they were labels.
EVERY = 10


class Verdict(NamedTuple):
    """Model and submitted order by each measure; `error` is that of the difference in wins."""

    truth: tuple[float, float]
    wins: tuple[float, float]
    error: float
    clicked: tuple[float, float]


def run(name: str, judged: Judged) -> list[Goal]:
    """All nine, and whether those that are clear come out right."""
    rows, right, clear = [], 0, 0
    for model, order, verdict in cases(judged):
        true = verdict.truth[0] - verdict.truth[1]
        won = verdict.wins[0] - verdict.wins[1]
        clear += abs(true) >= CLEAR
        right += abs(true) >= CLEAR and (won > 0.0) == (true > 0.0)
        rows.append([model, order, *map(_both, (verdict.truth, verdict.wins)),
                     f"{won:+.4f} ± {verdict.error:.4f}", _both(verdict.clicked),
                     _said(true, won)])  # fmt: skip
    head = ["model", "submitted", "NDCG@10", "debiased wins", "lead", "click-NDCG@10", ""]
    title = f"Who is better, {name}: model / submitted order, {LISTS:,} lists, {USERS} users"
    print(table(title, head, rows, words=2), end="\n\n")
    wanted = f"{clear} of {clear}"
    return [Goal(f"{name}: wins order as the truth", wanted, f"{right} of {clear}", right == clear)]


def _both(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.3f} / {pair[1]:.3f}"


def _said(true: float, won: float) -> str:
    if abs(true) < CLEAR:
        return "too close"
    return "right" if (won > 0.0) == (true > 0.0) else "WRONG"


def cases(judged: Judged) -> Iterator[tuple[str, str, Verdict]]:
    """Three models times three orders."""
    rng = np.random.default_rng(20)
    told = _told(judged, rng)
    good = Judged([_ordered(query, told) for query in judged.train], judged.test)
    orders = {
        "random": judged.submitted("random", rng),
        "best feature": judged.submitted("best", rng),
        "good": good,
    }
    models = {
        "random": rng.standard_normal(len(told)),
        "half-trained": _clicked(judged, HALF),
        "trained": _clicked(judged, WHOLE),
    }
    for model, weights in models.items():
        for order, arranged in orders.items():
            yield model, order, judge(arranged, weights, rng)


def _told(judged: Judged, rng: np.random.Generator) -> Floats:
    learner = SolarII(judged.n)
    for query in judged.train:
        learner.learn_pairs(query.documents, query.pairs.shuffled(rng))
    return learner.weights


def _ordered(query: LabelledQuery, weights: Floats) -> LabelledQuery:
    order = np.argsort(-(query.documents @ weights), kind="stable")
    return LabelledQuery(query.labels[order], query.documents[order])


def _clicked(judged: Judged, lists: int) -> Floats:
    """The weights after so many lists with clicks."""
    scenario = replace(Scenario(), impressions=lists)
    site, test = runner.sites(scenario, judged, 0)
    learner = runner.learner(scenario, judged.n)
    users = runner.visitors(scenario, judged, USERS)
    runner.follow_traffic(scenario, site, test, learner, Show(), users, 0)
    return learner.weights


def judge(arranged: Judged, weights: Floats, rng: np.random.Generator) -> Verdict:
    """One model against one order, on the queries that users come to."""
    site = Site.of(arranged.train)
    users = runner.visitors(Scenario(), arranged, USERS)
    fixed = SolarII(len(weights), weights=weights)
    sums, clicked = np.empty((LISTS, 3)), []
    for at, visit in enumerate(traffic.visits(site, fixed, Show(), users, rng, LISTS)):
        sums[at] = visit.weight, visit.won, visit.submitted_won
        if at % EVERY == 0:
            clicked.append(click_ndcg(visit))
    whole, won, submitted_won = sums.sum(axis=0).tolist()
    error = float((sums[:, 1] - sums[:, 2]).std() * LISTS**0.5 / whole)
    model, submitted = np.mean(clicked, axis=0).tolist()
    truth = site.ndcg(weights), float(site.submitted_ndcg().mean())
    return Verdict(truth, (won / whole, submitted_won / whole), error, (model, submitted))


def click_ndcg(visit: Visit) -> tuple[float, float]:
    """Clicks as labels: of the list as shown, and of the same documents as submitted."""
    labels = visit.clicked.astype(np.float64)
    both = labels, labels[np.argsort(visit.shown)]
    return measures.ndcg(both[0], 10), measures.ndcg(both[1], 10)
