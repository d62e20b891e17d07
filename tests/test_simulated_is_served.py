"""The simulation in process agrees with the service: the same rankings, weights and wins."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from app.domain import candidates, codec
from app.domain.candidates import Exploration
from app.domain.model import Model, initial_state
from app.domain.records import Feedback
from app.domain.reducer import Reducer
from app.evaluation.synthetic import SyntheticData
from app.ranking import traffic
from app.ranking import users as crowd
from app.ranking.arrays import Floats
from app.ranking.online import LabelledQuery
from app.ranking.traffic import USERS_AT_ONCE, Show, Site
from app.simulation import runner
from app.simulation.runner import Judged, Scenario

RANKINGS = 600  # more than one block of USERS_AT_ONCE
EXPLORATION = 0.7


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


def exploring(strategy: str, draws: Floats, model: Model) -> Exploration | None:
    hows: dict[str, Any] = {"debiased": "sampled", "fair-pairs": "swapped"}
    if strategy not in hows:
        return None
    scale = model.certainty.scale(model.config.noise, EXPLORATION)
    return Exploration(hows[strategy], lambda many: draws[:many], scale, EXPLORATION)


@pytest.mark.parametrize("strategy", ["debiased", "fair-pairs", "click-skip-above"])
@pytest.mark.parametrize("algorithm", ["solar-i", "solar-ii"])
@pytest.mark.parametrize(("prior", "top_k"), [(0.0, 5), (0.25, 20)])
def test_a_simulated_visit_agrees_with_the_service(
    strategy: str, algorithm: Any, prior: float, top_k: int
) -> None:
    scenario = Scenario(
        strategy, algorithm=algorithm, prior=prior, top_k=top_k, attackers=0.05,
        exploration=EXPLORATION, forgetting=0.0 if algorithm == "solar-i" else 0.001,
    )  # fmt: skip
    site, _ = runner.sites(scenario, JUDGED, 0)
    simulated = runner.model(scenario, 6)
    users = runner.visitors(scenario, JUDGED, "navigational")
    reducer = Reducer(initial_state(runner.model_config(scenario, 6)))
    won = np.zeros(3)
    visits = traffic.visits(site, simulated, users, np.random.default_rng([0, 0]), RANKINGS)
    for visit, (q, clicks, draws) in zip(visits, numbers(site, simulated.show), strict=False):
        documents = candidates.as_documents(
            np.asarray(JUDGED.train[q].documents, np.float64), "none", 1e4, ordered=prior > 0.0
        )
        model = reducer.state().model
        explore = exploring(strategy, draws, model)
        ranking = candidates.rank_candidates(documents, model.weights, top_k, explore)
        labels = JUDGED.train[q].labels[ranking.shown]
        clicked = crowd.clicks(users, labels, clicks)
        assert visit.query == q
        assert visit.shown.tolist() == ranking.shown.tolist()
        assert np.flatnonzero(visit.clicked).tolist() == clicked.tolist()

        simulated.learn(site.of_query(q), visit)
        won += (visit.weight, visit.won, visit.submitted_won)
        event = Feedback(
            "e", "clicks", documents[ranking.shown], ranking.shown, clicks=clicked,
            odds=ranking.odds, swaps=ranking.swaps,
        )  # fmt: skip
        assert reducer.apply(codec.dump_record(event))
        difference = simulated.learner.weights - reducer.state().model.weights
        assert np.abs(difference).max() <= 1e-9
    assert simulated.certainty == pytest.approx(reducer.state().model.certainty, rel=1e-9)
    assert simulated.certainty.rankings > 100
    sums = reducer.state().measures()
    names = ("debiased_weight", "debiased_wins", "baseline_debiased_wins")
    assert won == pytest.approx([sums[name] for name in names], rel=1e-9)
    assert simulated.learner.weights.any()
