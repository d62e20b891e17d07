"""Followers: their creation from a leader, and their fields for JSON."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from app.api.dependencies import Service, state_bytes
from app.api.errors import Problem
from app.domain.duels import RESERVED_NAMES
from app.domain.followers import follower_state, may_duel
from app.domain.model import ModelState
from app.domain.model_config import ModelConfig
from app.domain.names import listed
from app.domain.statistics import mean
from app.errors import (
    Changed,
    InvalidInput,
    IsFollower,
    ModelExists,
    NoSuchModel,
    TooManyModels,
    Unreadable,
)
from app.serving.served_model import ServedModel
from app.storage.batching import Held
from app.storage.keys import follower_address, follower_name, is_name, leader_of
from app.storage.states import StoredState

#: Attempts to create followers while the log of their leader is trimmed.
_ATTEMPTS = 3


async def find_leader(service: Service, name: str) -> ServedModel:
    """Return the model that is to have a follower; InvalidInput if it cannot have any."""
    expected = "follows: expected the name of a model that follows no other one"
    if not is_name(name):
        raise InvalidInput(expected)
    try:
        return await service.weight_cache.newest(name)
    except NoSuchModel:
        raise InvalidInput(f"{expected}, got an unknown one") from None
    except IsFollower as error:
        raise InvalidInput(f"{expected}, got one that follows {error.leader}") from None


def check_follower_name(name: str, leader: str) -> None:
    """Raise InvalidInput for a name that no follower of this model can have."""
    if name in RESERVED_NAMES:
        raise InvalidInput(f"model: expected another name than {listed(RESERVED_NAMES)}")
    if name == leader:
        raise InvalidInput("follows: expected another model, got the model itself")


async def created_all(
    service: Service,
    leader: ServedModel,
    configs: Mapping[str, ModelConfig],
    start_at: int | str,
    *,
    cold: bool,
) -> bool:
    """Create followers; return False if there are the same already, else ModelExists.

    The ones that exist come first: where they began may have been trimmed since.
    """
    if await _exist(service, leader.name, configs):
        return False
    try:
        await create_followers(service, leader, configs, start_at, cold=cold)
    except ModelExists:  # or were created meanwhile
        if await _exist(service, leader.name, configs):
            return False
        raise
    return True


async def _exist(service: Service, leader: str, configs: Mapping[str, ModelConfig]) -> bool:
    """Whether the leader has followers of all these names with these configurations."""
    left = {follower_address(leader, name): one for name, one in configs.items()}
    async for address, found in service.store.states.load_many([*left]):
        if isinstance(found, Unreadable) or found.config != left.pop(address):
            return False
    return not left


async def create_followers(
    service: Service,
    leader: ServedModel,
    configs: Mapping[str, ModelConfig],
    start_at: int | str,
    *,
    cold: bool,
) -> None:
    """Create followers by their names, all or none; ModelExists if a name is taken."""
    await _check_limit(service, configs)
    async with _holding(service, [leader.config, *configs.values()]):
        for _ in range(_ATTEMPTS):
            stored = await _start(service, leader.name, start_at)
            states = await asyncio.to_thread(_states, stored.state, configs, cold=cold)
            try:
                await service.store.followers.create(leader.name, leader.epoch, states)
            except Changed:
                continue
            break
        else:
            raise Problem(503, "from: the log was trimmed meanwhile; retry after 1 second")
    for name in configs:
        await service.weight_cache.follower_cache.load(follower_address(leader.name, name))


def _states(
    start: ModelState, configs: Mapping[str, ModelConfig], *, cold: bool
) -> dict[str, ModelState]:
    return {name: follower_state(start, one, cold=cold) for name, one in configs.items()}


async def _check_limit(service: Service, new: Collection[str]) -> None:
    """Raise TooManyModels if the store may not have these followers, too."""
    store = service.store
    names = {*await store.models.names(), *await store.followers.leaders()}
    if len(names.union(new)) > max(len(names), service.settings.models):
        raise TooManyModels


@asynccontextmanager
async def _holding(service: Service, configs: list[ModelConfig]) -> AsyncIterator[None]:
    """Hold the memory of several states; 413 if it is more than all requests may hold."""
    held, size = Held(service.memory), sum(map(state_bytes, configs))
    if size > service.settings.inflight_bytes:
        raise Problem(
            413,
            "grid: the states of these followers are larger than SOLAR_INFLIGHT_BYTES; "
            "create fewer at a time",
        )
    try:
        held.keep(size)
        await service.memory.turn(held.size)
        yield
    finally:
        held.keep(0)


async def _start(service: Service, leader: str, start_at: int | str) -> StoredState:
    """Load the state from which followers begin; InvalidInput with the versions that there are."""
    states = service.store.states
    if start_at == "now":
        return await states.load(leader, with_part=False)
    versions = await states.versions(leader)
    seq = versions[0] if start_at == "oldest" and versions else start_at
    if isinstance(seq, int) and seq in versions:
        try:
            return await states.version(leader, seq)
        except NoSuchModel:  # dropped meanwhile
            versions = await states.versions(leader)
    kept = listed([str(one) for one in versions[::-1]])
    raise InvalidInput(
        "from: expected now, oldest, or a version that the log continues "
        f"({kept or 'none'}), got {seq}"
    )


async def refuse_in_duel(service: Service, address: str) -> None:
    """Raise 409 for a follower that is in a duel of its leader."""
    leader, name = leader_of(address), follower_name(address)
    with suppress(NoSuchModel):
        duel = (await service.store.states.load_weights(leader)).duel
        if duel is not None and duel.is_on and name in duel.settings.followers:
            raise Problem(
                409, f"model: {name} is in a duel; end it with DELETE /models/{leader}/duel"
            )


def describe_follower(
    address: str, seq: int, sums: Mapping[str, float], tail: int, *, stalled: bool
) -> dict[str, Any]:
    """Return what a follower has beside a model, as fields; `tail` is that of the log."""
    behind = max(0, tail - seq)
    return {
        "follows": leader_of(address),
        "lag": behind,
        "stalled": stalled,
        "may_duel": may_duel(behind, stalled=stalled),
        "squared_loss": mean(sums["squared_loss"], sums["stepped"] + sums["passive"]),
        "compared": int(sums["compared"]),
        "agreement": mean(sums["agreeing"], sums["compared"]),
        "passed_by": int(sums["passed_by"]),
    }
