"""The front door: `solar serve | learn | train | key | log | replay | verify | evaluate`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from app import (
    commands,
    comparison,
    evaluation,
    folds,
    genesis,
    letor,
    logs,
    settings,
    supervisor,
    train,
    training,
    wiring,
)
from app.api import access
from app.api.service import default_features
from app.errors import SolarError
from app.evaluation import ALGORITHMS, BASELINES, Experiment, Row
from app.events import Settings
from app.learner import Pace
from app.letor import JudgedData
from app.ranking.measures import DISCOUNTS
from app.ranking.solar import DEFAULT_C, DEFAULT_GAMMA
from app.settings import Environment
from app.starts import Start
from app.store import embedded
from app.store.keys import check_name
from app.store.store import Store
from app.train import Lesson
from app.world import World


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors come in one line, without a stack trace."""
    options = _parser().parse_args(arguments)
    logs.configure()
    try:
        options.run(options)
        sys.stdout.flush()
    except (SolarError, ValueError) as error:
        print(f"solar: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print("solar: this takes more memory than there is", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head`: whoever read us has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="solar", description="Online learning to rank.")
    added = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_evaluate(
        added.add_parser(
            "evaluate",
            help="the paper's online experiment on judged data",
            description="Play Algorithm 1 on judged data: rank each query, measure the ranking as "
            "served, learn its pairs. Prints online cumulative NDCG and MAP, mean ± standard "
            "deviation over random permutations.",
        )
    )
    _add_train(
        added.add_parser(
            "train",
            help="a batch model from judged data, put in an online model's place",
            description="Train on judged data and let a model go on from there: in a store, or "
            "over HTTP in a service (whose key is SOLAR_KEY).",
        )
    )
    _add_serve(added.add_parser("serve", help="serve over HTTP, and learn"))
    _add_key(added.add_parser("key", help="make an API key"))
    _add_learn(added.add_parser("learn", help="learn every model of a store, until stopped"))
    _add_log(added.add_parser("log", help="show the records of a model's log"))
    _add_replay(added.add_parser("replay", help="fold a model's log again and compare"))
    _add_verify(added.add_parser("verify", help="check that models are what their logs say"))
    return parser


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_evaluate)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "files", nargs="*", type=Path, default=[], metavar="FILE",
        help="LETOR/SVMlight text, also .gz and .xz; several files are one data set",
    )  # fmt: skip
    source.add_argument("--world", action="store_true", help="a built-in world instead of files")
    source.add_argument(
        "--folds", type=Path, metavar="DIR", help="five folds: batch against online, warm and cold"
    )
    parser.add_argument(
        "--algorithm", action="append", choices=ALGORITHMS, help="default: solar-i and solar-ii"
    )
    parser.add_argument("--compare", action="store_true", help="add the paper's other learners")
    parser.add_argument("--permutations", type=_positive, default=10, metavar="N")
    parser.add_argument("--discount", choices=DISCOUNTS, default="standard")
    parser.add_argument("--seed", type=_natural, default=0, metavar="S")
    parser.add_argument("--C", type=float, default=DEFAULT_C, help="SOLAR-I (default 1e-5)")
    parser.add_argument("--gamma", type=float, default=DEFAULT_GAMMA, help="SOLAR-II (1e4)")
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_train)
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="LETOR/SVMlight text, also .gz and .xz"
    )
    parser.add_argument(
        "--model", metavar="NAME", help="whose place it takes; new if there is none"
    )
    parser.add_argument("--url", metavar="URL", help="of a service that is to train")
    _add_store(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the model there")
    parser.add_argument("--trainer", choices=("ranksvm", "domination"), default="ranksvm")
    parser.add_argument("--loss", choices=("l2", "l1"), default="l2", help="of ranksvm")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--C", type=float, help="of ranksvm")
    chosen.add_argument("--penalty", type=float, metavar="P", help="of domination")
    chosen.add_argument("--validate", type=Path, metavar="FILE", help="choose it on these queries")
    chosen.add_argument(
        "--validation", type=float, metavar="SHARE", help="or on this share of them (default 0.2)"
    )
    parser.add_argument("--by", choices=("ndcg@10", "pairwise"), default="ndcg@10")


def _train(options: argparse.Namespace) -> None:
    wanted = training.Training(
        options.trainer, options.loss, options.C, options.penalty, options.validation, options.by
    )
    lesson = Lesson(tuple(options.files), options.validate, training.check(wanted), options.output)
    if options.model is None:
        if options.output is None:
            raise SolarError("expected --model NAME, --output FILE, or both")
        print(train.into_file(lesson, settings.read().feature_bound))
    elif options.url:
        print(train.over_http(lesson, check_name(options.model), options.url))
    else:
        _with_store(options, partial(_into_store, lesson))


async def _into_store(lesson: Lesson, options: argparse.Namespace, store: Store) -> None:
    check_name(options.model)
    print(await train.into_store(lesson, options.model, store, _environment(options)))


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_serve)
    for variable, (knob, read, meaning) in settings.VARIABLES.items():
        flag, help_ = f"--{knob.replace('_', '-')}", f"{meaning} ({variable})"
        default = getattr(Environment(), knob)
        if default is True:
            parser.add_argument(
                f"--no-{knob}", dest=knob, action="store_false", default=None, help=help_
            )
        elif default is False:
            parser.add_argument(flag, action="store_true", default=None, help=help_)
        else:
            parser.add_argument(flag, type=_knob(read), metavar=knob.upper(), help=help_)


