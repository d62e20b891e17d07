"""`solar verify`: check models against their logs."""

import argparse

from app.cli.options import add_store_arguments
from app.cli.replay import show_older_versions
from app.cli.with_store import Print, with_store
from app.errors import NewerFormat, SolarError
from app.learning import replay
from app.storage.store import Store


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar verify`."""
    add_store_arguments(parser)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="names of the models to check (default: all)"
    )
    parser.set_defaults(run=lambda options: with_store(options, _verify, existing=True))


async def _verify(options: argparse.Namespace, store: Store) -> None:
    await verify_models(store, options.models, print)


async def verify_models(store: Store, models: list[str], show: Print) -> None:
    """Check the invariants of models on a live store; SolarError if one is violated."""
    checked = models or await store.models.names()
    failed = newer = 0
    for model in checked:
        try:
            problems = await replay.verify(store, model)
        except NewerFormat as error:
            show(f"{model}: {error}")
            newer += 1
            continue
        failed += bool(problems)
        for problem in problems:
            show(f"{model}: {problem}")
        if not problems:
            show(f"{model}: log without gaps, chain and state equal to the replay, weights valid")
            start = min(await store.states.versions(model), default=0)
            await show_older_versions(store, model, start, show)
    if failed:
        raise SolarError(f"{failed} of {len(checked)} models do not equal the replay of their logs")
    if newer:
        raise SolarError(
            f"{newer} of {len(checked)} models need a newer release; use its `solar verify`"
        )
