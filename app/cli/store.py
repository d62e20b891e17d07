"""`solar learn`, `log`, `replay` and `verify`: commands on a store."""

import argparse
from functools import partial

from app.cli import store_commands
from app.cli.options import add_store, natural, positive
from app.cli.with_store import settings_of, with_store
from app.config import Settings
from app.errors import SolarError
from app.learning.session import LearnerOptions
from app.storage.embedded import server
from app.storage.store import Store


def learn(parser: argparse.ArgumentParser) -> None:
    """The options of `solar learn`."""
    add_store(parser)
    parser.add_argument(
        "--port", type=natural, metavar="P", help="serve /healthz, /readyz and /metrics there"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="for --port")
    parser.set_defaults(run=lambda options: with_store(options, _learn, patient=True))


def log(parser: argparse.ArgumentParser) -> None:
    """The options of `solar log`."""
    add_store(parser)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="start after this one")
    parser.add_argument("--count", type=positive, default=1000, metavar="N", help="at most so many")
    parser.set_defaults(run=lambda options: with_store(options, _log))


def replay(parser: argparse.ArgumentParser) -> None:
    """The options of `solar replay`."""
    add_store(parser)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--without-source", metavar="S", help="as if this source had never posted")
    parser.add_argument("--apply", action="store_true", help="put the result in place")
    parser.set_defaults(run=lambda options: with_store(options, _replay))


def verify(parser: argparse.ArgumentParser) -> None:
    """The options of `solar verify`."""
    add_store(parser)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    parser.set_defaults(run=lambda options: with_store(options, _verify))


async def _learn(options: argparse.Namespace, store: Store) -> None:
    settings = settings_of(options)
    lives = None if settings.redis_url else partial(_lives, settings)
    pace = LearnerOptions(lease=settings.lease)
    await store_commands.learn(store, pace, options.host, options.port, lives)


def _lives(settings: Settings) -> bool:
    return server.find(settings.data_dir) is not None


async def _log(options: argparse.Namespace, store: Store) -> None:
    await store_commands.show_log(store, options.model, options.after, options.count, print)


async def _replay(options: argparse.Namespace, store: Store) -> None:
    if options.apply and options.without_source is None:
        raise SolarError("--apply: expected --without-source with it")
    await store_commands.replay(store, options.model, options.without_source, options.apply, print)


async def _verify(options: argparse.Namespace, store: Store) -> None:
    await store_commands.verify(store, options.models, print)
