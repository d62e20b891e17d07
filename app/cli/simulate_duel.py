"""`solar simulate --duel A B`: two sides, simulated users, and the verdict."""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from app.errors import SolarError
from app.simulation import duel_results, duel_runner
from app.simulation.duel_results import DuelRow
from app.simulation.duel_runner import DuelPlan
from app.simulation.duel_sides import Side
from app.simulation.runner import Judged, Scenario

if TYPE_CHECKING:
    from app.simulation.http_runner import Live

#: The bounds of the service.
_MOST_SHARE, _LEAST_ALPHA, _MOST_ALPHA = 0.5, 1e-6, 0.2


def add_duel_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of duels."""
    parser.add_argument(
        "--duel", nargs=2, type=_side, metavar=("CHAMPION", "CHALLENGER"),
        help="interleave the lists of two sides and judge them by clicks; a side is submitted, "
        "best, feature:N, labels, labels:SHARE, model, or settings such as gamma=100,"
        "clicks=fair-pairs",
    )  # fmt: skip
    parser.add_argument(
        "--share", type=_share, default=0.5, metavar="SHARE",
        help="share of the requests that duel, above 0, at most 0.5 (default 0.5)",
    )  # fmt: skip
    parser.add_argument(
        "--alpha", type=_alpha, default=0.05, metavar="ALPHA",
        help="largest probability of a verdict between equal sides (default 0.05)",
    )  # fmt: skip


def _side(text: str) -> Side:
    try:
        return Side.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _within(text: str, least: float, most: float, expected: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not least <= found <= most:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return found


def _share(text: str) -> float:
    return _within(text, 1e-9, _MOST_SHARE, f"a share above 0, at most {_MOST_SHARE}")


def _alpha(text: str) -> float:
    return _within(
        text, _LEAST_ALPHA, _MOST_ALPHA, f"a number from {_LEAST_ALPHA} to {_MOST_ALPHA}"
    )


def simulate_duel(
    options: argparse.Namespace,
    scenario: Scenario,
    judged: Judged,
    users: Sequence[str],
    live: "Live | None",
) -> None:
    """Run the duels and print their rows; `live` is a running service."""
    if options.plot is not None:
        raise SolarError("--plot: expected no --duel, which draws no curves")
    champion, challenger = options.duel
    plan = DuelPlan(champion, challenger, options.share, options.alpha)
    found = list[DuelRow]()
    for row in _rows(plan, live, scenario, judged, users, options.seeds or 1):
        found.append(row)
        if options.json:
            print(row.as_json(), flush=True)
    if not options.json:
        _print_table(plan, scenario, found)


def _rows(
    plan: DuelPlan,
    live: "Live | None",
    scenario: Scenario,
    judged: Judged,
    users: Sequence[str],
    seeds: int,
) -> Iterator[DuelRow]:
    if live is None:
        return duel_runner.run_duels(plan, scenario, judged, users, seeds)
    from app.simulation import http_duel  # noqa: PLC0415

    found = http_duel.live_duel(live, plan, scenario, judged.n)
    return found.run_duels(scenario, judged, users, seeds)


def _print_table(plan: DuelPlan, scenario: Scenario, found: Sequence[DuelRow]) -> None:
    print(
        f"champion {plan.champion.text}, challenger {plan.challenger.text}: "
        f"{scenario.impressions:,} requests, share {plan.share:g}, α = {plan.alpha:g}; "
        "wins are the champion's"
    )
    print(duel_results.duel_table(found))
    for name in dict.fromkeys(row.users for row in found):
        rows = [row for row in found if row.users == name]
        if len(rows) > 1:
            print(duel_results.verdict_counts(rows))
