"""Which requests of web pages are served: checks of the Host header and of the page's origin.

Any web page can send requests to an address of its visitor's machine. The Host check stops DNS
rebinding: a page whose name resolves to a loopback address. The origin check stops calls of pages
of other origins. Clients that are not browsers send neither `Origin` nor `Sec-Fetch-Site`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from app.api.auth import TEST_CLIENTS
from app.api.errors import Problem
from app.domain.addresses import is_loopback
from app.errors import SolarError

#: Methods that change nothing; every other call needs an allowed origin.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Paths made for posts from pages of any origin: they carry no key and no cookie.
CROSS_SITE_PATHS = frozenset({"/beacon"})
#: Paths that answer pages of all origins, whatever SOLAR_CORS is.
OPEN_PATHS = CROSS_SITE_PATHS | {"/solar.js"}
#: Why a request with another Host header is refused (421), and one of a foreign page (403).
OTHER_HOST = (
    "host: expected localhost, 127.0.0.1 or [::1]; to serve another name, add it to SOLAR_HOSTS "
    "or set SOLAR_KEYS (`solar key NAME` makes one)"
)
FOREIGN = (
    "origin: expected a page of this service, got a page of another origin; add its origin to "
    "SOLAR_CORS; a proxy must pass Host and X-Forwarded-Proto"
)

_NAME = re.compile(r"[a-z0-9_.-]+|\[[0-9a-f:.]+]")
_HOST = re.compile(r"(\[[^]]*]|[^:\[\]]*)(?::[0-9]*)?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def read_hosts(text: str) -> frozenset[str]:
    """Read the names of SOLAR_HOSTS, separated by commas; SolarError for a scheme or a port.

    >>> sorted(read_hosts("solar.internal, Search.Example."))
    ['search.example', 'solar.internal']
    """
    names = [one.strip().lower().removesuffix(".") for one in text.split(",") if one.strip()]
    for name in names:
        if not _NAME.fullmatch(name):
            raise SolarError(
                "SOLAR_HOSTS: expected names or addresses without scheme and port, separated by "
                f"commas, such as solar.internal; got {name[:64]!r}"
            )
    return frozenset(names)


def read_origins(text: str) -> list[str]:
    """Read the origins of SOLAR_CORS, separated by commas, the way browsers write them.

    >>> read_origins("https://Shop.example:443/, http://localhost:3000")
    ['https://shop.example', 'http://localhost:3000']
    """
    given = [one.strip().lower().removesuffix("/") for one in text.split(",") if one.strip()]
    return [_without_default_port(one) for one in given]


def check_repeated(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise 400 if Host or Origin is repeated: a proxy could have checked another one."""
    counts = Counter(name for name, _ in headers)
    for name in ("host", "origin"):
        if counts[name.encode()] > 1:
            raise Problem(400, f"{name}: expected this header once")


@lru_cache(maxsize=256)
def is_served(server: tuple[str, int | None], host: bytes | None, names: frozenset[str]) -> bool:
    """Whether a Host header is a loopback address or a name of SOLAR_HOSTS, with any port.

    Without the header the client is not a browser. Browsers do not reach a unix socket either,
    which has no port, nor an application in a test.

    >>> is_served(("127.0.0.1", 80), b"LocalHost.:8000", frozenset())
    True
    >>> is_served(("127.0.0.1", 80), b"evil.example", frozenset({"solar.internal"}))
    False
    """
    if host is None or server[1] is None or server[0] in TEST_CLIENTS:
        return True
    found = _HOST.fullmatch(host.decode("latin-1").lower())
    name = found[1].removesuffix(".") if found else ""
    return name in names or is_loopback(name[1:-1] if name.startswith("[") else name)


def is_foreign(headers: Mapping[bytes, bytes], scheme: str, allowed: Sequence[str]) -> bool:
    """Whether a request comes from a page of another origin that SOLAR_CORS does not list."""
    site, given = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    origin = None if given is None else given.decode("latin-1")
    if origin is not None and (origin in allowed or "*" in allowed):
        return False
    if site in (b"cross-site", b"same-site"):
        return True
    if origin is None:
        return False
    # A TLS proxy may hide the page's scheme and name from this service; the browser knows both.
    if site == b"same-origin" and origin != "null":
        return False
    host = headers.get(b"host", b"").decode("latin-1")
    return not host or origin.lower() != _without_default_port(f"{scheme}://{host}".lower())


def _without_default_port(origin: str) -> str:
    return origin.removesuffix(_DEFAULT_PORTS.get(origin.partition("://")[0], ":"))
