"""Duels of simulated users on an invented world: no verdict between equals, the right one else.

Short forms of `benchmarks/duels_null.py`, `duels_power.py` and `duels_bank.py`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from app.domain.duels import Duel, Tournament, results
from app.evaluation.synthetic import SyntheticData
from app.ranking import duel_traffic
from app.ranking.arrays import Floats, Integers
from app.ranking.duel_traffic import Orders
from app.ranking.solar import SolarII
from app.ranking.traffic import Site
from app.ranking.users import EXAMINATION, Users
from app.simulation import runner
from app.simulation.duel_runner import requests
from app.simulation.in_process import InProcessModel
from app.simulation.runner import Judged, Scenario

ALPHA, N = 0.05, 12
USERS = ("perfect", "navigational", "informational")
PAIRS = list(permutations(("good", "noisy", "feature"), 2))


@cache
def world() -> Judged:
    _, queries = SyntheticData(N, 160, 20, 1.0).draw(np.random.default_rng(5))
    return Judged(queries[:100], queries[100:])


@cache
def models() -> Mapping[str, Floats]:
    learner = SolarII(N)
    for query in world().train:
        learner.learn_pairs(query.documents, query.pairs)
    column, sign = runner.best_feature(world().train)
    good = learner.weights
    noise = np.random.default_rng(6).standard_normal(N)
    return {
        "good": good,
        "noisy": good + 0.5 * good.std() * noise,
        "feature": sign * np.eye(N)[column],
    }


def play(pair: tuple[str, str], users: Users, seed: int, lists: int) -> Integers:
    site, weights = Site.of(world().test), models()
    orders = Orders.of(site, weights[pair[0]], weights[pair[1]], 10)
    return duel_traffic.play(site, orders, users, np.random.default_rng(seed), lists)


def verdicts(outcomes: list[Integers]) -> list[int]:
    return [duel_traffic.verdict(one, ALPHA).winner for one in outcomes]


BLIND = {
    "stop after a click": Users(np.full(3, 0.5), np.full(3, 0.5), np.ones(10)),
    "position-based": Users(np.full(3, 0.9), np.zeros(3), np.array(EXAMINATION)),
}


@pytest.mark.parametrize("users", BLIND)
@pytest.mark.parametrize("pair", PAIRS[:2])
def test_clicks_on_positions_give_no_verdict_between_any_two_models(
    pair: tuple[str, str], users: str
) -> None:
    found = verdicts([play(pair, BLIND[users], seed, 5_000) for seed in range(100)])
    assert sum(one != 0 for one in found) <= ALPHA * len(found)


@pytest.mark.parametrize("users", USERS)
def test_models_exchanged_at_random_get_no_verdict(users: str) -> None:
    crowd, found = runner.visitors(Scenario(), world(), users), list[Integers]()
    for seed in range(100):
        signs = np.where(np.random.default_rng([seed, 1]).random(5_000) < 0.5, 1, -1)
        found.append(play(("good", "feature"), crowd, seed, 5_000) * signs)
    assert np.count_nonzero(verdicts(found)) <= ALPHA * len(found)
    apart = play(("good", "feature"), crowd, 0, 5_000)
    assert duel_traffic.verdict(apart, ALPHA).winner == 1


@pytest.mark.parametrize("users", USERS)
@pytest.mark.parametrize("pair", PAIRS)
def test_a_clear_difference_gets_the_right_verdict_whoever_is_champion(
    pair: tuple[str, str], users: str
) -> None:
    crowd = runner.visitors(Scenario(), world(), users)
    apart = play(pair, crowd, 1_000, 100_000)
    share = (apart > 0).sum() / np.count_nonzero(apart)
    found = verdicts([play(pair, crowd, seed, 15_000) for seed in range(10)])
    right = 1 if share > 0.5 else -1
    assert found.count(-right) == 0
    assert abs(share - 0.5) >= 0.03
    assert found.count(right) == len(found)


BANK: Mapping[str, Mapping[str, object]] = {
    "gamma-1e2": {"gamma": 1e2},
    "gamma-1e5": {"gamma": 1e5},
    "last-click": {"clicks": "last-click-skip-above"},
    "debiased": {"clicks": "debiased"},
    "diagonal": {"covariance": "diagonal"},
    "solar-i": {"algorithm": "solar-i"},
}


@pytest.mark.slow
def test_a_tournament_finds_the_best_of_six_followers_and_promotes_it() -> None:
    scenario = Scenario(clicks="click-skip-above", impressions=300)
    site, test = runner.sites(scenario, world(), 0)
    users = runner.visitors(scenario, world(), "informational")
    config = replace(runner.model_config(scenario, N), explore=True)
    model = InProcessModel(config, scenario.top_k)
    for name, settings in BANK.items():
        model.follow(name, settings)
    for _ in requests(model, scenario, site, users, 0):
        pass
    tournament = Tournament(0, 0, tuple(BANK), 6_000, ALPHA, promote=True)
    model.append(Duel(tournament.followers[0], 0.5, tournament.alpha_each, None, "", tournament))
    for _ in requests(model, replace(scenario, impressions=20_000), site, users, 1):
        if model.duel is not None and not model.duel.is_on:
            break
    assert model.duel is not None
    duels = list(results(model.duel))
    assert [one.challenger for one in duels] == list(BANK)
    assert all(one.lists <= tournament.lists_each for one in duels)
    assert model.duel.why == "promotion"
    assert model.state().model.config.clicks == "debiased"
    ndcg = {name: test.ndcg(model.state(name).model.weights) for name in BANK}
    assert max(ndcg, key=ndcg.__getitem__) == "debiased"
    assert test.ndcg(model.state().model.weights) == ndcg["debiased"]
