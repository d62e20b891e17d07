"""Tokens of impressions: who was served a list may send feedback on it for a while.

    "1." kid "." exp "." b64url(model NUL request_id) "." b64url(mac)
    mac = HMAC-SHA256(key, "solar/impression/1" NUL token-without-mac NUL viewer)[:16]

`kid` names the key, `exp` is the end of the token in seconds since 1970, in base 36. A token has no
features and no document ids: what was shown is in the store. `viewer` is what the backend passes in
`/rank`, such as a session; feedback must then state the same. The first key of SOLAR_TOKEN_KEYS
signs, and all of them verify, so a key can be replaced without losing tokens.
"""

import hmac
import re
import secrets
from base64 import b64decode, b64encode, urlsafe_b64decode
from binascii import Error as BadBase64
from binascii import b2a_base64
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from app.errors import SolarError

if TYPE_CHECKING:
    from hashlib import _Hash

#: The sender of all beacons: their source, which has a share like an API key.
SENDER = "beacon"
#: Bytes of a key, at least; of the code in a token.
LEAST_KEY, CODE_BYTES = 32, 16
#: No token is longer: a model, a request of 1,024 characters, and the rest.
MOST_TOKEN = 8_192
#: Bytes of a block of SHA-256; a key as two hashes.
_BLOCK = 64
Prepared: TypeAlias = "tuple[_Hash, _Hash]"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_KID = re.compile(r"[A-Za-z0-9]{1,8}")
_FORM = re.compile(
    r"(1\.([A-Za-z0-9]{1,8})\.([0-9a-z]{1,10})\.([A-Za-z0-9_-]+))\.([A-Za-z0-9_-]{22})"
)
_PURPOSE = b"solar/impression/1\0"


class Signed(NamedTuple):
    """A token's impression, and the code that makes it unique."""

    model: str
    request: str
    code: bytes


class Forged(Exception):
    """No key of the service has made this token for this viewer."""


class Expired(Exception):
    """The token was valid until some time ago."""


class TokenKeys:
    """The keys that make and verify tokens."""

    def __init__(self, keys: dict[str, bytes], seconds: float) -> None:
        """`keys` are by their names, the one that signs first; tokens are good for `seconds`."""
        self._keys = {name: _prepared(key) for name, key in keys.items()}
        self._signing, self._seconds = next(iter(self._keys.items())), seconds

    def sign(self, model: str, request: str, viewer: str, now: float) -> str:
        """Make the token of an impression."""
        kid, key = self._signing
        about = _encoded(f"{model}\0{request}".encode())
        text = f"1.{kid}.{base36(int(now + self._seconds))}.{about}"
        return f"{text}.{_encoded(_code(key, text, viewer))}"

    def verify(self, token: str, viewer: str, now: float) -> Signed:
        """Return what a token is about; Forged, or Expired."""
        found = _FORM.fullmatch(token) if len(token) <= MOST_TOKEN else None
        key = self._keys.get(found[2]) if found else None
        if found is None or key is None:
            raise Forged
        expected = _code(key, found[1], viewer)
        # The text is compared, too: the last character of 22 has bits that no byte uses.
        if not hmac.compare_digest(_encoded(expected), found[5]):
            raise Forged
        if int(found[3], 36) < now:
            raise Expired
        model, _, request = _decoded(found[4]).decode().partition("\0")
        return Signed(model, request, expected)


def _prepared(key: bytes) -> Prepared:
    """Return the inner and the outer hash of HMAC-SHA256 after the key (RFC 2104).

    Copies of them took 9 µs between requests, whose code evicts that of OpenSSL from the caches of
    the processor. `hmac.digest`, which looks up the algorithm, took 41 µs.
    """
    key = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    return sha256(bytes(one ^ 0x36 for one in key)), sha256(bytes(one ^ 0x5C for one in key))


def _code(key: Prepared, text: str, viewer: str) -> bytes:
    inner, outer = key[0].copy(), key[1].copy()
    inner.update(_PURPOSE + text.encode() + b"\0" + viewer.encode())
    outer.update(inner.digest())
    return outer.digest()[:CODE_BYTES]


def _encoded(content: bytes) -> str:
    return b2a_base64(content, newline=False).rstrip(b"=").translate(_URL_SAFE).decode()


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


@lru_cache(maxsize=4)  # all tokens of a second end together
def base36(number: int) -> str:
    """Return a number in base 36.

    >>> base36(35), base36(36), int(base36(1_750_000_000), 36)
    ('z', '10', 1750000000)
    """
    found = ""
    while number or not found:
        number, digit = divmod(number, 36)
        found = _DIGITS[digit] + found
    return found


def read_token_keys(text: str, seconds: float) -> TokenKeys | None:
    """Read SOLAR_TOKEN_KEYS: `name:base64`, separated by commas; None without keys.

    SolarError says what is wrong with an entry, and never shows it.
    """
    keys: dict[str, bytes] = {}
    for at, entry in enumerate(one.strip() for one in text.split(",") if one.strip()):
        name, _, encoded = entry.partition(":")
        if not _KID.fullmatch(name):
            raise _bad_key(at, "expected name:base64, with a name of 1 to 8 letters or digits")
        if name in keys:
            raise _bad_key(at, "expected another name for each key, got one twice")
        try:
            keys[name] = b64decode(encoded, validate=True)
        except (BadBase64, ValueError):
            raise _bad_key(at, "expected base64 after the name") from None
        if len(keys[name]) < LEAST_KEY:
            raise _bad_key(
                at, f"expected a key of at least {LEAST_KEY} bytes, got {len(keys[name])}"
            )
    return TokenKeys(keys, seconds) if keys else None


def _bad_key(at: int, what: str) -> SolarError:
    return SolarError(f"SOLAR_TOKEN_KEYS: entry {at + 1}: {what}; `solar key --token` makes one")


def new_token_key(name: str) -> str:
    """Make an entry for SOLAR_TOKEN_KEYS."""
    entry = f"{name}:{b64encode(secrets.token_bytes(LEAST_KEY)).decode()}"
    read_token_keys(entry, 1.0)
    return entry
