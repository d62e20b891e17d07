"""`solar simulate --duel --url`: a duel in a running service, with simulated users.

The champion is a new model, the challenger a follower of it or the submitted order. Both learn from
all lists. Afterwards model and follower stay in the service, and the duel is on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
from solar_client import Duel, Solar

from app.domain.followers import OWN_SETTINGS
from app.errors import SolarError
from app.ranking.evidence import log_evidence
from app.simulation.duel_results import DuelRow
from app.simulation.duel_runner import DuelPlan, side_ndcg
from app.simulation.duel_sides import with_settings
from app.simulation.http_runner import Ended, Live
from app.simulation.runner import Judged, Scenario, model_config
from app.simulation.service_client import retrying

#: What follows the name of a model in the name of its follower.
SUFFIX = "-b"
_FORMS = ("algorithm", "covariance", "clicks")


@dataclass(frozen=True, slots=True)
class LiveDuel(Live):
    """A running service; `settings` are those of the champions, `own` those of the challengers."""

    plan: DuelPlan
    own: Mapping[str, Any] = field(default_factory=dict)
    rows: list[DuelRow] = field(default_factory=list)

    def run_duels(
        self, scenario: Scenario, judged: Judged, users: Sequence[str], seeds: int
    ) -> Iterator[DuelRow]:
        """Play the duel with all users and seeds, with a separate model for each run."""
        if not self.plan.checked().learns:
            raise SolarError(
                "--duel: expected settings of a model as champion, as a model in a service learns, "
                f"got {self.plan.champion.text}"
            )
        scenario = with_settings(scenario, self.plan.champion.settings or {})
        for _ in self.run(scenario, judged, users, seeds):
            yield from self.rows
            self.rows.clear()

    def _begin(self, client: Solar, model: str) -> None:
        challenger = self.plan.challenger.kind
        if self.plan.challenger.learns:
            challenger = model + SUFFIX
            retrying(lambda: client.create_follower(challenger, model, **self.own), [])
        share, alpha = self.plan.share, self.plan.alpha
        retrying(lambda: client.begin_duel(model, challenger, share=share, alpha=alpha), [])

    def _end(self, client: Solar, run: Ended) -> None:
        duel, weights = retrying(lambda: client.get_duel(run.model), []), None
        if self.plan.challenger.learns:
            follower = retrying(lambda: client.get_model(run.model + SUFFIX), [])
            weights = np.array(list(follower.weights.values()))
        self.rows.append(row(run, duel, side_ndcg(run.test, weights)))


def row(run: Ended, duel: Duel, challenger: float) -> DuelRow:
    """Return the row of a duel as the service describes it."""
    return DuelRow(
        run.users, run.seed, duel.lists, duel.wins, duel.losses, duel.ties, duel.win_share,
        duel.interval, duel.evidence, duel.p_value, duel.verdict, _needed(duel),
        duel.lists_to_go, run.ndcg, challenger,
    )  # fmt: skip


def _needed(duel: Duel) -> int | None:
    """Return the lists of the first point of the curve after the verdict; None without one.

    E may be below 1/α again at that point: then it is the first one before which E can have been
    there, if the lists that the better side has won came first.
    """
    if duel.verdict == "undecided":
        return None
    over = (point.lists for point in duel.curve if point.evidence * duel.alpha >= 1.0)
    return next(over, None) or next(_possible(duel), duel.lists)


def _possible(duel: Duel) -> Iterator[int]:
    """Yield the lists of the points of the curve before which E can have reached 1/α."""
    before = 0, 0
    for point in duel.curve:
        won = round(point.win_share * point.decided)
        now = won, point.decided - won
        most = (now[0], before[1]) if duel.verdict == "champion" else (before[0], now[1])
        if log_evidence(*most) >= -log(duel.alpha):
            yield point.lists
        before = now


def live_duel(live: Live, plan: DuelPlan, scenario: Scenario, n: int) -> LiveDuel:
    """Return duels of a service whose models have the settings of `live` and of their sides."""
    champion, challenger = (dict(side.settings or {}) for side in (plan.champion, plan.challenger))
    changed = {name: value for name, value in champion.items() if name not in _FORMS}
    return LiveDuel(
        live.url, live.model, live.connections, {**live.settings, **changed}, live.report, plan,
        _own(scenario, challenger, {*champion, *challenger} - {"prior"}, n),
    )  # fmt: skip


def _own(
    scenario: Scenario, settings: Mapping[str, float | str], named: set[str], n: int
) -> dict[str, Any]:
    """Return the settings of a follower that may differ from its leader's."""
    config = model_config(with_settings(scenario, settings), n)
    found = {name: getattr(config, name) for name in OWN_SETTINGS if name in named}
    return {**found, "prior": settings["prior"]} if "prior" in settings else found
