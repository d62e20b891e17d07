"""`/models`: create, read, tune, delete. Every change of a model is a log record."""

from bisect import bisect_right
from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import uuid4

import numpy as np
from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import Discriminator, Tag

from app.api import decoding
from app.api.admin_routing import AdminRoute
from app.api.admin_schemas import (
    AppendedRecord,
    ModelDetails,
    ModelList,
    ModelPatch,
    NewModel,
)
from app.api.auth import requires
from app.api.dependencies import FromState, Service, numbered
from app.api.duel_answers import summarize_duel
from app.api.duel_bodies import NewFollower
from app.api.examples import NEW_MODELS, PATCHES
from app.api.followers import (
    check_follower_name,
    created_all,
    describe_follower,
    find_leader,
    refuse_in_duel,
)
from app.api.openapi import BODY_PROBLEMS, COMMON_PROBLEMS, problems
from app.domain import codec
from app.domain.followers import OWN_SETTINGS, follower_config
from app.domain.model import ModelState
from app.domain.model_config import ORDER, ModelConfig, check_config, new_model_config
from app.domain.records import Record, Retune
from app.domain.statistics import Statistics
from app.errors import (
    InvalidInput,
    IsFollower,
    ModelExists,
    NewerFormat,
    NoSuchModel,
    Unreadable,
)
from app.ingest.appender import now
from app.ranking import covariance
from app.storage.keys import (
    check_name,
    follower_address,
    follower_name,
    internal_event,
    is_follower,
    leader_of,
)
from app.storage.log import NewRecord
from app.storage.states import StoredWeights

router = APIRouter(route_class=AdminRoute, tags=["models"])

#: The most models in one answer.
MODELS_LISTED = 1_000

ModelName = Annotated[
    str, Path(json_schema_extra={"pattern": "^[A-Za-z0-9_-]{1,64}$"}, examples=["books"])
]


#: A body with `follows` is that of a follower.
NewModelOrFollower = Annotated[
    Annotated[NewModel, Tag("a model")] | Annotated[NewFollower, Tag("a follower")],
    Discriminator(
        lambda given: "a follower" if isinstance(given, dict) and "follows" in given else "a model"
    ),
]


def known_name(name: str) -> str:
    """Return the name of a model; 404 if it is invalid."""
    try:
        return check_name(name)
    except InvalidInput:
        raise NoSuchModel from None


@router.put(
    "/models/{name}",
    operation_id="create_model",
    summary="Create a model",
    dependencies=[requires("admin")],
    status_code=201,
    response_model=ModelDetails,
    response_model_exclude_unset=True,
    responses={
        200: {"model": ModelDetails, "description": "The model exists with these settings"},
        **problems(*BODY_PROBLEMS, 409),
    },
)
async def create(
    name: ModelName,
    body: Annotated[NewModelOrFollower, Body(openapi_examples=NEW_MODELS)],
    service: FromState,
    response: Response,
) -> Any:
    """Create a model. Repeating the request is safe; other settings for the same name are 409.

    With `follows` it is a follower: it learns from the log of another model, its leader, with
    settings of its own. It ranks in duels only (PUT /models/{name}/duel).
    """
    check_name(name)
    if isinstance(body, NewFollower):
        if not await _created_follower(service, name, body):
            response.status_code = 200
        return await get_model(name, service)
    features = numbered(body.features) if isinstance(body.features, int) else tuple(body.features)
    decoding.check_texts("features", features, service.settings)
    config = new_model_config(features, **body.model_dump(exclude={"features"}))
    try:
        return describe_model(name, await service.create(name, config), 0)
    except ModelExists:
        await service.weight_cache.refuse_follower(name)
        existing = (await service.store.states.load_weights(name)).config
        if existing != _as_created_before(config, existing, body):
            raise
    response.status_code = 200
    return await _read(service, name)


