"""`/models/{name}/versions` and `/rollback`: list, keep, delete and restore versions of a model."""

from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response

from app.api.admin_routing import AdminRoute
from app.api.admin_schemas import (
    AppendedRecord,
    KeptVersion,
    RollbackBody,
    VersionBody,
    VersionList,
)
from app.api.auth import requires
from app.api.dependencies import FromState, Service
from app.api.examples import NEW_VERSIONS, ROLLBACKS
from app.api.openapi import BODY_PROBLEMS, COMMON_PROBLEMS, problems
from app.api.routers.models import ModelName, append_record, known_name
from app.domain.model import SUMS
from app.domain.records import Replace
from app.domain.statistics import Statistics
from app.errors import NoSuchVersion, Unreadable
from app.storage.versions import StoredVersion, check_version_name

router = APIRouter(route_class=AdminRoute, tags=["models"])

VersionPath = Annotated[
    str,
    Path(
        json_schema_extra={"pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"},
        examples=["before-sale"],
    ),
]


@router.get(
    "/models/{name}/versions",
    operation_id="list_versions",
    summary="List the versions of a model",
    dependencies=[requires("read")],
    response_model=VersionList,
    responses=problems(*COMMON_PROBLEMS, 404),
)
async def list_versions(name: ModelName, service: FromState) -> Any:
    """List the kept versions, oldest first, each with its measures since the version before."""
    return {"versions": await _described(service, known_name(name))}


async def _described(service: Service, name: str) -> list[dict[str, Any]]:
    await service.position(name)  # a damaged model has versions, too
    served = service.weight_cache.serving.get(name)
    with suppress(Unreadable):
        served = served or await service.weight_cache.load(name)
    with_errors = served is not None and served.config.counts_abandoned
    kept = await service.store.versions.listed(name)
    return [
        {
            "version": one.seq,
            "name": one.name,
            "time": None if one.time is None else datetime.fromtimestamp(one.time / 1000, UTC),
            "reason": one.reason,
            "size": one.size,
            "since": _measures_since(earlier, one, with_errors=with_errors),
        }
        for earlier, one in zip([None, *kept], kept, strict=False)
    ]


def _measures_since(
    before: StoredVersion | None, now: StoredVersion, *, with_errors: bool
) -> dict[str, Any] | None:
    """Return the measures of the queries between two versions; None if they are unknown.

    The sums of a model fall only when its measures are reset.
    """
    if before is None or before.sums is None or now.sums is None:
        return None
    sums = dict(zip(SUMS, (now.sums - before.sums).tolist(), strict=True))
    if sums["feedback"] < 0.0:
        return None
    return Statistics(sums, with_errors).summary()


@router.post(
    "/models/{name}/versions",
    operation_id="keep_version",
    summary="Keep a version of a model",
    dependencies=[requires("admin")],
    status_code=201,
    response_model=KeptVersion,
    responses=problems(*BODY_PROBLEMS, 404, 409),
)
async def keep_version(
    name: ModelName,
    body: Annotated[VersionBody, Body(openapi_examples=NEW_VERSIONS)],
    service: FromState,
) -> Any:
    """Keep the committed state under a name, until it is deleted. At most ten names a model."""
    check_version_name(body.name)
    served = await service.weight_cache.find(known_name(name))
    async with service.holding(served.config):
        stored = await service.store.states.load(name, with_part=False)  # 503 if it is damaged
        await service.store.versions.keep(name, stored.epoch, body.name)
    for one in await _described(service, name):
        if one["name"] == body.name:
            return one
    raise NoSuchVersion  # deleted at the same time


@router.delete(
    "/models/{name}/versions/{version}",
    operation_id="delete_version",
    summary="Delete a named version",
    dependencies=[requires("admin")],
    status_code=204,
    response_class=Response,
    responses=problems(*COMMON_PROBLEMS, 404),
)
async def delete_version(name: ModelName, version: VersionPath, service: FromState) -> None:
    """Delete a named version; the others go by themselves when newer ones are kept."""
    epoch, *_ = await service.position(known_name(name))
    await service.store.versions.drop(name, epoch, version)


@router.post(
    "/models/{name}/rollback",
    operation_id="rollback_model",
    summary="Roll a model back",
    dependencies=[requires("admin")],
    status_code=202,
    response_model=AppendedRecord,
    responses=problems(*BODY_PROBLEMS, 404),
)
async def rollback(
    name: ModelName,
    body: Annotated[RollbackBody, Body(openapi_examples=ROLLBACKS)],
    service: FromState,
) -> Any:
    """Restore a kept version; the log keeps the later records, and the measures continue."""
    await service.position(known_name(name))
    served = service.weight_cache.serving.get(name)  # a damaged model is not served
    async with service.holding(served.config) if served else nullcontext():
        stored = await service.store.versions.load(name, body.version)
        reason = f"rollback to version {body.version}"
        replaced = Replace(stored.state.model, reason)
        return await append_record(service, name, replaced, stored.epoch)
