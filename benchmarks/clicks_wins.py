"""Model order against submitted order: debiased wins and click-NDCG against true NDCG@10.

Nine cases with informational users: a random, a half-trained and a trained model against a random
order, the order of the best single feature, and a good order (by a model trained on labels). The
models do not learn while they are measured. Debiased wins should agree with true NDCG@10 where it
differs by 0.02 or more. Click-NDCG is shown as a contrast: it favours the shown order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.ranking import measures, traffic
from app.ranking.arrays import Floats
from app.ranking.online import LabelledQuery
from app.ranking.solar import SolarII
from app.ranking.traffic import FixedRanker, Show, Site, Visit
from app.simulation import runner
from app.simulation.runner import Judged, Scenario
from benchmarks.report import Goal, table
from benchmarks.worlds import folds, worlds

RANKINGS = 100_000
USERS = "informational"
#: The smallest difference in NDCG@10 that counts as clear.
CLEAR = 0.02
#: Rankings that make a model half-trained, and trained.
HALF, WHOLE = 100, 10_000
#: Click-NDCG is measured on every tenth ranking, if it has a click.
EVERY = 10


class Verdict(NamedTuple):
    """(model, submitted order) by each measure; `error` is that of the difference in wins."""

    truth: tuple[float, float]
    wins: tuple[float, float]
    error: float
    clicked: tuple[float, float]


def run() -> list[Goal]:
    """Print the nine cases; the goal is that the wins of all clear cases are right."""
    name = folds()[0]
    judged = worlds()[name].judged
    rows, right, clear = [], 0, 0
    for model, order, verdict in cases(judged):
        true = verdict.truth[0] - verdict.truth[1]
        won = verdict.wins[0] - verdict.wins[1]
        clear += abs(true) >= CLEAR
        right += abs(true) >= CLEAR and (won > 0.0) == (true > 0.0)
        rows.append([model, order, *map(_both, (verdict.truth, verdict.wins)),
                     f"{won:+.4f} ± {verdict.error:.4f}", _both(verdict.clicked),
                     _agreement(true, won)])  # fmt: skip
    head = ["model", "submitted", "NDCG@10", "debiased wins", "difference", "click-NDCG@10", ""]
    title = f"Model / submitted order, {name}: {RANKINGS:,} rankings, {USERS} users"
    print(table(title, head, rows, words=2), end="\n\n")
    wanted = f"{clear} of {clear}"
    goal = f"{name}: debiased wins agree with NDCG@10"
    return [Goal(goal, wanted, f"{right} of {clear}", right == clear)]


def _both(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.3f} / {pair[1]:.3f}"


def _agreement(true: float, won: float) -> str:
    if abs(true) < CLEAR:
        return "too close"
    return "right" if (won > 0.0) == (true > 0.0) else "WRONG"


def cases(judged: Judged) -> Iterator[tuple[str, str, Verdict]]:
    """Yield three models times three orders."""
    rng = np.random.default_rng(20)
    from_labels = trained_on_labels(judged.train, rng)
    good = Judged([ordered(query, from_labels) for query in judged.train], judged.test)
    orders = {
        "random": judged.submitted("random", rng),
        "best feature": judged.submitted("best", rng),
        "good": good,
    }
    models = {
        "random": rng.standard_normal(len(from_labels)),
        "half-trained": _trained_on_clicks(judged, HALF),
        "trained": _trained_on_clicks(judged, WHOLE),
    }
    for model, weights in models.items():
        for order, arranged in orders.items():
            yield model, order, judge(arranged, weights, rng)


def trained_on_labels(queries: Sequence[LabelledQuery], rng: np.random.Generator) -> Floats:
    """The weights after one pass over the labels of these queries."""
    learner = SolarII(queries[0].documents.shape[1])
    for query in queries:
        learner.learn_pairs(query.documents, query.pairs.shuffled(rng))
    return learner.weights


def ordered(query: LabelledQuery, weights: Floats) -> LabelledQuery:
    """Submit the documents in the order of these weights."""
    order = np.argsort(-(query.documents @ weights), kind="stable")
    return LabelledQuery(query.labels[order], query.documents[order])


def _trained_on_clicks(judged: Judged, rankings: int) -> Floats:
    """The weights after this number of rankings with clicks."""
    scenario = replace(Scenario(), impressions=rankings)
    site, test = runner.sites(scenario, judged, 0)
    model = runner.model(scenario, judged.n)
    users = runner.visitors(scenario, judged, USERS)
    runner.follow_traffic(scenario, site, test, model, users, 0)
    return model.learner.weights


def judge(arranged: Judged, weights: Floats, rng: np.random.Generator) -> Verdict:
    """Compare one model with one submitted order, on the training queries."""
    site = Site.of(arranged.train)
    users = runner.visitors(Scenario(), arranged, USERS)
    fixed = FixedRanker(SolarII(len(weights), weights=weights), Show())
    sums, clicked = np.empty((RANKINGS, 3)), []
    for at, visit in enumerate(traffic.visits(site, fixed, users, rng, RANKINGS)):
        sums[at] = visit.weight, visit.won, visit.submitted_won
        if at % EVERY == 0 and visit.clicked.any():
            clicked.append(click_ndcg(visit))
    whole, won, submitted_won = sums.sum(axis=0).tolist()
    error = float((sums[:, 1] - sums[:, 2]).std() * RANKINGS**0.5 / whole)
    model, submitted = np.mean(clicked, axis=0).tolist()
    truth = site.ndcg(weights), float(site.submitted_ndcg().mean())
    return Verdict(truth, (won / whole, submitted_won / whole), error, (model, submitted))


def click_ndcg(visit: Visit) -> tuple[float, float]:
    """NDCG@10 with clicks as labels: of the shown ranking, and of its submitted order."""
    labels = visit.clicked.astype(np.float64)
    both = labels, labels[np.argsort(visit.shown)]
    return measures.ndcg(both[0], 10), measures.ndcg(both[1], 10)
