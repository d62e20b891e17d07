"""`solar train`."""

import argparse
from functools import partial
from pathlib import Path

from app import settings, training
from app import train as lessons
from app.doors.stores import add_store, environment_of, with_store
from app.errors import SolarError
from app.store.keys import check_name
from app.store.store import Store
from app.train import Lesson


def train(parser: argparse.ArgumentParser) -> None:
    """The options of `solar train`."""
    parser.set_defaults(run=_train)
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="LETOR/SVMlight text, also .gz and .xz"
    )
    parser.add_argument(
        "--model", metavar="NAME", help="whose place it takes; new if there is none"
    )
    parser.add_argument("--url", metavar="URL", help="of a service that is to train")
    add_store(parser)
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
        print(lessons.into_file(lesson, settings.read().feature_bound))
    elif options.url:
        print(lessons.over_http(lesson, check_name(options.model), options.url))
    else:
        with_store(options, partial(_into_store, lesson))


async def _into_store(lesson: Lesson, options: argparse.Namespace, store: Store) -> None:
    check_name(options.model)
    print(await lessons.into_store(lesson, options.model, store, environment_of(options)))
