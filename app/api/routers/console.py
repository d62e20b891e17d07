"""`/console/`: the pages of the service itself, static files that call the API; `/` leads there.

The files need no API key; the requests of the pages do. `SOLAR_CONSOLE=no` leaves this router out.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.routing import Match
from starlette.types import Scope

from app.api.admin_routing import AdminRoute
from app.api.errors import Problem

router = APIRouter(route_class=AdminRoute, include_in_schema=False)

CONSOLE_FOLDER = Path(__file__).parents[1] / "console"
_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
#: The served files and their media types: those of the folder, but no licence and no README.
CONSOLE_FILES = {
    path.name: _MEDIA_TYPES[path.suffix]
    for path in sorted(CONSOLE_FOLDER.iterdir())
    if path.suffix in _MEDIA_TYPES
}
#: The browser loads and runs files of this service only, and no other page can frame the console.
CONSOLE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
#: Browsers ask whether a file has changed, so that an upgrade never mixes two releases.
REVALIDATED = {"cache-control": "no-cache"}
_UNKNOWN_PATH = "path: unknown; GET /docs lists all paths"


class ConsoleFile(NamedTuple):
    """The bytes of a file, and their hash."""

    content: bytes
    etag: str


@cache
def _read(name: str) -> ConsoleFile:
    content = (CONSOLE_FOLDER / name).read_bytes()
    return ConsoleFile(content, f'"{sha256(content).hexdigest()[:32]}"')


class BrowserRoute(AdminRoute):
    """A route for browsers; for other clients and methods the path is unknown."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match requests that accept HTML."""
        found, child = super().matches(scope)
        accepts = b"text/html" in dict(scope.get("headers", ())).get(b"accept", b"").lower()
        return (found, child) if found is Match.FULL and accepts else (Match.NONE, {})


async def console_from_root() -> Response:
    """Send a browser to the console."""
    return _redirect()


router.add_api_route(
    "/", console_from_root, methods=["GET", "HEAD"], route_class_override=BrowserRoute
)


@router.get("/console")
@router.head("/console")
async def console_without_slash() -> Response:
    """Send a browser to the folder, to which the addresses in the page are relative."""
    return _redirect()


def _redirect() -> Response:
    """Redirect to `console/` beside the requested path: a proxy may serve it below a prefix."""
    return Response(status_code=307, headers={"location": "console/", "vary": "accept"})


@router.get("/console/")
@router.head("/console/")
async def console_page(request: Request) -> Response:
    """Return the page that loads all others."""
    return _answer(request, "index.html")


@router.get("/console/{file}")
@router.head("/console/{file}")
async def console_file(request: Request, file: str) -> Response:
    """Return a file that the page loads."""
    if file not in CONSOLE_FILES or file == "index.html":
        raise Problem(404, _UNKNOWN_PATH)
    return _answer(request, file)


def _answer(request: Request, name: str) -> Response:
    """Return a file, or 304 if the browser has it."""
    found = _read(name)
    headers = CONSOLE_HEADERS | REVALIDATED | {"etag": found.etag}
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=CONSOLE_FILES[name], headers=headers)
