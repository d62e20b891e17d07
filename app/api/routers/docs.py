"""`/openapi.json`, and `/docs`: Swagger UI from our own files."""

from fastapi import APIRouter, Request, Response

from app.api.routing import AdminRoute
from app.api.schemas import encode

router = APIRouter(route_class=AdminRoute, tags=["operations"], include_in_schema=False)


@router.get("/openapi.json")
@router.head("/openapi.json")
async def openapi_document(request: Request) -> Response:
    """The OpenAPI document."""
    return Response(encode(request.app.openapi()), media_type="application/json")
