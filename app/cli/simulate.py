"""`solar simulate`: judged data as live traffic, with simulated users."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from app.cli.options import positive
from app.domain.model_config import NORMALIZATIONS
from app.errors import SolarError
from app.evaluation import letor
from app.ranking.clicks import READINGS
from app.ranking.solar import ALGORITHMS
from app.ranking.users import STOPS, USER_NAMES
from app.simulation import plots, results, runner
from app.simulation.results import SimulatedRow, Trace
from app.simulation.runner import Judged, Scenario

DEFAULT_USERS = ("perfect", "navigational", "informational")


def add_simulate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar simulate`."""
    parser.set_defaults(run=_simulate)
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="LETOR/SVMlight text, also .gz and .xz"
    )
    _add_user_arguments(parser)
    _add_model_arguments(parser)
    _add_run_arguments(parser)
    _add_service_arguments(parser)


def _add_user_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--users", action="append", choices=USER_NAMES, help="default: the first three"
    )
    parser.add_argument("--stop", choices=STOPS, default="click", help="drawn when (after a click)")
    parser.add_argument("--attackers", type=_share, default=0.0, metavar="SHARE")
    parser.add_argument("--top-k", type=positive, default=10, metavar="K", help="documents shown")
    parser.add_argument("--submitted", default="file", metavar="ORDER",
                        help="file, random, best, or the number of a feature")  # fmt: skip


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clicks", choices=READINGS, help="how they are read (debiased)")
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="solar-ii")
    parser.add_argument("--gamma", type=float, help="SOLAR-II (1e4)")
    parser.add_argument("--C", type=float, help="SOLAR-I (1e-5)")
    parser.add_argument("--prior", type=float, metavar="P", help="weight of the submitted order")
    parser.add_argument("--normalization", choices=NORMALIZATIONS, default="none")


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--test", nargs="+", type=Path, metavar="FILE", help="queries to test on")
    parser.add_argument("--holdout", type=_share, default=0.2, metavar="SHARE",
                        help="of the queries to test on, without --test")  # fmt: skip
    parser.add_argument("--impressions", type=positive, default=10_000, metavar="N")
    parser.add_argument("--seeds", type=positive, metavar="N", help="runs (10, over HTTP 1)")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg",
                        help="draw the curves, with matplotlib")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")


def _add_service_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", metavar="URL", help="of a service, instead of in process")
    parser.add_argument("--model", metavar="NAME", help="in the service (a fresh name)")
    parser.add_argument("--connections", type=positive, default=8, metavar="N", help="at once")


def _share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, got {text!r}")
    return share


def _simulate(options: argparse.Namespace) -> None:
    picture = _picture(options.plot)
    judged = _judged(options)
    users = tuple(dict.fromkeys(options.users or DEFAULT_USERS))
    found: list[tuple[str, list[Trace]]] = []
    for name, runs in _runs(options, judged, users):
        found.append((name, runs))
        if options.json:
            print(SimulatedRow.of(name, runs).as_json(runs), flush=True)
    if not options.json:
        _print_table(options, judged, found)
    if picture is not None:
        title = f"{options.clicks or 'debiased'}, {options.files[0].name}"
        picture.write_text(plots.svg(title, results.panels(found)), encoding="utf-8")


def _picture(plot: Path | None) -> Path | None:
    """Where to draw, if that is wanted and can be; what is missing is said before the long run."""
    if plot is not None and plot.suffix != ".svg":
        raise SolarError(f"--plot: expected a name that ends in .svg, got {plot.name}")
    if plot is None or plots.can_draw():
        return plot
    _print_progress("--plot: no picture without matplotlib: pip install 'solar-ranking[plot]'")
    return None


def _judged(options: argparse.Namespace) -> Judged:
    parts = letor.read_parts([*options.files, *(options.test or ())])
    many, n = len(options.files), parts[0].n
    train, test = (
        letor.JudgedData(n, [query for part in some for query in part.queries])
        for some in (parts[:many], parts[many:])
    )
    judged = Judged.of(train, test if options.test else None, options.holdout)
    scaled = options.normalization == "query-minmax" and not options.url  # a service does it itself
    return judged.normalised() if scaled else judged


def _scenario(options: argparse.Namespace) -> Scenario:
    names = ("clicks", "algorithm", "gamma", "C", "prior")
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
    from app.simulation import http_runner  # noqa: PLC0415
    from app.storage.keys import check_name  # noqa: PLC0415

    tuned = {name: getattr(options, name) for name in ("gamma", "C", "prior")}
    live = http_runner.Live(
        options.url, check_name(options.model) if options.model else None, options.connections,
        {"normalization": options.normalization, **tuned}, _print_progress,
    )  # fmt: skip
    return live.run(_scenario(options), judged, users, options.seeds or 1)


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_table(
    options: argparse.Namespace, judged: Judged, found: list[tuple[str, list[Trace]]]
) -> None:
    print(
        f"{options.impressions:,} impressions of {len(judged.train)} queries, "
        f"{len(judged.test)} to test on, seeds: {len(found[0][1])}; NDCG@10"
    )
    print(results.simulation_table([SimulatedRow.of(name, runs) for name, runs in found]))
