"""The simulation in process agrees with the service: the same rankings, weights and wins."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from app.domain import candidates, codec
from app.domain.candidates import Exploration
from app.domain.model import initial_state
from app.domain.model_config import new_model_config
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.evaluation.synthetic import SyntheticData
from app.ranking import traffic
from app.ranking import users as crowd
from app.ranking.arrays import Floats
from app.ranking.bounds import bounded
from app.ranking.online import LabelledQuery
from app.ranking.traffic import MODEL_ORDER, USERS_AT_ONCE, Show, Site
from app.simulation import runner
from app.simulation.runner import Judged, Scenario

RANKINGS = 600  # more than one block of USERS_AT_ONCE


_, QUERIES = SyntheticData(6, 40, 14, noise=0.8).draw(np.random.default_rng(2))
SHORT = [LabelledQuery(query.labels[:many], query.documents[:many])
         for many, query in enumerate(QUERIES[:15], start=1)]  # fmt: skip
JUDGED = Judged([*SHORT, *QUERIES[15:30]], QUERIES[30:])


def numbers(site: Site, show: Show) -> Iterator[tuple[int, Floats, Floats]]:
    """The query of each visit, and the random numbers of its clicks and of its ranking."""
    rng, clicks = np.random.default_rng([0, 0]), 1 + 2 * show.length
    while True:
        queries = rng.integers(len(site.ideal), size=USERS_AT_ONCE)
        drawn = rng.random((USERS_AT_ONCE, clicks + max(site.longest, 1 + show.length)))
        for q, some in zip(queries, drawn, strict=True):
            yield int(q), some[:clicks], some[clicks:]


def exploring(strategy: str, draws: Floats) -> Exploration | None:
    hows: dict[str, Any] = {"debiased": "sampled", "fair-pairs": "swapped"}
    return Exploration(hows[strategy], lambda many: draws[:many]) if strategy in hows else None


@pytest.mark.parametrize("strategy", ["debiased", "fair-pairs", "click-skip-above"])
@pytest.mark.parametrize("algorithm", ["solar-i", "solar-ii"])
@pytest.mark.parametrize(("prior", "top_k"), [(0.0, 5), (0.25, 20)])
def test_a_simulated_visit_agrees_with_the_service(
    strategy: str, algorithm: Any, prior: float, top_k: int
) -> None:
    scenario = Scenario(strategy, algorithm=algorithm, prior=prior, top_k=top_k, attackers=0.05)
    site, _ = runner.sites(scenario, JUDGED, 0)
    learner, bound = runner.learner(scenario, 6), runner.model_config(scenario, 6).pair_bound
    show, users = (
        Show.to_learn(strategy, top_k),
        runner.visitors(scenario, JUDGED, "navigational"),
    )
    names = tuple(f"f{at}" for at in range(1, 7))
    reducer = Reducer(
        initial_state(new_model_config(names, algorithm=algorithm, clicks=strategy, prior=prior))
    )
    won = np.zeros(3)
    visits = traffic.visits(site, learner, show, users, np.random.default_rng([0, 0]), RANKINGS)
    for visit, (q, clicks, draws) in zip(visits, numbers(site, show), strict=False):
        documents = candidates.as_documents(
            np.asarray(JUDGED.train[q].documents, np.float64), "none", 1e4, ordered=prior > 0.0
        )
        weights = reducer.state().model.weights
        ranking = candidates.rank_candidates(documents, weights, top_k, exploring(strategy, draws))
        labels = JUDGED.train[q].labels[ranking.shown]
        clicked = crowd.clicks(users, labels, clicks)
        assert visit.query == q
        assert visit.shown.tolist() == ranking.shown.tolist()
        assert np.flatnonzero(visit.clicked).tolist() == clicked.tolist()

        pairs = visit.pairs if show.how != MODEL_ORDER else visit.classical(strategy)
        learner.learn_pairs(site.of_query(q), bounded(site.of_query(q), pairs, bound)[0])
        won += (visit.weight, visit.won, visit.submitted_won)
        event = Feedback(
            "e", "clicks", documents[ranking.shown], ranking.shown, clicks=clicked,
            odds=ranking.odds, swaps=ranking.swaps,
        )  # fmt: skip
        assert reducer.apply(codec.dump_record(event))
        difference = learner.weights - reducer.state().model.weights
        assert np.abs(difference).max() <= 1e-9
    sums = reducer.state().measures()
    names = ("debiased_weight", "debiased_wins", "baseline_debiased_wins")
    assert won == pytest.approx([sums[name] for name in names], rel=1e-9)
    assert learner.weights.any()
