"""The kept versions of models: stored states to which a model can be rolled back.

The log continues the versions that are kept by the number of records and before replacements: it is
trimmed up to the oldest of them, and a replay can start there (`States.versions`). Hourly and named
versions do not hold the log back, which may begin after them.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from uuid import uuid4

from app.errors import (
    InvalidInput,
    NoSuchModel,
    NoSuchVersion,
    TooManyVersions,
    Unreadable,
    VersionExists,
)
from app.ranking.arrays import Floats
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import keys_of
from app.storage.states import HOUR, States, StoredState, StoredWeights, load_sums

#: Named versions of a model.
MOST_NAMED = 10
#: Start of the member of a named version in `keeps`.
NAME = "name-"
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9_.-]{1,64}")
_ASCENDING_WITH_SCORES = (False, True)
_FIELDS = ("seq", "time", "reason", "sums")


class StoredVersion(NamedTuple):
    """A kept version; `time` (ms since 1970) and `reason` are None in those of older releases.

    `size` is in bytes of the store's memory. `sums` are None if they cannot be read.
    """

    seq: int
    name: str | None
    time: int | None
    reason: str | None
    size: int
    sums: Floats | None


class LastHourly(NamedTuple):
    """Time (ms since 1970) and seq of the newest hourly version, else of the oldest version.

    The time is None if the version is of an older release.
    """

    time: int | None
    seq: int


def check_version_name(name: str, field: str = "name") -> str:
    """Return a valid name of a version, or raise InvalidInput: a number is a version by its seq."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{field}: expected 1 to 64 letters, digits, '-', '_' or '.', and not digits only"
        )
    return name


class Versions:
    """The kept versions of all models."""

    def __init__(self, client: Any, calls: ScriptRunner, states: States) -> None:
        self._client, self._calls, self._states = client, calls, states

    async def listed(self, model: str) -> list[StoredVersion]:
        """Return all kept versions, oldest first."""
        keys = await self.keys(model)
        with translated(self._client):
            pipeline = self._client.pipeline(transaction=False)
            for key in keys:
                pipeline.hmget(key, _FIELDS)
                pipeline.memory_usage(key, samples=0)
            found = iter(await pipeline.execute() if keys else [])
        each = zip(keys, found, found, strict=True)
        kept = [_version(key, fields, size) for key, fields, size in each if fields[0]]
        return sorted(kept, key=lambda one: one.seq)

    async def keys(self, model: str) -> list[str]:
        """Return the keys of all versions: those that the log continues, then the others."""
        return [key for _, key in await self.placed(model)]

    async def placed(self, model: str) -> list[tuple[int, str]]:
        """Return seq and key of all versions: those that the log continues, then the others."""
        keys = keys_of(model)
        continued = [(seq, keys.snapshot(seq)) for seq in await self._states.versions(model)]
        return continued + await self.besides(model)

    async def besides(self, model: str) -> list[tuple[int, str]]:
        """Return seq and key of the hourly and named versions, oldest first."""
        keys = keys_of(model)
        return [(seq, keys.kept(member)) for member, seq in await self._members(model)]

    async def hourly(self, model: str) -> list[int]:
        """Return the seqs of the hourly versions, oldest first."""
        members = await self._members(model)
        return [seq for member, seq in members if member.startswith(HOUR)]

    async def last_hourly(self, model: str, oldest: int) -> LastHourly:
        """Return the newest hourly version; without one, the version after record `oldest`."""
        keys, hourly = keys_of(model), await self.hourly(model)
        seq = hourly[-1] if hourly else oldest
        key = keys.kept(f"{HOUR}{seq}") if hourly else keys.snapshot(seq)
        with translated(self._client):
            time = await self._client.hget(key, "time")
        return LastHourly(int(time) if time else None, seq)

    async def load(self, model: str, version: int | str) -> StoredState:
        """Return a version by its seq or name; NoSuchVersion if it is not kept."""
        with _not_kept():
            return await self._states.load_at(model, await self._find(model, version))

    async def load_weights(self, model: str, version: int | str) -> StoredWeights:
        """Return the weights of a version by its seq or name; NoSuchVersion if it is not kept."""
        with _not_kept():
            return await self._states.load_weights_at(model, await self._find(model, version))

    async def keep(self, model: str, epoch: int, name: str) -> int:
        """Keep the committed state under a name; return its seq.

        VersionExists, TooManyVersions or NoSuchModel if that is not possible. Safe to resend.
        """
        keys = keys_of(model)
        names = [keys.state, keys.keeps, keys.kept(NAME + check_version_name(name))]
        values = [epoch, MOST_NAMED, uuid4().hex]
        seq = int(await self._calls.durable_script("keep", names, values))
        if seq == -1:
            raise NoSuchModel(f"model {model}: no model of this name")
        if seq == -2:
            raise VersionExists(f"model {model}: expected a new name, got one that exists")
        if seq == -3:
            raise TooManyVersions(f"model {model}: expected at most {MOST_NAMED} named versions")
        return seq

    async def drop(self, model: str, name: str) -> None:
        """Delete a named version; NoSuchVersion if there is none of this name."""
        keys = keys_of(model)
        names = [keys.keeps, keys.kept(NAME + name)]
        if not _NAME.fullmatch(name) or not await self._calls.durable_script("drop", names, []):
            raise NoSuchVersion(f"model {model}: no version of this name")

    async def _find(self, model: str, version: int | str) -> str:
        """Return the key of a version; NoSuchVersion if there is none."""
        if isinstance(version, str):
            check_version_name(version, "version")
        keys, members = keys_of(model), await self._members(model)
        if isinstance(version, int) and version in await self._states.versions(model):
            return keys.snapshot(version)
        for member, seq in members:
            if version == seq if isinstance(version, int) else member == NAME + version:
                return keys.kept(member)
        raise NoSuchVersion(f"model {model}: the version is not kept")

    async def _members(self, model: str) -> list[tuple[str, int]]:
        """Return the hourly and named versions: member of `keeps` and seq, oldest first."""
        with translated(self._client):
            found = await self._client.zrange(keys_of(model).keeps, 0, -1, *_ASCENDING_WITH_SCORES)
        return [(member.decode(), int(seq)) for member, seq in found]


@contextmanager
def _not_kept() -> Iterator[None]:
    """Raise NoSuchVersion for a version that was dropped meanwhile."""
    try:
        yield
    except NoSuchModel as error:
        raise NoSuchVersion(str(error)) from None


def _version(key: str, fields: Sequence[bytes | None], size: int | None) -> StoredVersion:
    seq, time, reason, sums = fields
    member = key.rpartition(":")[2]
    name = member.removeprefix(NAME) if member.startswith(NAME) else None
    found = None
    with suppress(Unreadable):
        found = load_sums(sums or b"")
    return StoredVersion(
        int(seq or 0), name, int(time) if time else None, reason.decode() if reason else None,
        size or 0, found,
    )  # fmt: skip
