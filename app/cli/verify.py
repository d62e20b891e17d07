"""`solar verify`: check that models are what their logs say."""

import argparse

from app.cli.options import add_store_arguments
from app.cli.with_store import Print, with_store
from app.errors import SolarError
from app.learning import replay
from app.storage.store import Store


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar verify`."""
    add_store_arguments(parser)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    parser.set_defaults(run=lambda options: with_store(options, _verify))


async def _verify(options: argparse.Namespace, store: Store) -> None:
    await verify_models(store, options.models, print)


async def verify_models(store: Store, models: list[str], show: Print) -> None:
    """Check the invariants of models on a live store; SolarError if one does not hold."""
    wrong = 0
    for model in models or await store.models.names():
        complaints = await replay.verify(store, model)
        wrong += bool(complaints)
        for complaint in complaints:
            show(f"{model}: {complaint}")
        if not complaints:
            show(f"{model}: log dense, chain and state equal to the replay, weights sound")
    if wrong:
        raise SolarError(f"{wrong} of the models are not what their logs say")
