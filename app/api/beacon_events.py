"""Events of web pages: split, decoded one by one, and verified by their tokens."""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from time import time
from typing import NamedTuple

from msgspec import UNSET, DecodeError, Raw

from app.api import schemas
from app.api.errors import too_large
from app.api.schemas import BeaconEvent
from app.api.tokens import Expired, Forged, Signed, TokenKeys

#: Limits of a post.
BEACON_BYTES, BEACON_EVENTS = 65_536, 100


def split_events(body: bytes) -> list[Raw]:
    """Return the events of a body, not decoded; a body that is invalid counts as one event."""
    try:
        raw = schemas.decode_beacon(body).events
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return [Raw(b"")]
    if len(raw) > BEACON_EVENTS:
        raise too_large(BEACON_BYTES)
    return raw


def _decode(raw: Raw) -> BeaconEvent | None:
    """Decode an event; None if it is invalid."""
    try:
        return schemas.decode_beacon_event(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


class NamedEvent(NamedTuple):
    """An event whose token is verified: its request, and its id."""

    request: str
    event_id: str
    event: BeaconEvent


def verified_events(
    tokens: TokenKeys, events: Sequence[Raw], counts: Counter[str]
) -> dict[str, list[NamedEvent]]:
    """Return the events with valid tokens, by model."""
    found: dict[str, list[NamedEvent]] = {}
    now = time()
    for event in map(_decode, events):
        if event is None:
            counts["invalid"] += 1
            continue
        try:
            signed = tokens.verify(event.token, event.viewer, now)
        except Forged:
            counts["forged"] += 1
        except Expired:
            counts["expired"] += 1
        else:
            named = NamedEvent(signed.request, event_id_of(signed, event), event)
            found.setdefault(signed.model, []).append(named)
    return found


def event_id_of(signed: Signed, event: BeaconEvent) -> str:
    """Return the id of an event: a copy has the same one."""
    gains = sorted(event.gains.items()) if event.gains is not UNSET else []
    depth = -1 if event.examined is UNSET else event.examined
    content = schemas.encode([sorted(event.clicked), gains, depth])
    return "t:" + blake2b(signed.code + content, digest_size=16).hexdigest()
