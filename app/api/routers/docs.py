"""`/openapi.json` and `/docs`: Swagger UI from local files, so that it works offline."""

from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from app.api.admin_routing import AdminRoute
from app.api.errors import Problem
from app.api.routing import JSON
from app.api.schemas import encode

router = APIRouter(route_class=AdminRoute, include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "swagger"
#: The served files and their media types.
FILES = {
    "favicon-32x32.png": "image/png",
    "init.js": "text/javascript",
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
}
#: The browser loads and runs files of this service only; `data:` images are icons in the CSS.
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'",
    "x-content-type-options": "nosniff",
}
#: Browsers cache the files for an hour.
CACHED = {"cache-control": "max-age=3600"}


@router.get("/docs")
@router.head("/docs")
async def docs_page() -> Response:
    """Return the Swagger UI page."""
    return Response(_read("index.html"), media_type="text/html", headers=SECURITY_HEADERS)


@router.get("/docs/{file}")
@router.head("/docs/{file}")
async def docs_file(file: str) -> Response:
    """Return a file that the page loads."""
    if file not in FILES:
        raise Problem(404, "path: unknown; GET /docs lists all paths")
    return Response(_read(file), media_type=FILES[file], headers=SECURITY_HEADERS | CACHED)


@cache
def _read(file: str) -> bytes:
    return (FOLDER / file).read_bytes()


@router.get("/openapi.json")
@router.head("/openapi.json")
async def openapi_document(request: Request) -> Response:
    """Return the OpenAPI document."""
    document = request.app.openapi()
    if root := request.scope.get("root_path"):
        document = {**document, "servers": [{"url": root}]}
    return Response(encode(document), media_type=JSON, headers=SECURITY_HEADERS)
