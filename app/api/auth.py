"""Who may do what: API keys with scopes, kept as hashes, compared in constant time."""

import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address

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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposed(host: str, keys: tuple[Key, ...], *, insecure: bool) -> None:
    """SolarError if anybody who reaches this machine could do anything."""
    if not (keys or insecure or is_loopback(host)):
        raise SolarError(
            f"--host {host}: expected API keys (SOLAR_KEYS; `solar key NAME` makes one) "
            "for an address beyond loopback, or --insecure"
        )
