"""`solar simulate --duel`, in process: two sides, simulated users, and the verdict.

If neither side learns, users submit the test queries. Else the champion is a model that learns from
all its lists, as in the service; the challenger is a follower of it, or the submitted order. Then
users submit the training queries.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from app.domain.duels import SUBMITTED, Duel
from app.domain.followers import OWN_SETTINGS
from app.domain.model_config import ModelConfig
from app.errors import SolarError
from app.ranking import duel_traffic, interleaving
from app.ranking import users as crowd
from app.ranking.arrays import Floats, Integers
from app.ranking.duel_traffic import Orders
from app.ranking.traffic import Site
from app.simulation.duel_results import DuelRow
from app.simulation.duel_sides import Side, fixed_weights, with_settings
from app.simulation.in_process import InProcessModel
from app.simulation.runner import (
    Judged,
    Scenario,
    check_scenario,
    model_config,
    sites,
    visitors,
)

#: The name of the follower that is the challenger.
FOLLOWER = "challenger"
_TICK = 500


@dataclass(frozen=True, slots=True)
class DuelPlan:
    """Two sides; `share` of the requests get an interleaved list."""

    champion: Side
    challenger: Side
    share: float
    alpha: float

    def checked(self) -> "DuelPlan":
        """Return a plan that can be played; SolarError otherwise."""
        if self.learns and not self.champion.learns:
            raise SolarError(
                "--duel: expected a champion that learns, as the challenger learns from its lists, "
                f"got {self.champion.text}"
            )
        if self.learns and not (self.challenger.learns or self.challenger.kind == SUBMITTED):
            raise SolarError(
                "--duel: expected submitted or settings of a model as the challenger of a model "
                f"that learns, got {self.challenger.text}"
            )
        return self

    @property
    def learns(self) -> bool:
        """Whether a side learns."""
        return self.champion.learns or self.challenger.learns


def run_duels(
    plan: DuelPlan, scenario: Scenario, judged: Judged, users: Sequence[str], seeds: int
) -> Iterator[DuelRow]:
    """Play the duel with all users and seeds; show a progress bar on a terminal."""
    plan.checked()
    check_scenario(scenario, judged, users)
    total = len(users) * seeds * scenario.impressions
    with tqdm(total=total, unit="request", disable=None, leave=False) as bar:
        for name in users:
            for seed in range(seeds):
                play = play_models if plan.learns else play_fixed
                yield play(plan, scenario, judged, name, seed, bar.update)


def play_fixed(
    plan: DuelPlan,
    scenario: Scenario,
    judged: Judged,
    users: str,
    seed: int,
    tick: Callable[[int], object] = lambda _: None,
) -> DuelRow:
    """Play a duel of two sides that do not learn."""
    arranged = judged.submitted(scenario.submitted, np.random.default_rng([seed, 1]))
    site, rng = Site.of(arranged.test), np.random.default_rng([seed, 0])
    champion = fixed_weights(plan.champion, arranged, seed)
    challenger = fixed_weights(plan.challenger, arranged, seed)
    orders = Orders.of(site, champion, challenger, scenario.top_k)
    lists = int(rng.binomial(scenario.impressions, plan.share))
    found = duel_traffic.play(site, orders, visitors(scenario, judged, users), rng, lists)
    tick(scenario.impressions)
    truth = side_ndcg(site, champion), side_ndcg(site, challenger)
    return DuelRow.of_outcomes(users, seed, found, plan.alpha, truth)


def side_ndcg(site: Site, weights: Floats | None) -> float:
    """Return the mean NDCG@10 of a side; None is the submitted order."""
    return float(site.submitted_ndcg().mean()) if weights is None else site.ndcg(weights)


def play_models(
    plan: DuelPlan,
    scenario: Scenario,
    judged: Judged,
    users: str,
    seed: int,
    tick: Callable[[int], object] = lambda _: None,
) -> DuelRow:
    """Play a duel of a model that learns and its follower, or the submitted order."""
    config = _config(plan.champion, scenario, judged.n)
    site, test = sites(scenario, judged, seed)
    model = InProcessModel(config, scenario.top_k)
    if plan.challenger.learns:
        follower = _config(plan.challenger, scenario, judged.n)
        model.follow(FOLLOWER, {name: getattr(follower, name) for name in OWN_SETTINGS})
    challenger = FOLLOWER if plan.challenger.learns else SUBMITTED
    model.append(Duel(challenger, plan.share, plan.alpha))
    visiting, needed = visitors(scenario, judged, users), None
    for at, _ in enumerate(requests(model, scenario, site, visiting, seed)):
        if needed is None and model.duel is not None and model.duel.verdict:
            needed = model.duel.lists
        if (at + 1) % _TICK == 0:
            tick(_TICK)
    follows = plan.challenger.learns
    weights = model.state(FOLLOWER).model.weights if follows else None
    truth = side_ndcg(test, model.state().model.weights), side_ndcg(test, weights)
    if model.duel is None:
        raise AssertionError("duel: expected one that is on")
    return DuelRow.of_state(users, seed, model.duel, needed, truth)


def _config(side: Side, scenario: Scenario, n: int) -> ModelConfig:
    """Return the configuration of a side that learns: the scenario's, with its own settings."""
    return model_config(with_settings(scenario, side.settings or {}), n)


def requests(
    model: InProcessModel, scenario: Scenario, site: Site, users: crowd.Users, seed: int
) -> Iterator[tuple[int, Integers]]:
    """Let users submit random queries and click; yield each query and the documents shown."""
    rng, length = np.random.default_rng([seed, 0]), scenario.top_k
    coins, clicks = 1 + interleaving.most_rounds(length), 1 + 2 * length
    for _ in range(scenario.impressions):
        q = int(rng.integers(len(site.ideal)))
        documents, labels = site.of_query(q), site.labels[site.starts[q] : site.starts[q + 1]]
        numbers = np.maximum(rng.random(coins + clicks + 1 + length + site.longest), 2.0**-54)
        duels_by, user, draws = np.split(numbers, (coins, coins + clicks))
        answer = model.rank(documents, _first(duels_by), _first(draws))
        model.click(answer, crowd.clicks(users, labels[answer.ranking.shown], user))
        yield q, answer.ranking.shown


def _first(numbers: Floats) -> Callable[[int], Floats]:
    return lambda count: numbers[:count]
