"""`solar evaluate`: run the papers' experiments on judged data."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from app.cli.options import natural, number, positive
from app.cli.transfer import (
    add_transfer_arguments,
    evaluate_transfer,
    refuse_transfer_options,
)
from app.errors import SolarError
from app.evaluation import batch_vs_online, folds, letor, library_models, online_experiment
from app.evaluation.batch_vs_online import FoldRow
from app.evaluation.fold_systems import COMPARED_SYSTEMS, SYSTEMS, System
from app.evaluation.letor import JudgedData
from app.evaluation.library_models import LIBRARY_SYSTEMS
from app.evaluation.online_experiment import BASELINES, DEFAULT_PERMUTATIONS, Experiment
from app.evaluation.synthetic import SyntheticData
from app.ranking.measures import DISCOUNTS
from app.ranking.solar import ALGORITHMS, DEFAULT_C, DEFAULT_GAMMA


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar evaluate`."""
    parser.set_defaults(run=_evaluate)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "files", nargs="*", type=Path, default=[], metavar="FILE",
        help="judged data: LETOR/SVMlight text, also .gz and .xz; several files are one data set",
    )  # fmt: skip
    source.add_argument(
        "--world", action="store_true", help="use built-in synthetic data instead of files"
    )
    source.add_argument(
        "--folds", type=Path, metavar="DIR",
        help="directory with five folds: compare batch with online, and warm with cold start",
    )  # fmt: skip
    source.add_argument(
        "--transfer", action="store_true",
        help="compare warm with cold start after a change of intent, in a synthetic world",
    )  # fmt: skip
    parser.add_argument(
        "--algorithm", action="append", choices=ALGORITHMS,
        help="algorithm to run; may be repeated (default: solar-i and solar-ii)",
    )  # fmt: skip
    parser.add_argument(
        "--compare", action="store_true",
        help="also run the paper's other learners; with --folds also those of the extra `compare`",
    )  # fmt: skip
    parser.add_argument(
        "--permutations", type=positive, metavar="N",
        help="number of random permutations of the queries (default 10)",
    )  # fmt: skip
    parser.add_argument(
        "--discount", choices=DISCOUNTS, default="standard",
        help="discount of NDCG: standard, or that of LETOR's script (default standard)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="SEED",
        help="seed of the permutations, of --world and of --transfer (default 0)",
    )  # fmt: skip
    parser.add_argument(
        "--C", type=number, default=DEFAULT_C, help="step size of SOLAR-I (default 1e-5)"
    )
    parser.add_argument(
        "--gamma", type=number, default=DEFAULT_GAMMA,
        help="regularization of SOLAR-II (default 1e4)",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per line instead of a table"
    )
    add_transfer_arguments(parser)


def _evaluate(options: argparse.Namespace) -> None:
    if options.transfer:
        evaluate_transfer(options)
        return
    refuse_transfer_options(options)
    algorithms = tuple(options.algorithm or ("solar-i", "solar-ii"))
    experiment = Experiment(
        (BASELINES if options.compare else ()) + algorithms,
        options.permutations or DEFAULT_PERMUTATIONS,
        options.discount,
        options.seed,
        options.C,
        options.gamma,
    )
    rows, data = _rows(options, experiment)
    found = []
    for row in rows:
        found.append(row)
        if options.json:
            print(row.as_json(), flush=True)
    if not options.json:
        print(f"{len(data.queries)} queries, {data.documents} documents, {data.n} features")
        print(batch_vs_online.folds_table(found))


def _rows(
    options: argparse.Namespace, experiment: Experiment
) -> tuple[Iterator[FoldRow], JudgedData]:
    if not options.folds:
        data = _synthetic(options.seed) if options.world else letor.read_letor(options.files)
        return online_experiment.run_online(experiment, data), data
    if options.algorithm or options.C != DEFAULT_C:
        raise SolarError("--folds: expected without --algorithm and --C; remove these options")
    read = folds.read_folds(options.folds)
    systems = _compared_systems() if options.compare else SYSTEMS
    return batch_vs_online.run_folds(experiment, read, systems), folds.all_queries(read)


def _compared_systems() -> Sequence[System]:
    """Return all systems that can run; report those that need a library."""
    error = library_models.unavailable_libraries()
    if error is None:
        return COMPARED_SYSTEMS + LIBRARY_SYSTEMS
    names = ", ".join(system.name for system in LIBRARY_SYSTEMS)
    print(f"solar: without {names}: {error}; pip install 'solar-ranking[compare]'", file=sys.stderr)
    return COMPARED_SYSTEMS


def _synthetic(seed: int) -> JudgedData:
    data = SyntheticData()
    return JudgedData(data.features, data.draw(np.random.default_rng(seed))[1])
