"""`solar simulate`: simulate users who click, on judged data."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli import simulate_duel
from app.cli.options import number, plot_path, positive, require_client
from app.domain.model_config import NORMALIZATIONS
from app.evaluation import letor, plots
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.solar import ALGORITHMS
from app.ranking.users import STOPS, USER_NAMES
from app.simulation import results, runner
from app.simulation.results import SimulatedRow, Trace
from app.simulation.runner import Judged, Scenario

if TYPE_CHECKING:
    from app.simulation.http_runner import Live

DEFAULT_USERS = ("perfect", "navigational", "informational")

#: Settings of a model that have options of the same name.
TUNED = ("gamma", "C", "prior", "pair_bound", "exploration", "forgetting")


def add_simulate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar simulate`."""
    parser.set_defaults(run=_simulate)
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE",
        help="judged data: LETOR/SVMlight text, also .gz and .xz",
    )  # fmt: skip
    _add_user_arguments(parser)
    _add_model_arguments(parser)
    _add_run_arguments(parser)
    simulate_duel.add_duel_arguments(parser)
    _add_service_arguments(parser)


def _add_user_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--users", action="append", choices=USER_NAMES,
        help=f"type of users; may be repeated (default: {', '.join(DEFAULT_USERS)})",
    )  # fmt: skip
    parser.add_argument(
        "--stop", choices=STOPS, default="click",
        help="where users may stop reading: after a click, or at every position (default click)",
    )  # fmt: skip
    parser.add_argument(
        "--attackers", type=_share, default=0.0, metavar="SHARE",
        help="share of users, 0 to 1, who always click on the last document shown (default 0)",
    )  # fmt: skip
    parser.add_argument(
        "--top-k", type=positive, default=10, metavar="K",
        help="number of documents shown per ranking (default 10)",
    )  # fmt: skip
    parser.add_argument(
        "--submitted", default="file", metavar="ORDER",
        help="submitted order: file, random, best, or the number of a feature (default file)",
    )  # fmt: skip


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--clicks", choices=CLICK_STRATEGIES,
        help="method that turns clicks into pairs (default debiased)",
    )  # fmt: skip
    parser.add_argument(
        "--algorithm", choices=ALGORITHMS, default="solar-ii",
        help="algorithm of the model (default solar-ii)",
    )  # fmt: skip
    parser.add_argument("--gamma", type=number, help="regularization of SOLAR-II (default 1e4)")
    parser.add_argument("--C", type=number, help="step size of SOLAR-I (default 1e-5)")
    parser.add_argument(
        "--prior", type=number, metavar="WEIGHT",
        help="initial weight of the submitted order (default 0; with --url the service's default)",
    )  # fmt: skip
    parser.add_argument(
        "--pair-bound", type=number, metavar="BOUND",
        help="largest weight·‖x‖² of a pair (default 4 per feature, 80 with fair-pairs)",
    )  # fmt: skip
    parser.add_argument(
        "--exploration", type=float, metavar="AMOUNT",
        help="how much rankings are randomised; 0 is not at all (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--forgetting", type=float, metavar="SHARE",
        help="share of the initial uncertainty that returns with each ranking (default 3e-5)",
    )  # fmt: skip
    parser.add_argument(
        "--normalization", choices=NORMALIZATIONS, default="none",
        help="normalization of the features within a query (default none)",
    )  # fmt: skip


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--test", nargs="+", type=Path, metavar="FILE",
        help="judged data of the test queries (default: see --holdout)",
    )  # fmt: skip
    parser.add_argument(
        "--holdout", type=_share, default=0.2, metavar="SHARE",
        help="share of the queries, 0 to 1, to test on if --test is not given (default 0.2)",
    )  # fmt: skip
    parser.add_argument(
        "--impressions", type=positive, default=10_000, metavar="N",
        help="number of rankings shown per run (default 10000)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=positive, metavar="N",
        help="number of runs, each with its seed (default 10; with --url or --duel 1)",
    )  # fmt: skip
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg",
        help="draw the learning curves to this file; needs matplotlib",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per line instead of a table"
    )


def _add_service_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", metavar="URL", help="URL of a running service (default: run in this process)"
    )
    parser.add_argument(
        "--model", metavar="NAME",
        help="name of the model in the service (default: a new name)",
    )  # fmt: skip
    parser.add_argument(
        "--connections", type=positive, default=8, metavar="N",
        help="number of concurrent connections to the service (default 8)",
    )  # fmt: skip


def _share(text: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return share


def _simulate(options: argparse.Namespace) -> None:
    if options.url:
        require_client()
    plot = plot_path(options.plot)
    judged = _judged(options)
    users = tuple(dict.fromkeys(options.users or DEFAULT_USERS))
    if options.duel:
        live = _live(options) if options.url else None
        simulate_duel.simulate_duel(options, _scenario(options), judged, users, live)
        return
    found: list[tuple[str, list[Trace]]] = []
    for name, runs in _runs(options, judged, users):
        found.append((name, runs))
        if options.json:
            print(SimulatedRow.of(name, runs).as_json(runs), flush=True)
    if not options.json:
        _print_table(options, judged, found)
    if plot is not None:
        title = f"{options.clicks or 'debiased'}, {options.files[0].name}"
        plot.write_text(plots.svg(title, results.panels(found)), encoding="utf-8")


def _judged(options: argparse.Namespace) -> Judged:
    parts = letor.read_parts([*options.files, *(options.test or ())])
    many, n = len(options.files), parts[0].n
    train, test = (
        letor.JudgedData(n, [query for part in some for query in part.queries])
        for some in (parts[:many], parts[many:])
    )
    judged = Judged.of(train, test if options.test else None, options.holdout)
    scaled = (
        options.normalization == "query-minmax" and not options.url
    )  # a service normalises by itself
    return judged.normalised() if scaled else judged


def _scenario(options: argparse.Namespace) -> Scenario:
    names = ("clicks", "algorithm", *TUNED)
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return Scenario(
        stop=options.stop, attackers=options.attackers, submitted=options.submitted,
        impressions=options.impressions, top_k=options.top_k, **given,
    )  # fmt: skip


def _runs(
    options: argparse.Namespace, judged: Judged, users: tuple[str, ...]
) -> Iterator[tuple[str, list[Trace]]]:
    if not options.url:
        return runner.run_simulation(_scenario(options), judged, users, options.seeds or 10)
    return _live(options).run(_scenario(options), judged, users, options.seeds or 1)


def _live(options: argparse.Namespace) -> "Live":
    from app.simulation import http_runner  # noqa: PLC0415
    from app.storage.keys import check_name  # noqa: PLC0415

    tuned = {name: getattr(options, name) for name in TUNED}
    return http_runner.Live(
        options.url, check_name(options.model) if options.model else None, options.connections,
        {"normalization": options.normalization, **tuned}, _print_progress,
    )  # fmt: skip


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_table(
    options: argparse.Namespace, judged: Judged, found: list[tuple[str, list[Trace]]]
) -> None:
    print(
        f"{options.impressions:,} impressions of {len(judged.train)} queries, "
        f"{len(judged.test)} test queries, seeds: {len(found[0][1])}; NDCG@10"
    )
    print(results.simulation_table([SimulatedRow.of(name, runs) for name, runs in found]))
