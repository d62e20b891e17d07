"""Authentication: API keys with scopes, stored as hashes, compared in constant time."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from fastapi import Security
from fastapi.security import HTTPBearer

from app.api.errors import Problem
from app.domain.addresses import is_loopback
from app.errors import SolarError

SCOPES = ("rank", "feedback", "read", "admin")


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: its name, its scopes, the SHA-256 of its secret, and its tenant.

    The tenant owns what its keys rank and post. All keys without one are one tenant.
    """

    name: str
    scopes: frozenset[str]
    digest: bytes
    tenant: str = ""


#: The key of every request if the service has no keys or the path needs none.
ANONYMOUS = Key("anonymous", frozenset(SCOPES), b"")


def read_keys(text: str) -> tuple[Key, ...]:
    """Read the keys of SOLAR_KEYS: `name:rank+feedback:<SHA-256 in hex>`, separated by commas.

    `name@tenant` names the key's tenant. The scope admin includes the scope read.

    >>> [sorted(key.scopes) for key in read_keys(f"ops:admin:{64 * '0'}")]
    [['admin', 'read']]

    >>> [key.tenant for key in read_keys(f"web:rank:{64 * '0'},web@acme:rank:{64 * '1'}")]
    ['', 'acme']

    >>> [key.name for key in read_keys("web:rank+feedback:" + 64 * "0")]
    ['web']
    """
    keys = tuple(_read_key(part.strip()) for part in text.split(",") if part.strip())
    if len({key.digest for key in keys}) < len(keys):
        raise SolarError("SOLAR_KEYS: expected a different hash for each key, got one twice")
    return keys


def _read_key(text: str) -> Key:
    try:
        name, scopes, digest = text.split(":")
        tenant = name.rpartition("@")[2] if "@" in name else ""
        key = Key(name, _included(scopes), bytes.fromhex(digest), tenant)
    except ValueError:
        raise SolarError(
            "SOLAR_KEYS: expected name:scope+scope:hash for each key; `solar key NAME` makes one"
        ) from None
    if "/" in name:
        raise SolarError("SOLAR_KEYS: expected a name without /; a new name keeps the secret valid")
    if "" in name.rpartition("@")[::2] and "@" in name:
        raise SolarError("SOLAR_KEYS: expected name@tenant, got a name with nothing beside its @")
    fit = 1 <= len(name) <= 64 and name.isprintable()
    if not fit or not key.scopes <= set(SCOPES) or len(key.digest) != 32:
        raise SolarError(
            "SOLAR_KEYS: expected a name of 1 to 64 printable characters, scopes among "
            f"{', '.join(SCOPES)}, and a SHA-256 in hex"
        )
    return key


def _included(scopes: str) -> frozenset[str]:
    """Return scopes joined by +, with those that they include."""
    found = frozenset(scopes.split("+"))
    return found | {"read"} if "admin" in found else found


def writing_keys(text: str) -> int:
    """Count the keys of SOLAR_KEYS that may rank or post."""
    return sum(bool(key.scopes & {"rank", "feedback"}) for key in read_keys(text))


def new_key(name: str, scopes: str) -> tuple[str, str]:
    """Make a new secret, and the entry for SOLAR_KEYS with its hash."""
    if not set(scopes.split("+")) <= set(SCOPES):
        raise SolarError(f"--scopes: expected {', '.join(SCOPES)}, joined by +")
    secret = secrets.token_urlsafe(32)
    entry = f"{name}:{scopes}:{_digest(secret.encode()).hex()}"
    read_keys(entry)
    return secret, entry


def _digest(secret: bytes) -> bytes:
    return sha256(secret).digest()


def holder(keys: tuple[Key, ...], secret: bytes) -> Key | None:
    """Find the key of a secret; every key is compared, each in constant time."""
    digest, found = _digest(secret), None
    for key in keys:
        if hmac.compare_digest(key.digest, digest):
            found = key
    return found


_API_KEY = HTTPBearer(
    scheme_name="key",
    auto_error=False,
    description="An API key, as `solar key` prints it. A service without keys needs none.",
)


def requires(scope: str) -> Any:
    """Declare that a path needs a key with this scope; the route itself checks the key."""
    return Security(_API_KEY, scopes=[scope])


def authenticate(keys: tuple[Key, ...], headers: Mapping[bytes, bytes], scope: str) -> Key:
    """Return the key of a request; 401 without a valid key, 403 without the scope."""
    kind, _, secret = headers.get(b"authorization", b"").partition(b" ")
    found = holder(keys, secret.strip()) if kind.lower() == b"bearer" else None
    if found is None:
        raise Problem(
            401,
            "authorization: expected Bearer and a valid API key",
            {"www-authenticate": "Bearer"},
        )
    if scope not in found.scopes:
        raise Problem(403, f"authorization: expected an API key with the scope {scope}")
    return found


#: Server names of test clients: Starlette's TestClient, and httpx in its documentation.
TEST_CLIENTS = ("testserver", "test")


@lru_cache(maxsize=64)
def received_locally(server: tuple[str, int | None] | None) -> bool:
    """Whether a request arrived on a loopback address, a unix socket or from a test client.

    A unix socket has no port.

    >>> received_locally(("127.0.0.1", 80)), received_locally(("/run/solar.sock", None))
    (True, True)
    >>> received_locally(("10.0.0.7", 80)), received_locally(("solar.example.com", 80))
    (False, False)
    """
    if server is None:
        return False
    host, port = server
    return port is None or host in TEST_CLIENTS or is_loopback(host)


def check_exposed(host: str, keys: tuple[Key, ...], *, insecure: bool) -> None:
    """Raise SolarError for a non-loopback address without API keys, unless `insecure`."""
    if not (keys or insecure or is_loopback(host)):
        raise SolarError(
            f"--host {host}: a non-loopback address needs API keys; set SOLAR_KEYS "
            "(`solar key NAME` makes one), or pass --insecure"
        )
