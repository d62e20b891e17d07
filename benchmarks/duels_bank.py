"""A bank of six followers, one clearly best: a tournament finds it and puts it in place.

The model reads clicks as `click-skip-above` on sampled rankings. Five of its followers read clicks
by classical strategies, too, with other settings; one is `debiased`. After some requests without a
duel the tournament begins, with `promote`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from app.domain.duels import Duel, DuelResult, Tournament, results
from app.simulation import runner
from app.simulation.duel_results import VERDICTS
from app.simulation.duel_runner import requests
from app.simulation.in_process import InProcessModel
from app.simulation.runner import Scenario
from benchmarks.clicks_runs import USERS, share_out
from benchmarks.duels_cases import ALPHA
from benchmarks.report import Goal, table
from benchmarks.worlds import folds, worlds

BEST = "debiased"
FOLLOWERS: Mapping[str, Mapping[str, object]] = {
    "last-click": {"clicks": "last-click-skip-above"},
    "gamma 1e3": {"gamma": 1e3},
    "gamma 1e5": {"gamma": 1e5},
    BEST: {"clicks": "debiased"},
    "diagonal": {"covariance": "diagonal"},
    "solar-i": {"algorithm": "solar-i"},
}
SEEDS, MOST_LISTS, SHARE = 3, 50_000, 0.5
#: Requests before the tournament.
BEFORE = 2_000


class Case(NamedTuple):
    """The users and the seed of a run."""

    users: str
    seed: int


class Found(NamedTuple):
    """The duels of a tournament, the promoted follower, and NDCG@10 of all near the end."""

    duels: tuple[DuelResult, ...]
    promoted: str
    ndcg: Mapping[str, float]
    requests: int


def run() -> list[Goal]:
    """Print all tournaments; the goal is that each promotes the best follower."""
    cases = [Case(users, seed) for users in USERS for seed in range(SEEDS)]
    found = dict(zip(cases, share_out(measure, cases), strict=True))
    for case, one in found.items():
        ndcg = ", ".join(f"{name or 'model'} {value:.4f}" for name, value in one.ndcg.items())
        print(f"{case.users}, seed {case.seed}: {one.requests:,} requests; NDCG@10: {ndcg}")
        print(_duels(case, one), end="\n\n")
    right = sum(one.promoted == BEST for one in found.values())
    goal = "tournaments that promote the best of six"
    return [Goal(goal, f"{len(found)} of {len(found)}", f"{right}", right == len(found))]


def _duels(case: Case, found: Found) -> str:
    rows = [
        [one.champion or "model", one.challenger, f"{one.lists:,}", f"{one.won:,}", f"{one.lost:,}",
         f"{one.won / max(1, one.won + one.lost):.4f}", f"{one.largest:.3g}", VERDICTS[one.verdict]]
        for one in found.duels
    ]  # fmt: skip
    head = ["champion", "challenger", "lists", "wins", "losses", "win share", "most E", "verdict"]
    lists = sum(one.lists for one in found.duels)
    title = f"{case.users}, seed {case.seed}: {lists:,} lists, promoted: {found.promoted or 'none'}"
    return table(title, head, rows, words=2)


def measure(case: Case) -> Found:
    """Play one tournament, to its end."""
    judged = worlds()[folds()[0]].judged
    scenario = Scenario(clicks="click-skip-above", impressions=BEFORE)
    site, test = runner.sites(scenario, judged, case.seed)
    users = runner.visitors(scenario, judged, case.users)
    config = runner.model_config(scenario, judged.n)
    model = InProcessModel(replace(config, explore=True), scenario.top_k)
    for name, settings in FOLLOWERS.items():
        model.follow(name, settings)
    for _ in requests(model, scenario, site, users, case.seed):
        pass
    names = tuple(FOLLOWERS)
    tournament = Tournament(0, 0, names, MOST_LISTS, ALPHA, promote=True)
    model.append(Duel(names[0], SHARE, tournament.alpha_each, tournament=tournament))
    endless = replace(scenario, impressions=10 * MOST_LISTS)
    count, ndcg = 0, dict[str, float]()
    for count, _ in enumerate(requests(model, endless, site, users, case.seed + SEEDS), 1):
        if model.duel is None or not model.duel.is_on:
            break
        if count % 1000 == 0:
            ndcg = {name: test.ndcg(model.state(name).model.weights) for name in ("", *names)}
    if model.duel is None:
        raise AssertionError("duel: expected the last one")
    duels = tuple(results(model.duel))
    promoted = duels[-1].champion if duels[-1].verdict >= 0 else duels[-1].challenger
    in_place = model.state().model.config.clicks == FOLLOWERS.get(promoted, {}).get("clicks")
    return Found(duels, promoted if model.duel.why == "promotion" and in_place else "", ndcg, count)
