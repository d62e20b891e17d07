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
from app.storage.states import States, StoredState, StoredWeights, load_sums

#: Named versions of a model.
MOST_NAMED = 10
#: A number is a version by its seq, and a client would take `..` for a part of the path.
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_ASCENDING_WITH_SCORES = (False, True)
_FIELDS = ("time", "reason", "sums")


class Member(NamedTuple):
    """A member of `keeps`: an hourly version, one with a name, or one in a duel.

    `seq` is its last record.
    """

    key: str
    seq: int
    name: str | None
    duels: bool = False

    @property
    def is_hourly(self) -> bool:
        """Whether it is an hourly version."""
        return self.name is None and not self.duels


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
    """Return a valid name of a version, or raise InvalidInput."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{field}: expected 1 to 64 letters, digits, '-', '_' or '.', not digits only and no "
            "'.' at the start"
        )
    return name


class Versions:
    """The kept versions of all models."""

    def __init__(self, client: Any, calls: ScriptRunner, states: States) -> None:
        self._client, self._calls, self._states = client, calls, states

    async def listed(self, model: str) -> list[StoredVersion]:
        """Return all kept versions, oldest first; those of the same record as they were kept.

        The copy for a duel is left out while the version itself is there by records.
        """
        placed = await self.placed(model)
        keys, there = keys_of(model), {one.key for one in placed}
        placed = [one for one in placed if not (one.duels and keys.snapshot(one.seq) in there)]
        with translated(self._client):
            pipeline = self._client.pipeline(transaction=False)
            for one in placed:
                pipeline.hmget(one.key, _FIELDS)
                pipeline.memory_usage(one.key, samples=0)
            found = iter(await pipeline.execute() if placed else [])
        each = zip(placed, found, found, strict=True)
        kept = [_version(one, fields, size) for one, fields, size in each if size]
        return sorted(kept, key=lambda one: (one.seq, one.time or 0))

    async def placed(self, model: str) -> list[Member]:
        """Return the places of all versions: those that the log continues, then the others."""
        keys = keys_of(model)
        continued = await self._states.versions(model)
        members = [Member(keys.snapshot(seq), seq, None) for seq in continued]
        return members + await self._besides(model)

    async def all_keys(self, model: str) -> list[str]:
        """Return the keys of all versions, also of those that a deleted model left behind."""
        keys = keys_of(model)
        continued = [keys.snapshot(seq) for seq in await self._states.versions(model)]
        return continued + await self.left_keys(model)

    async def left_keys(self, model: str) -> list[str]:
        """Return the keys of hourly and named versions, also of those of a deleted model."""
        keys = keys_of(model)
        return [keys.kept(member.decode()) for member, _ in await self._members(model)]

    async def hourly(self, model: str) -> list[int]:
        """Return the seqs of the hourly versions, oldest first."""
        return [one.seq for one in await self._besides(model) if one.is_hourly]

    async def last_hourly(self, model: str, oldest: int) -> LastHourly:
        """Return the newest hourly version; without one, the version after record `oldest`."""
        hourly = [one for one in await self._besides(model) if one.is_hourly]
        last = hourly[-1] if hourly else Member(keys_of(model).snapshot(oldest), oldest, None)
        with translated(self._client):
            time = await self._client.hget(last.key, "time")
        return LastHourly(_time(time), last.seq)

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
        names = [keys.state, keys.keeps, keys.named(epoch, check_version_name(name))]
        values = [epoch, MOST_NAMED, uuid4().hex]
        seq = int(await self._calls.durable_script("keep", names, values))
        if seq == -1:
            raise NoSuchModel(f"model {model}: no model of this name")
        if seq == -2:
            raise VersionExists(f"model {model}: expected a new name, got one that exists")
        if seq == -3:
            raise TooManyVersions(f"model {model}: expected at most {MOST_NAMED} named versions")
        return seq

    async def drop(self, model: str, epoch: int, name: str) -> None:
        """Delete a named version; NoSuchVersion if there is none of this name."""
        keys = keys_of(model)
        names = [keys.keeps, keys.named(epoch, name)]
        if not _NAME.fullmatch(name) or not await self._calls.durable_script("drop", names, [""]):
            raise NoSuchVersion(f"model {model}: no version of this name")

    async def keep_for_duel(self, model: str, epoch: int, seq: int) -> None:
        """Keep the version after record `seq` while it is in a duel; NoSuchVersion without one.

        One that is kept already gets a new time. Safe to resend.
        """
        keys, kept = keys_of(model), await self._find(model, seq)
        names = [keys.state, keys.keeps, kept, keys.dueling(epoch, seq)]
        code = await self._calls.durable_script("keep_for_duel", names, [epoch])
        if code == -1:
            raise NoSuchModel(f"model {model}: no model of this name")
        if code == 0:
            raise NoSuchVersion(f"model {model}: the version is not kept")

    async def dueling(self, model: str) -> list[int]:
        """Return the seqs of the versions that are kept for a duel."""
        return [one.seq for one in await self._besides(model) if one.duels]

    async def kept_for_duels(self, model: str) -> dict[int, bytes]:
        """Return when each version was last kept for a duel, by seq."""
        kept = [one for one in await self._besides(model) if one.duels]
        with translated(self._client):
            pipeline = self._client.pipeline(transaction=False)
            for one in kept:
                pipeline.hmget(one.key, ["time"])
            times = await pipeline.execute() if kept else []
        return {one.seq: time or b"" for one, (time,) in zip(kept, times, strict=True)}

    async def drop_dueling(self, model: str, epoch: int, seq: int, time: bytes = b"") -> None:
        """Delete the version that was kept for a duel, unless it was kept again after `time`."""
        keys = keys_of(model)
        await self._calls.script("drop", [keys.keeps, keys.dueling(epoch, seq)], [time])

    async def _find(self, model: str, version: int | str) -> str:
        """Return the key of a version; NoSuchVersion if there is none."""
        if isinstance(version, str):
            check_version_name(version, "version")
        for one in await self.placed(model):
            if version in (one.seq, one.name):
                return one.key
        raise NoSuchVersion(f"model {model}: the version is not kept")

    async def _besides(self, model: str) -> list[Member]:
        """Return the hourly and named versions, oldest first.

        Those of a deleted model of this name are left out: an older release leaves them behind.
        """
        keys = keys_of(model)
        with translated(self._client):
            epoch = await self._client.hget(keys.state, "epoch") or b""
        found = []
        for member, seq in await self._members(model):
            of_epoch, kind, rest = member.split(b"-", 2)
            name = rest.decode() if kind == b"name" else None
            if of_epoch == epoch:
                key = keys.kept(member.decode())
                found.append(Member(key, int(seq), name, duels=kind == b"duel"))
        return found

    async def _members(self, model: str) -> list[tuple[bytes, float]]:
        """Return the members of `keeps` and their seqs, oldest first."""
        with translated(self._client):
            return list(
                await self._client.zrange(keys_of(model).keeps, 0, -1, *_ASCENDING_WITH_SCORES)
            )


@contextmanager
def _not_kept() -> Iterator[None]:
    """Raise NoSuchVersion for a version that was dropped meanwhile."""
    try:
        yield
    except NoSuchModel as error:
        raise NoSuchVersion(str(error)) from None


def _version(one: Member, fields: Sequence[bytes | None], size: int) -> StoredVersion:
    time, reason, sums = fields
    found = None
    with suppress(Unreadable):
        found = load_sums(sums or b"")
    text = reason.decode(errors="replace") if reason else None
    return StoredVersion(one.seq, one.name, _time(time), text, size, found)


def _time(text: bytes | None) -> int | None:
    """Return a time in ms since 1970; None if it is unknown or damaged."""
    return int(text) if text and text.isdigit() and len(text) <= 14 else None
