"""`solar verify`: check models against their logs."""

import argparse

from app.cli.options import add_store_arguments
from app.cli.replay import show_older_versions
from app.cli.with_store import Print, address_of, with_store
from app.domain.model import ModelState
from app.errors import NewerFormat, NoSuchModel, SolarError
from app.learning import replay
from app.learning.cut_off import is_cut_off
from app.learning.loss_bounds import LossBounds
from app.storage.store import Store


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar verify`."""
    add_store_arguments(parser)
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="names of models and followers to check (default: all)",
    )
    parser.add_argument(
        "--bound",
        action="store_true",
        help="also print the model's loss over the log beside its theoretical bounds, by the final "
        "weights and by batch RankSVM; a violated bound is an error",
    )
    parser.set_defaults(run=lambda options: with_store(options, _verify, existing=True))


async def _verify(options: argparse.Namespace, store: Store) -> None:
    await verify_models(store, options.models, print, bound=options.bound)


async def verify_models(
    store: Store, models: list[str], show: Print, *, bound: bool = False
) -> None:
    """Check the invariants of models on a live store; SolarError if one is violated."""
    checked = models or [*await store.models.names(), *await store.followers.leaders()]
    failed = newer = 0
    for model in checked:
        try:
            failed += not await _verify_model(store, model, show, bound)
        except NewerFormat as error:
            show(f"{model}: {error}")
            newer += 1
        except NoSuchModel:
            if models or await _exists(store, model):
                raise
            show(f"{model}: not checked: no model yet, or no longer: only its name is there")
    if failed:
        or_bound = ", or exceed their bound" if bound else ""
        raise SolarError(
            f"{failed} of {len(checked)} models do not equal the replay of their logs{or_bound}"
        )
    if newer:
        raise SolarError(
            f"{newer} of {len(checked)} models need a newer release; use its `solar verify`"
        )


async def _verify_model(store: Store, model: str, show: Print, bound: bool) -> bool:
    """Check one model and print what is found; return whether nothing is wrong."""
    address = await address_of(store, model)
    check = _verify_bound if bound else _verify_state
    problems = await check(store, address, show)
    for problem in problems:
        show(f"{model}: {problem}")
    if problems:
        return False
    if await is_cut_off(store, address):
        show(
            f"{model}: stalled, cannot be replayed: the log begins after its first version; "
            "checksums and weights valid"
        )
        return True
    show(f"{model}: log without gaps, chain and state equal to the replay, weights valid")
    start = min(await store.states.versions(address), default=0)
    await show_older_versions(store, address, start, show)
    return True


async def _exists(store: Store, model: str) -> bool:
    """Whether a model or follower of this name has a state."""
    address = await address_of(store, model)
    found = await store.states.positions([address])
    return not found or found[address] is not None


async def _verify_state(store: Store, model: str, _: Print) -> list[str]:
    return await replay.verify(store, model)


async def _verify_bound(store: Store, model: str, show: Print) -> list[str]:
    """Verify a model and its loss bounds in one pass over the log; print the bounds."""
    if await is_cut_off(store, model):  # no log, no bounds
        return await _verify_state(store, model, show)
    watching: list[LossBounds] = []

    def watch(start: ModelState, committed: ModelState) -> LossBounds:
        watching[:] = [LossBounds(start, committed)]
        return watching[0]

    problems = await replay.verify(store, model, watch)
    for bounds in watching:
        rows = bounds.rows()
        for line in bounds.lines(rows):
            show(f"{model}: {line}")
        problems += bounds.problems(rows)
    return problems
