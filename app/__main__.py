"""The front door: `solar evaluate …`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app import evaluation, letor
from app.errors import SolarError
from app.evaluation import ALGORITHMS, BASELINES, Experiment
from app.letor import JudgedData
from app.ranking.measures import DISCOUNTS
from app.ranking.solar import DEFAULT_C, DEFAULT_GAMMA
from app.world import World


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors come in one line, without a stack trace."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (SolarError, ValueError) as error:
        print(f"solar: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="solar", description="Online learning to rank.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_evaluate(
        commands.add_parser(
            "evaluate",
            help="the paper's online experiment on judged data",
            description="Play Algorithm 1 on judged data: rank each query, measure the ranking as "
            "served, learn its pairs. Prints online cumulative NDCG and MAP, mean ± standard "
            "deviation over random permutations.",
        )
    )
    return parser


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_evaluate)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "files", nargs="*", type=Path, default=[], metavar="FILE",
        help="LETOR/SVMlight text, also .gz and .xz; several files are one data set",
    )  # fmt: skip
    source.add_argument("--world", action="store_true", help="a built-in world instead of files")
    parser.add_argument(
        "--algorithm", action="append", choices=ALGORITHMS, help="default: solar-i and solar-ii"
    )
    parser.add_argument("--compare", action="store_true", help="add the paper's other learners")
    parser.add_argument("--permutations", type=_positive, default=10, metavar="N")
    parser.add_argument("--discount", choices=DISCOUNTS, default="standard")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--C", type=float, default=DEFAULT_C, help="SOLAR-I (default 1e-5)")
    parser.add_argument("--gamma", type=float, default=DEFAULT_GAMMA, help="SOLAR-II (1e4)")
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")


def _evaluate(options: argparse.Namespace) -> None:
    data = _world(options.seed) if options.world else letor.read(options.files)
    algorithms = tuple(options.algorithm or ("solar-i", "solar-ii"))
    experiment = Experiment(
        (BASELINES if options.compare else ()) + algorithms,
        options.permutations,
        options.discount,
        options.seed,
        options.C,
        options.gamma,
    )
    rows = []
    for row in evaluation.run(experiment, data):
        rows.append(row)
        if options.json:
            print(row.as_json(), flush=True)
    if not options.json:
        print(f"{len(data.queries)} queries, {data.documents} documents, {data.n} features")
        print(evaluation.table(rows))


def _world(seed: int) -> JudgedData:
    world = World()
    return JudgedData(world.features, world.draw(np.random.default_rng(seed))[1])


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
