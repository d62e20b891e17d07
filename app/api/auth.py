"""Who may do what: API keys with scopes, kept as hashes, compared in constant time."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

from fastapi import Security
from fastapi.security import HTTPBearer

from app.api.errors import Problem
from app.errors import SolarError

SCOPES = ("rank", "feedback", "admin")


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: whose it is, what it may do, and the SHA-256 of its secret."""

    name: str
    scopes: frozenset[str]
    digest: bytes


#: Whoever calls where no keys are needed.
ANYBODY = Key("anybody", frozenset(SCOPES), b"")


def read_keys(text: str) -> tuple[Key, ...]:
    """Keys as the settings have them: `name:rank+feedback:<SHA-256 in hex>`, commas between.

    >>> [key.name for key in read_keys("web:rank+feedback:" + 64 * "0")]
    ['web']
    """
    return tuple(_read_key(part.strip()) for part in text.split(",") if part.strip())


def _read_key(text: str) -> Key:
    try:
        name, scopes, digest = text.split(":")
        key = Key(name, frozenset(scopes.split("+")), bytes.fromhex(digest))
    except ValueError:
        raise SolarError("SOLAR_KEYS: expected name:scope+scope:hash for each key") from None
    fit = 1 <= len(name) <= 64 and name.isprintable()
    if not fit or not key.scopes <= set(SCOPES) or len(key.digest) != 32:
        raise SolarError(f"SOLAR_KEYS: expected a name, scopes of {', '.join(SCOPES)}, a SHA-256")
    return key


def new_key(name: str, scopes: str) -> tuple[str, str]:
    """A new secret, and the entry for the settings that knows it."""
    if not set(scopes.split("+")) <= set(SCOPES):
        raise SolarError(f"--scopes: expected {', '.join(SCOPES)}, with + between")
    secret = secrets.token_urlsafe(32)
    entry = f"{name}:{scopes}:{_digest(secret.encode()).hex()}"
    read_keys(entry)
    return secret, entry


def _digest(secret: bytes) -> bytes:
    return sha256(secret).digest()


def holder(keys: tuple[Key, ...], secret: bytes) -> Key | None:
    """Whose secret this is; every key is compared, each in constant time."""
    digest, found = _digest(secret), None
    for key in keys:
        if hmac.compare_digest(key.digest, digest):
            found = key
    return found


_API_KEY = HTTPBearer(
    scheme_name="key",
    auto_error=False,
    description="An API key, as `solar key` prints it. Not needed where the service has no keys.",
)


def requires(scope: str) -> Any:
    """The dependency of a path that needs a key with this scope; the route itself checks it."""
    return Security(_API_KEY, scopes=[scope])


def admit(keys: tuple[Key, ...], headers: Mapping[bytes, bytes], scope: str) -> Key:
    """Whose key a request has; 401 without one, 403 if it lacks the scope."""
    kind, _, secret = headers.get(b"authorization", b"").partition(b" ")
    found = holder(keys, secret.strip()) if kind.lower() == b"bearer" else None
    if found is None:
        raise Problem(
            401, "authorization: expected Bearer and a valid key", {"www-authenticate": "Bearer"}
        )
    if scope not in found.scopes:
        raise Problem(403, f"authorization: expected a key with the scope {scope}")
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("::ffff:127.0.0.1")
    (True, True, True)
    >>> is_loopback("0.0.0.0"), is_loopback("")
    (False, False)
    """
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


#: The names that test clients give a server: TestClient's, and httpx's in its documentation.
TEST_CLIENTS = ("testserver", "test")


@lru_cache(maxsize=64)
def came_in_locally(server: tuple[str, int | None] | None) -> bool:
    """Whether the address that a request came in on is of this machine alone, or a test client's.

    A unix socket has no port.

    >>> came_in_locally(("127.0.0.1", 80)), came_in_locally(("/run/solar.sock", None))
    (True, True)
    >>> came_in_locally(("10.0.0.7", 80)), came_in_locally(("solar.example.com", 80))
    (False, False)
    """
    if server is None:
        return False
    host, port = server
    return port is None or host in TEST_CLIENTS or is_loopback(host)


def check_exposed(host: str, keys: tuple[Key, ...], *, insecure: bool) -> None:
    """SolarError if anybody who reaches this machine could do anything."""
    if not (keys or insecure or is_loopback(host)):
        raise SolarError(
            f"--host {host}: expected API keys (SOLAR_KEYS; `solar key NAME` makes one) "
            "for an address beyond loopback, or --insecure"
        )
