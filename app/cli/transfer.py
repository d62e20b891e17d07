"""`solar evaluate --transfer`: its options and its output."""

import argparse
from pathlib import Path

from app.cli.options import number, plot_path, positive
from app.errors import SolarError
from app.evaluation import plots, transfer
from app.evaluation.transfer import Transfer
from app.ranking.solar import DEFAULT_C

#: Options that only --transfer has.
OWN = ("lists", "seeds", "cosine", "plot")


def add_transfer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `solar evaluate --transfer`."""
    parser.add_argument(
        "--lists", type=positive, metavar="N",
        help="with --transfer: number of lists in the stream (default 20000)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=positive, metavar="N",
        help="with --transfer: number of worlds, each with its seed (default 10)",
    )  # fmt: skip
    parser.add_argument(
        "--cosine", type=number, metavar="COSINE",
        help="with --transfer: cosine of the two utilities, -1 to 1 (default 0.5)",
    )  # fmt: skip
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg",
        help="with --transfer: draw the curves to this file; needs matplotlib",
    )  # fmt: skip


def refuse_transfer_options(options: argparse.Namespace) -> None:
    """Raise SolarError if an option of --transfer is given without it."""
    for name in OWN:
        if getattr(options, name) is not None:
            raise SolarError(f"--{name}: expected with --transfer, got without it")


def evaluate_transfer(options: argparse.Namespace) -> None:
    """Run the experiment, print its table or JSON, and draw its plot."""
    unused = options.algorithm or options.compare or options.permutations
    if unused or options.C != DEFAULT_C:
        raise SolarError(
            "--transfer: expected without --algorithm, --compare, --permutations and --C; "
            "remove these options"
        )
    experiment = _experiment(options)
    plot = plot_path(options.plot)
    rows = transfer.run_transfer(experiment)
    if options.json:
        print("\n".join(row.as_json() for row in rows))
    else:
        print(
            f"{experiment.lists:,} lists, cosine {experiment.cosine:g}, seeds: {experiment.seeds}"
        )
        print(transfer.transfer_table(rows))
    if plot is not None:
        title = f"After a change of intent (cosine {experiment.cosine:g})"
        plot.write_text(plots.svg(title, transfer.transfer_panels(rows)), encoding="utf-8")


def _experiment(options: argparse.Namespace) -> Transfer:
    if options.cosine is not None and not -1.0 <= options.cosine <= 1.0:
        raise SolarError(f"--cosine: expected a number from -1 to 1, got {options.cosine:g}")
    given = {name: getattr(options, name) for name in ("lists", "seeds", "cosine")}
    return Transfer(
        gamma=options.gamma, discount=options.discount, seed=options.seed,
        **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
