"""`/models/{name}/stream`: what is learnt, as server-sent events."""

from typing import Annotated

from fastapi import APIRouter, Header, Request

from app.api.admin_routing import AdminRoute
from app.api.auth import Key, requires
from app.api.dependencies import FromState
from app.api.event_stream import EventStream
from app.api.openapi import COMMON_PROBLEMS, problems
from app.api.routers.models import ModelName, known_name
from app.api.routing import KEY
from app.errors import InvalidInput
from app.storage.samples import SampleId

router = APIRouter(route_class=AdminRoute, tags=["models"], dependencies=[requires("read")])

LastEventId = Annotated[
    str | None,
    Header(
        description="id of the last event that you have got: resume after it",
        json_schema_extra={"pattern": "^[0-9]{1,19}-[0-9]{1,19}$"},
        examples=["3-812"],
    ),
]


@router.get(
    "/models/{name}/stream",
    operation_id="stream_model",
    summary="Watch a model learn",
    status_code=200,
    response_class=EventStream,
    responses={
        200: {"description": "Server-sent events, until the client leaves"},
        **problems(*COMMON_PROBLEMS, 404, 422),
    },
)
async def stream_model(
    name: ModelName, service: FromState, request: Request, last_event_id: LastEventId = None
) -> EventStream:
    """Send an event `record` for learnt records, at most 20 a second; `version` for new weights.

    An event `gap` says that the events after `Last-Event-ID` are no longer kept. A comment comes
    after 15 s of silence. At most 50 streams a worker; more get 503.
    """
    last = SampleId.parse(last_event_id) if last_event_id else None
    if last_event_id and last is None:
        raise InvalidInput("last-event-id: expected the id of an event of this stream")
    key: Key = request.scope[KEY]
    tenant = key.tenant if key.digest else None
    return EventStream(service.live.watching(known_name(name), last, tenant))
