"""`/models/{name}/history`: how the measures and the weights of a model have changed."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response

from app.api.admin_routing import AdminRoute
from app.api.auth import requires
from app.api.console_schemas import ModelHistory
from app.api.dependencies import FromState
from app.api.openapi import COMMON_PROBLEMS, problems
from app.api.routers.models import ModelName, known_name
from app.ingest.appender import now
from app.serving.served_model import ServedModel
from app.storage.history import POINT_SUMS, StoredHistory, WeightsRow, point_at

router = APIRouter(route_class=AdminRoute, tags=["models"], dependencies=[requires("read")])

#: The latest time of a row: 13 digits.
MOST_TIME = 10**13 - 1


@router.get(
    "/models/{name}/history",
    operation_id="get_history",
    summary="Read the history of a model",
    response_model=ModelHistory,
    responses=problems(*COMMON_PROBLEMS, 404, 422),
)
async def get_history(
    name: ModelName,
    service: FromState,
    after: Annotated[
        int,
        Query(ge=0, le=MOST_TIME, description="only points after this time, in ms since 1970"),
    ] = 0,
) -> Any:
    """Read the points of the last hour and the last day, and the weights by the hour.

    A point is stored with the first commit of its interval, so a model without feedback has old
    points only. `now` is always there.
    """
    served = await service.weight_cache.find(known_name(name))
    found = await service.store.history.load(name, served.epoch, after)
    return Response(_encoded(served, found), media_type="application/json")


def _encoded(served: ServedModel, found: StoredHistory) -> bytes:
    """Encode a history without its response model: 15,000 numbers take 1 ms."""
    latest = int(found.hour[-1][0]) if found.hour else 0
    fields = {
        "name": served.name,
        "version": served.version,
        "with_errors": served.config.counts_abandoned,
        "columns": POINT_SUMS,
        "hour": found.hour,
        "day": found.day,
        "now": point_at(max(now(), latest), served.version, served.sums),
        "weights": [_named(one, served.config.features) for one in found.weights],
    }
    return msgspec.json.encode(fields)


def _named(row: WeightsRow, features: Sequence[str]) -> dict[str, Any]:
    """Return a row of weights by the names of the features."""
    named = {features[k]: value for k, value in row.weights.items() if k < len(features)}
    return {"time": row.time, "seq": row.seq, "weights": named}
