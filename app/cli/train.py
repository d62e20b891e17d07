"""`solar train`: train on judged data, into a file, a store or a service.

Each target imports its own modules: those of the store take a fifth of a second.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, get_args

from app.cli.options import (
    add_store_arguments,
    number,
    positive,
    require_client,
    seconds,
    store_settings,
)
from app.domain.model_config import NORMALIZATIONS
from app.errors import SolarError
from app.training.options import Training, check_training
from app.training.splines import SplineOption, check_spline_option
from app.training.targets import file
from app.training.targets.file import TrainingRequest


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar train`."""
    parser.set_defaults(run=_train)
    _add_data_and_targets(parser)
    _add_method(parser)
    _add_model_options(parser)


def _add_data_and_targets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE",  # not a Path, which would change a URL
        help="judged data: LETOR/SVMlight text, also .gz and .xz; with --cluster also parquet, "
        "directories and URLs; with --group-by also JSON lines (.jsonl) and parquet",
    )  # fmt: skip
    parser.add_argument(
        "--model", metavar="NAME",
        help="online model to warm-start; it is created if it does not exist. With --group-by the "
        "name has {group} in it, as in 'shop-{group}'",
    )  # fmt: skip
    parser.add_argument(
        "--url", metavar="URL", help="URL of a running service that trains (default: train here)"
    )
    add_store_arguments(parser)
    parser.add_argument(
        "--cluster", metavar="ADDRESS",
        help="train on shards with Dask: tcp://HOST:PORT (loopback), tls://HOST:PORT, local or "
        "local:WORKERS; see docs/scale.md",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=seconds, metavar="SECONDS",
        help="with --cluster: fail if no worker is there for this time (default 60)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, metavar="FILE",
        help="JSON file to write the weights to; with --group-by JSON lines, one a group",
    )  # fmt: skip


def _add_method(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trainer", choices=("ranksvm", "domination"), default="ranksvm",
        help="training method (default ranksvm)",
    )  # fmt: skip
    parser.add_argument(
        "--loss", choices=("l2", "l1"), default="l2", help="loss of ranksvm (default l2)"
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--C", type=number,
        help="regularization of ranksvm (default: the best on held-out queries)",
    )  # fmt: skip
    chosen.add_argument(
        "--penalty", type=number, metavar="P",
        help="regularization of domination (default: the best on held-out queries)",
    )  # fmt: skip
    chosen.add_argument(
        "--validate", metavar="FILE",
        help="judged data of the held-out queries (default: see --validation)",
    )  # fmt: skip
    chosen.add_argument(
        "--validation", type=number, metavar="SHARE",
        help="held-out queries: a share between 0 and 1, or the number of last queries "
        "(default 0.2)",
    )  # fmt: skip
    parser.add_argument(
        "--by", choices=("ndcg@10", "pairwise"), default="ndcg@10",
        help="measure that chooses the regularization on held-out queries (default ndcg@10)",
    )  # fmt: skip


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--normalization", choices=NORMALIZATIONS,
        help="scaling of features within a query (default: that of the model; none for a new one)",
    )  # fmt: skip
    parser.add_argument(
        "--splines", choices=get_args(SplineOption),
        help="linear segments of each feature in a new model; auto: none or 4, whichever is better "
        "on held-out queries (default 0: none)",
    )  # fmt: skip
    parser.add_argument(
        "--group-by", metavar="FIELD",
        help="train one model for each value of this column of JSON lines or parquet; for LETOR "
        "text qid-prefix, the part of the query id before its first ':'",
    )  # fmt: skip
    parser.add_argument(
        "--processes", type=positive, metavar="N",
        help="processes that train with --group-by (default: one a core)",
    )  # fmt: skip


