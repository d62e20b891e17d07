"""`/models/{name}/followers`: the followers of a model, and banks of them from a grid."""

from math import prod
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from app.api.admin_routing import AdminRoute
from app.api.auth import requires
from app.api.dependencies import FromState, Service
from app.api.duel_bodies import MOST_IN_GRID, FollowerBank, Grid
from app.api.duel_schemas import FollowerList
from app.api.examples import FOLLOWER_BANKS
from app.api.followers import check_follower_name, created_all, describe_follower
from app.api.openapi import BODY_PROBLEMS, COMMON_PROBLEMS, problems
from app.api.routers.models import PAIR_KINDS, ModelName, known_name
from app.domain.followers import combinations, follower_config, generated_name
from app.domain.model import SUMS
from app.domain.model_config import ModelConfig
from app.errors import InvalidInput, Unreadable
from app.storage.keys import follower_address, follower_name
from app.storage.states import StoredWeights

router = APIRouter(route_class=AdminRoute, tags=["duels"])

_SETTINGS = ("algorithm", "covariance", "C", "gamma", "clicks", "prior")


@router.post(
    "/models/{name}/followers",
    operation_id="create_followers",
    summary="Create followers from a grid",
    dependencies=[requires("admin")],
    status_code=201,
    response_model=FollowerList,
    responses={
        200: {"model": FollowerList, "description": "All of these followers exist"},
        **problems(*BODY_PROBLEMS, 404, 409),
    },
)
async def create_bank(
    name: ModelName,
    body: Annotated[FollowerBank, Body(openapi_examples=FOLLOWER_BANKS)],
    service: FromState,
    response: Response,
) -> Any:
    """Create a follower for each combination of the values, at most 16: all, or none.

    Each is named after its leader and its values; repeating the request is safe.
    """
    leader = await service.weight_cache.newest(known_name(name))
    configs = _configs(leader.name, leader.config, body.grid)
    if not await created_all(service, leader, configs, body.from_, cold=body.start == "cold"):
        response.status_code = 200
    return await _listed(service, leader.name, [*configs])


def _configs(leader: str, config: ModelConfig, grid: Grid) -> dict[str, ModelConfig]:
    """Return the configuration of each follower of a grid; InvalidInput if one is impossible."""
    values = grid.model_dump(exclude_unset=True)
    count = prod(map(len, values.values()))
    if not values or count > MOST_IN_GRID:
        got = f"{count} combinations" if values else "none"
        raise InvalidInput(f"grid: expected 1 to {MOST_IN_GRID} followers, got {got}")
    found = {}
    for settings in combinations(values):
        name = generated_name(leader, settings)
        if name in found:
            raise InvalidInput("grid: expected different values, got the same ones twice")
        check_follower_name(name, leader)
        try:
            found[name] = follower_config(config, **settings)
        except InvalidInput as error:
            raise InvalidInput(f"grid: {name}: {error}") from None
    return found


@router.get(
    "/models/{name}/followers",
    operation_id="list_followers",
    summary="List the followers of a model",
    dependencies=[requires("read")],
    response_model=FollowerList,
    responses=problems(*COMMON_PROBLEMS, 404, 409),
)
async def list_followers(name: ModelName, service: FromState) -> Any:
    """List the followers of a model, each with what it has learnt, in the order of their names."""
    await service.position(known_name(name))
    return await _listed(service, name)


async def _listed(service: Service, leader: str, names: list[str] | None = None) -> dict[str, Any]:
    """Describe the followers of a model, or those of these names."""
    store = service.store
    stalled = await store.followers.of(leader)
    tail = await store.log.tail(leader)
    chosen = [name for name in stalled if names is None or name in names]
    followers, damaged = [], []
    async for address, found in store.states.load_many(
        [follower_address(leader, name) for name in chosen]
    ):
        name = follower_name(address)
        if isinstance(found, Unreadable):
            damaged.append(name)
        else:
            followers.append(_described(address, found, tail, stalled=stalled[name]))
    return {"followers": followers, "damaged": damaged}


def _described(address: str, found: StoredWeights, tail: int, *, stalled: bool) -> dict[str, Any]:
    sums = dict(zip(SUMS, found.sums.tolist(), strict=True))
    config = found.config
    return {
        "name": follower_name(address),
        **{field: getattr(config, field) for field in _SETTINGS},
        "forgetting": config.forgetting or 0.0,
        "version": found.seq,
        "seq": tail,
        "feedback": int(sums["feedback"]),
        "pairs": {kind: int(sums[kind]) for kind in PAIR_KINDS},
        **describe_follower(address, found.seq, sums, tail, stalled=stalled),
    }
