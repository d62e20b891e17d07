"""`/solar.js`: the module that web pages load to send beacons. It needs no API key.

A page that checks the integrity of the script names its version in the address, so that a browser
never has an older one in its cache. Without a version, or with that of another release, a browser
asks each time.
"""

from base64 import b64encode
from functools import cache
from hashlib import sha384
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Response

from app.api.admin_routing import AdminRoute

router = APIRouter(route_class=AdminRoute, include_in_schema=False)

SCRIPT = Path(__file__).parents[1] / "beacon" / "solar.js"
#: Pages of other origins load it as a module, and check its integrity.
_HEADERS = {
    "access-control-allow-origin": "*",
    "cross-origin-resource-policy": "cross-origin",
    "x-content-type-options": "nosniff",
}
_FOR_EVER = "public, max-age=31536000, immutable"


@cache
def _read() -> bytes:
    return SCRIPT.read_bytes()


@cache
def integrity() -> str:
    """Return the value of the attribute `integrity` for the script."""
    return "sha384-" + b64encode(sha384(_read()).digest()).decode()


@cache
def script_version() -> str:
    """Return the value of `v` in the address of the script: the start of its hash."""
    return sha384(_read()).hexdigest()[:12]


@router.get("/solar.js")
@router.head("/solar.js")
async def beacon_script(v: str = "", if_none_match: Annotated[str, Header()] = "") -> Response:
    """Return the script; 304 to a browser that has it."""
    headers = {
        **_HEADERS,
        "etag": f'"{integrity()}"',
        "content-location": f"solar.js?v={script_version()}",
        "cache-control": _FOR_EVER if v == script_version() else "no-cache",
    }
    known = (one.strip().removeprefix("W/") for one in if_none_match.split(","))
    if not {headers["etag"], "*"}.isdisjoint(known):
        return Response(status_code=304, headers=headers)
    return Response(_read(), media_type="text/javascript", headers=headers)