async def _created_follower(service: Service, name: str, body: NewFollower) -> bool:
    """Create a follower; return False if there is the same already."""
    leader = await find_leader(service, body.follows)
    check_follower_name(name, leader.name)
    settings = body.model_dump(include={*OWN_SETTINGS}, exclude_unset=True)
    configs = {name: follower_config(leader.config, **settings)}
    return await created_all(service, leader, configs, body.from_, cold=body.start == "cold")


def _as_created_before(config: ModelConfig, existing: ModelConfig, body: NewModel) -> ModelConfig:
    """Return the configuration with the defaults of the release that created the existing model."""
    former = existing.exploration is None
    omitted = [
        name
        for name in ("pair_bound", "exploration", "forgetting", "prior")
        if name not in body.model_fields_set or getattr(body, name) is None
    ]
    found = {name: getattr(existing, name) for name in omitted}
    earlier = {name: value for name, value in found.items() if former or value is None}
    ordered = earlier.get("prior", config.prior)
    features = (*config.columns, ORDER) if ordered else config.columns
    return replace(config, features=features, counting=existing.counting, **earlier)


@router.get(
    "/models/{name}",
    operation_id="get_model",
    summary="Read a model",
    dependencies=[requires("read")],
    response_model=ModelDetails,
    response_model_exclude_unset=True,
    responses=problems(*COMMON_PROBLEMS, 404),
)
async def get_model(name: ModelName, service: FromState) -> Any:
    """Read a model: its settings, its weights and its measures.

    Those of rankings are null for a follower, which has served none.
    """
    try:
        return await _read(service, known_name(name))
    except IsFollower as error:
        return await _read_follower(service, follower_address(error.leader, name))


async def _read(service: Service, name: str) -> dict[str, Any]:
    config = (await service.weight_cache.find(name)).config
    async with service.holding(config) as held:
        stored = await service.store.states.load(name, with_part=False)
        seq = await service.store.log.tail(name)
        await service.memory.turn(held.size)  # 100,000 weights take 0.3 s to describe
        return describe_model(name, stored.state, seq)


async def _read_follower(service: Service, address: str) -> dict[str, Any]:
    store, name = service.store, follower_name(address)
    config = (await store.states.load_weights(address)).config
    async with service.holding(config) as held:
        stored = await store.states.load(address, with_part=False)
        stalled = await store.followers.is_stalled(address)
        seq = await store.log.tail(address)
        await service.memory.turn(held.size)
        state = stored.state
        about = describe_follower(address, state.seq, state.measures(), seq, stalled=stalled)
        return {**describe_model(name, state, seq), **about}


PAIR_KINDS = ("stepped", "passive", "refused", "bounded")
_CONFIG_FIELDS = ("algorithm", "covariance", "C", "gamma", "normalization", "clicks")


def describe_model(name: str, state: ModelState, seq: int) -> dict[str, Any]:
    """Return the fields of a model for JSON: its config, its weights, its measures."""
    config, sums = state.model.config, state.measures()
    fields: dict[str, Any] = {
        "name": name,
        **{field: getattr(config, field) for field in _CONFIG_FIELDS},
        "explore": config.explores,
        "prior": config.prior,
        **({} if config.pair_bound is None else {"pair_bound": config.pair_bound}),
        **({} if config.exploration is None else {"exploration": config.exploration}),
        "forgetting": config.forgetting or 0.0,
        "actions": dict(config.gains_of_actions),
        "version": state.seq,
        "seq": seq,
        "features": list(config.given),
        **({} if config.splines is None else {"splines": config.splines}),
        "weights": dict(zip(config.features, state.model.weights.tolist(), strict=True)),
    }
    if config.algorithm == "solar-ii":
        deviations = np.sqrt(covariance.variances(state.model.spread, config.n))
        fields["stddev"] = dict(zip(config.features, deviations.tolist(), strict=True))
    return {
        **fields,
        "feedback": int(sums["feedback"]),
        "rejected": int(sums["rejected"]),
        "pairs": {kind: int(sums[kind]) for kind in PAIR_KINDS},
        **Statistics(sums, config.counts_abandoned).summary(),
        "drift": sums["drift"],
        **({} if state.duel is None else {"duel": summarize_duel(name, state.duel)}),
    }