def _train(options: argparse.Namespace) -> None:
    wanted = Training(
        options.trainer, options.loss, options.C, options.penalty, options.validation, options.by
    )
    if options.patience is not None and options.cluster is None:
        raise SolarError("--patience: expected with --cluster only")
    if options.group_by is not None:
        _train_groups(check_training(wanted), options)
        return
    if options.processes is not None:
        raise SolarError("--processes: expected with --group-by only")
    if options.cluster is not None:
        _on_cluster(check_training(wanted), options)
        return
    validate = None if options.validate is None else Path(options.validate)
    request = TrainingRequest(
        tuple(map(Path, options.files)), validate, check_training(wanted), options.output,
        options.normalization, options.splines,
    )  # fmt: skip
    check_spline_option(request.splines, wanted)
    if options.model is None:
        if options.output is None:
            raise SolarError("expected --model NAME, --output FILE or both, got neither")
        print(file.into_file(request, store_settings(options).feature_bound))
    elif options.url:
        _over_http(request, options)
    else:
        _into_store(request, options)


def _on_cluster(training: Training, options: argparse.Namespace) -> None:
    from app.cli.with_store import with_store  # noqa: PLC0415
    from app.storage.keys import check_name  # noqa: PLC0415
    from app.training.shards.engines import PATIENCE  # noqa: PLC0415
    from app.training.targets import shards  # noqa: PLC0415

    if options.url or (options.model is None and options.output is None):
        raise SolarError("--cluster: expected --model NAME, --output FILE or both, and no --url")
    if options.splines is not None:
        raise SolarError(
            "--splines: expected without --cluster, as knots are quantiles of all rows; create a "
            "model with splines first, then train it"
        )
    if options.model is not None:
        check_name(options.model)

    def opened(work: Any) -> Any:
        results = []

        async def run(_: argparse.Namespace, store: Any) -> None:
            results.append(await work(store))

        with_store(options, run)
        return results[0]

    request = shards.ShardsRequest(
        tuple(options.files), options.validate, training, options.output, options.model,
        options.cluster, options.patience or PATIENCE, options.normalization,
    )  # fmt: skip
    print(shards.train_on_cluster(request, store_settings(options), opened))


def _over_http(request: TrainingRequest, options: argparse.Namespace) -> None:
    require_client()
    from app.storage.keys import check_name  # noqa: PLC0415
    from app.training.targets import http  # noqa: PLC0415

    print(http.over_http(request, check_name(options.model), options.url))


def _into_store(request: TrainingRequest, options: argparse.Namespace) -> None:
    from app.cli.with_store import with_store  # noqa: PLC0415
    from app.storage.keys import check_name  # noqa: PLC0415
    from app.training.targets.store import into_store  # noqa: PLC0415

    async def run(settings: Any, options: argparse.Namespace, store: Any) -> None:
        print(await into_store(request, options.model, store, settings))

    check_name(options.model)
    with_store(options, partial(run, store_settings(options)))


def _train_groups(training: Training, options: argparse.Namespace) -> None:
    from app.training.targets import groups  # noqa: PLC0415

    if options.cluster is not None:
        raise SolarError("--cluster: expected without --group-by, which trains in this machine")
    if options.validate is not None:
        raise SolarError("--validate: expected without --group-by; use --validation SHARE")
    if options.splines is not None:
        raise SolarError(
            "--splines: expected without --group-by; create models with splines first, then train "
            "them"
        )
    request = groups.GroupRequest(
        tuple(map(Path, options.files)), options.group_by, options.model, training, options.output,
        options.processes, options.normalization,
    )  # fmt: skip
    request.check()
    if options.model is None:
        print(groups.groups_into_file(request, store_settings(options).feature_bound))
    elif options.url:
        require_client()
        from app.training.targets import groups_http  # noqa: PLC0415

        bound = store_settings(options).feature_bound
        print(groups_http.groups_over_http(request, bound, options.url))
    else:
        _groups_into_store(request, options)


def _groups_into_store(request: Any, options: argparse.Namespace) -> None:
    from app.cli.with_store import with_store  # noqa: PLC0415
    from app.training.targets.groups_store import groups_into_store  # noqa: PLC0415

    async def run(settings: Any, _: argparse.Namespace, store: Any) -> None:
        print(await groups_into_store(request, store, settings))

    with_store(options, partial(run, store_settings(options)))