def _knob(read: Callable[[str], object]) -> Callable[[str], object]:
    def value(text: str) -> object:
        try:
            return read(text)
        except (ValueError, KeyError):
            raise argparse.ArgumentTypeError("expected another value") from None

    return value


def _serve(options: argparse.Namespace) -> None:
    given = {name: value for name, value in vars(options).items() if name != "run"}
    environment = replace(
        settings.read(), **{name: value for name, value in given.items() if value is not None}
    )
    keys = access.read_keys(environment.keys)
    access.check_exposed(environment.host, keys, insecure=environment.insecure)
    if environment.default_features:
        genesis.check(Settings(default_features(environment)))
    supervisor.run(environment)


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="whose key it is; the source of its feedback")
    parser.add_argument(
        "--scopes", default="rank+feedback", help="of rank, feedback, admin, with + between"
    )
    parser.set_defaults(run=_key)


def _key(options: argparse.Namespace) -> None:
    secret, entry = access.new_key(options.name, options.scopes)
    print(f"key (shown once, for the caller): {secret}")
    print(f"for SOLAR_KEYS of the service:    {entry}")


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--redis-url", metavar="URL", help="the store (SOLAR_REDIS_URL)")
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="of the embedded store (SOLAR_DATA_DIR)"
    )


def _add_learn(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument(
        "--port", type=_natural, metavar="P", help="serve /healthz, /readyz and /metrics there"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="for --port")
    parser.set_defaults(run=lambda options: _with_store(options, _learn))


def _add_log(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="start after this one")
    parser.add_argument(
        "--count", type=_positive, default=1000, metavar="N", help="at most so many"
    )
    parser.set_defaults(run=lambda options: _with_store(options, _log))


def _add_replay(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--without-source", metavar="S", help="as if this source had never posted")
    parser.add_argument("--apply", action="store_true", help="put the result in place")
    parser.set_defaults(run=lambda options: _with_store(options, _replay))


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    parser.set_defaults(run=lambda options: _with_store(options, _verify))


Command = Callable[[argparse.Namespace, Store], Awaitable[None]]


def _environment(options: argparse.Namespace) -> Environment:
    environment = settings.read()
    if options.redis_url:
        environment = replace(environment, redis_url=options.redis_url)
    if options.data_dir:
        environment = replace(environment, data_dir=options.data_dir)
    return environment


def _with_store(options: argparse.Namespace, command: Command) -> None:
    environment = _environment(options)

    async def run(url: str) -> None:
        store = Store.open(url)
        try:
            if command is not _learn:  # which waits for the store, and then asks
                await store.refuse_old_server()
            await command(options, store)
        finally:
            await store.close()

    with wiring.store_url(environment) as url:
        asyncio.run(run(url))


async def _learn(options: argparse.Namespace, store: Store) -> None:
    environment = _environment(options)
    lives = None if environment.redis_url else partial(_lives, environment)
    pace = Pace(lease=environment.lease)
    await commands.learn(store, pace, options.host, options.port, lives)


def _lives(environment: Environment) -> bool:
    return embedded.find(environment.data_dir) is not None


async def _log(options: argparse.Namespace, store: Store) -> None:
    await commands.show_log(store, options.model, options.after, options.count, print)


async def _replay(options: argparse.Namespace, store: Store) -> None:
    if options.apply and options.without_source is None:
        raise SolarError("--apply: expected --without-source with it")
    await commands.replay(store, options.model, options.without_source, options.apply, print)


async def _verify(options: argparse.Namespace, store: Store) -> None:
    await commands.verify(store, options.models, print)


def _evaluate(options: argparse.Namespace) -> None:
    algorithms = tuple(options.algorithm or ("solar-i", "solar-ii"))
    experiment = Experiment(
        (BASELINES if options.compare else ()) + algorithms,
        options.permutations,
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
        print(comparison.table(found))


def _rows(
    options: argparse.Namespace, experiment: Experiment
) -> tuple[Iterator[Row | Start], JudgedData]:
    if not options.folds:
        data = _world(options.seed) if options.world else letor.read(options.files)
        return evaluation.run(experiment, data), data
    if options.algorithm or options.compare or options.C != DEFAULT_C:
        raise SolarError("--folds: expected no --algorithm, --compare or --C with it")
    read = folds.read(options.folds)
    return comparison.run(experiment, read), folds.whole(read)


def _world(seed: int) -> JudgedData:
    world = World()
    return JudgedData(world.features, world.draw(np.random.default_rng(seed))[1])


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a whole number from 0, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not _natural(text):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