@router.get(
    "/models",
    operation_id="list_models",
    summary="List models",
    dependencies=[requires("read")],
    response_model=ModelList,
    response_model_exclude_none=True,
    responses=problems(*COMMON_PROBLEMS, 422),
)
async def list_models(
    service: FromState,
    limit: Annotated[int, Query(ge=1, le=MODELS_LISTED)] = MODELS_LISTED,
    after: Annotated[str, Query(max_length=64)] = "",
) -> Any:
    """List models and followers with their versions, in the order of their names."""
    store = service.store
    leaders = await store.followers.leaders()
    names = sorted({*leaders, *await store.models.names()})
    first = bisect_right(names, after)
    listed = names[first : first + limit]
    tails = await store.log.tails(
        [follower_address(leaders[name], name) if name in leaders else name for name in listed]
    )
    models = [
        _summary(address, found, tails[address])
        async for address, found in store.states.load_many([*tails])
    ]
    return {"models": models, "next": listed[-1] if names[first + limit :] else None}


def _summary(address: str, found: StoredWeights | Unreadable, seq: int) -> dict[str, Any]:
    about: dict[str, Any] = {"name": follower_name(address), "seq": seq}
    if is_follower(address):
        about["follows"] = leader_of(address)
    if isinstance(found, Unreadable):
        return about | {"newer_format" if isinstance(found, NewerFormat) else "damaged": True}
    config, duel = found.config, found.duel
    return about | {
        "algorithm": config.algorithm, "features": len(config.given), "version": found.seq,
        "duel": None if duel is None else summarize_duel(address, duel),
    }  # fmt: skip


@router.delete(
    "/models/{name}",
    operation_id="delete_model",
    summary="Delete a model",
    dependencies=[requires("admin")],
    status_code=204,
    response_class=Response,
    responses=problems(*COMMON_PROBLEMS, 404, 409, 422),
)
async def delete(
    name: ModelName,
    service: FromState,
    followers: Annotated[
        Literal["delete"] | None,
        Query(description="`delete`: delete the followers of the model, too; else they are 409"),
    ] = None,
) -> None:
    """Delete a model, its log, its versions and its measures; or a follower that is in no duel."""
    store, cache = service.store, service.weight_cache
    address = await store.followers.address(known_name(name))
    if address is not None:
        await refuse_in_duel(service, address)
        if not await store.followers.delete(address):
            raise NoSuchModel
        cache.follower_cache.drop(address)
        return
    if followers is not None:
        await store.followers.delete_all(name)
    if not await store.models.delete(name):
        raise NoSuchModel
    cache.drop(name)


@router.patch(
    "/models/{name}",
    operation_id="tune_model",
    summary="Tune a model",
    dependencies=[requires("admin")],
    status_code=202,
    response_model=AppendedRecord,
    responses=problems(*BODY_PROBLEMS, 404),
)
async def tune(
    name: ModelName, body: Annotated[ModelPatch, Body(openapi_examples=PATCHES)], service: FromState
) -> Any:
    """Change hyper-parameters, effective from the next record."""
    given = body.model_dump(exclude_unset=True)
    if not given:
        raise InvalidInput(f"expected at least one of {', '.join(ModelPatch.model_fields)}")
    config = (await service.weight_cache.find(known_name(name))).config
    check_config(replace(config, **given))
    return await append_record(service, name, Retune(**given))


async def append_record(
    service: Service, name: str, record: Record, epoch: int | None = None
) -> dict[str, int]:
    """Append a change of a model, if given of this epoch, to its log; return the record's seq."""
    if epoch is None:
        epoch, *_ = await service.store.states.position(name)
    event = NewRecord(internal_event("admin", str(uuid4())), b"", codec.dump_record(record))
    appended = await service.store.log.append(
        name, epoch, [event], limit=service.settings.backlog, time=now(), wait=True
    )
    return {"seq": appended[0].seq}
