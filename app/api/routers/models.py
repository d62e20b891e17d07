"""`/models`: create, read, tune, delete. Every change of a model is a log record."""

from bisect import bisect_right
from dataclasses import replace
from typing import Annotated, Any
from uuid import uuid4

import numpy as np
from fastapi import APIRouter, Body, Path, Query, Response

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
from app.api.examples import NEW_MODELS, PATCHES
from app.api.openapi import BODY_PROBLEMS, COMMON_PROBLEMS, problems
from app.domain import codec
from app.domain.model import ModelState
from app.domain.model_config import ORDER, ModelConfig, check_config, new_model_config
from app.domain.records import Record, Retune
from app.domain.statistics import Statistics
from app.errors import InvalidInput, ModelExists, NewerFormat, NoSuchModel, Unreadable
from app.ingest.appender import now
from app.ranking import covariance
from app.storage.keys import check_name, internal_event
from app.storage.log import NewRecord
from app.storage.states import StoredWeights

router = APIRouter(route_class=AdminRoute, tags=["models"])

#: The most models in one answer.
MODELS_LISTED = 1_000

ModelName = Annotated[
    str, Path(json_schema_extra={"pattern": "^[A-Za-z0-9_-]{1,64}$"}, examples=["books"])
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
    body: Annotated[NewModel, Body(openapi_examples=NEW_MODELS)],
    service: FromState,
    response: Response,
) -> Any:
    """Create a model. Repeating the request is safe; other settings for the same name are 409."""
    check_name(name)
    features = numbered(body.features) if isinstance(body.features, int) else tuple(body.features)
    decoding.check_texts("features", features, service.settings)
    config = new_model_config(features, **body.model_dump(exclude={"features"}))
    try:
        return describe_model(name, await service.create(name, config), 0)
    except ModelExists:
        existing = (await service.store.states.load_weights(name)).config
        if existing != _as_created_before(config, existing, body):
            raise
    response.status_code = 200
    return await _read(service, name)


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
    """Read a model: its settings, its weights and its measures."""
    return await _read(service, known_name(name))


async def _read(service: Service, name: str) -> dict[str, Any]:
    config = (await service.weight_cache.find(name)).config
    async with service.holding(config) as held:
        stored = await service.store.states.load(name, with_part=False)
        seq = await service.store.log.tail(name)
        await service.memory.turn(held.size)  # 100,000 weights take 0.3 s to describe
        return describe_model(name, stored.state, seq)


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
    """List models with their versions, in the order of their names."""
    names = await service.store.models.names()
    first = bisect_right(names, after)
    listed = names[first : first + limit]
    tails = await service.store.log.tails(listed)
    models = [
        _summary(name, found, tails[name])
        async for name, found in service.store.states.load_many([*tails])
    ]
    return {"models": models, "next": listed[-1] if names[first + limit :] else None}


def _summary(name: str, found: StoredWeights | Unreadable, seq: int) -> dict[str, Any]:
    if isinstance(found, Unreadable):
        why = "newer_format" if isinstance(found, NewerFormat) else "damaged"
        return {"name": name, "seq": seq, why: True}
    config = found.config
    return {
        "name": name, "algorithm": config.algorithm, "features": len(config.given),
        "version": found.seq, "seq": seq,
    }  # fmt: skip


@router.delete(
    "/models/{name}",
    operation_id="delete_model",
    summary="Delete a model",
    dependencies=[requires("admin")],
    status_code=204,
    response_class=Response,
    responses=problems(*COMMON_PROBLEMS, 404),
)
async def delete(name: ModelName, service: FromState) -> None:
    """Delete a model, its log, its versions and its measures."""
    if not await service.store.models.delete(known_name(name)):
        raise NoSuchModel
    service.weight_cache.drop(name)


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
