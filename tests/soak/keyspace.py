"""The keys of the store at the end: each belongs to a model that exists, or expires in time."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from app.storage.keys import (
    FOLLOWER_NAMES,
    HISTORIES,
    JOB_LIST,
    KEPT_LISTS,
    LEARNERS,
    MODELS,
    USAGE,
    Keys,
    follower_address,
)
from tests.soak.ledger import Problems

_KEY = re.compile(r"solar:\{([^}]+)\}:(?:f:([^:]+):)?([^:]+):?(.*)", re.DOTALL)
SERVICE = {FOLLOWER_NAMES, HISTORIES, JOB_LIST, KEPT_LISTS, LEARNERS, MODELS, USAGE}
#: Keys without an expiry: those of any name that existed, and those of models that exist.
FOREVER = {"epoch", "fence"}
LASTING_KEYS = {"state", "seq", "log", "snaps", "keeps", "followers"}
VERSIONS = {"snap", "keep"}
#: Most seconds until a key expires, by kind: clicked lists, dedupe entries, all others (jobs).
#: A clock that was ahead has made some longer by five minutes.
TTL = {"imp": 21_600 + 600, "e": 1.5 * 3600 + 900}
LONGEST_TTL = 7 * 86_400 + 600
BATCH = 1000


class Registered(NamedTuple):
    """Addresses of models and followers, and the versions that they keep by address and kind."""

    addresses: set[str]
    versions: Mapping[tuple[str, str], set[str]]


def strangers(keys: Mapping[str, float], known: Registered) -> Iterator[str]:
    """Name the keys that belong to nothing that exists, or live too long.

    `keys` have the seconds until they expire, negative if they do not expire.
    """
    for key, left in keys.items():
        match = _KEY.fullmatch(key)
        if key in SERVICE:
            continue
        wrong = _wrong(match, left, known) if match else "unknown"
        if wrong:
            yield f"{key}: {wrong}"


def _wrong(match: re.Match[str], left: float, known: Registered) -> str:
    """Say what is wrong with the key of a model; empty if nothing is."""
    leader, follower, kind, rest = match.groups()
    address = follower_address(leader, follower) if follower else leader
    if left >= 0:
        return f"expires in {left:.0f} s" if left > TTL.get(kind, LONGEST_TTL) else ""
    if kind in FOREVER:
        return ""
    if address not in known.addresses:
        return "of a model that does not exist, without an expiry"
    if kind in VERSIONS:
        kept = known.versions.get((address, kind), set())
        return "" if rest in kept else "a version that is not kept"
    return "" if kind in LASTING_KEYS else "without an expiry"


def kind_of(key: str) -> str:
    """Return the kind of a key.

    >>> kind_of("solar:{shop}:f:shop-b:snap:7"), kind_of("solar:{shop}:log"), kind_of("solar:jobs")
    ('snap', 'log', 'solar:jobs')
    >>> kind_of("solar:{solar:learners}:01a1")
    'solar:learners'
    """
    match = _KEY.fullmatch(key)
    if match is None or key in SERVICE:
        return key
    return match[1] if match[1] in SERVICE else match[3]


async def check_keys(client: Any, problems: Problems) -> Counter[str]:
    """Check all keys of a store; return how many there are of each kind.

    A key that is strange is looked at again: its model may be in the middle of a change.
    """
    keys = await _read(client)
    found = set(strangers(keys, await _registered(client)))
    if found:
        await asyncio.sleep(2.0)
        found &= set(strangers(await _read(client), await _registered(client)))
    for one in sorted(found):
        problems.add(f"key {one}")
    return Counter(map(kind_of, keys))


async def _read(client: Any) -> dict[str, float]:
    """Return all keys, and when they expire in seconds."""
    found: dict[str, float] = {}
    cursor = 0
    while True:
        cursor, keys = await client.scan(cursor, count=BATCH)
        async with client.pipeline(transaction=False) as calls:
            for key in keys:
                calls.pttl(key)
            left = await calls.execute()
        pairs = zip(keys, left, strict=True)
        found |= {key.decode(): ms / 1000 for key, ms in pairs if ms != -2}  # -2: has expired
        if not cursor:
            return found


async def _registered(client: Any) -> Registered:
    names = {one.decode() for one in await client.smembers(MODELS)}
    followers = await client.hgetall(FOLLOWER_NAMES)
    addresses = names | {
        follower_address(leader.decode(), name.decode()) for name, leader in followers.items()
    }
    versions = {}
    for address in addresses:
        keys = Keys(address)
        for kind, members in (("snap", keys.snapshots), ("keep", keys.keeps)):
            found = await client.zrange(members, 0, -1)
            versions[address, kind] = {one.decode() for one in found}
    return Registered(addresses, versions)
