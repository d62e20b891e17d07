"""A model's log, and the impressions that its feedback builds on.

An append is one Lua script and is safe to resend: each event is deduplicated.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from app.domain import codec
from app.errors import Backlog, Changed, Fenced, NoSuchModel
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import keys_of

APPENDED, REPEATED, OTHER_BODY, NO_IMPRESSION = range(4)
#: Minimum TTL of dedupe keys in seconds.
MIN_DEDUPE_SECONDS = 3_600.0
_ANY_SIZE = 1 << 53


class NewRecord(NamedTuple):
    """The record of an event; for feedback on a request also what the record builds on.

    `expected` is the accumulated feedback of the request before this record, `new` after it; both
    are empty for an event without a request. `shown` is the SHA-1 (hex) of the impression that the
    record builds on, empty for any.
    """

    event: str
    digest: bytes
    record: bytes
    request: str = ""
    expected: bytes = b""
    new: bytes = b""
    shown: str = ""


class AppendResult(NamedTuple):
    """The outcome of an event (APPENDED … NO_IMPRESSION) and its seq."""

    outcome: int
    seq: int


class LogEntry(NamedTuple):
    """A record in the log; `time` is the append time (ms since 1970, the sender's clock)."""

    seq: int
    record: bytes
    time: int
    waited_for: bool = False

    @property
    def replaces(self) -> bool:
        """Whether the record replaces the model; needs no decoding."""
        return codec.kind_is(self.record, "replace")


class StoredImpression(NamedTuple):
    """The impression of a request (opaque here) and its accumulated feedback."""

    shown: bytes
    accumulated: bytes


class Log:
    """The logs of all models and the impressions of their requests."""

    def __init__(self, client: Any, calls: ScriptRunner) -> None:
        self._client, self._calls = client, calls

    async def append(
        self,
        model: str,
        epoch: int,
        events: Sequence[NewRecord],
        *,
        limit: int,
        time: int,
        dedupe: float = MIN_DEDUPE_SECONDS,
        tail: int | None = None,
        wait: bool = False,
    ) -> list[AppendResult]:
        """Append all events of a post to the log, each once, in one script call.

        All or none: Changed if an event builds on outdated feedback. With `tail` only if the log
        ends there, else Fenced. With `wait` the learner commits at once.
        """
        if not events:
            return []
        keys = keys_of(model)
        names = [keys.state, keys.seq, keys.log]
        values: list[Any] = [epoch, limit, int(max(dedupe, MIN_DEDUPE_SECONDS) * 1000), time]
        values += ["" if tail is None else tail, int(wait)]
        for event in events:
            request = keys.impression(epoch, event.request) if event.request else keys.state
            names += [keys.event(epoch, event.event), request]
            values += [event.digest, event.record, event.expected, event.new, event.shown]
        code, *answers = await self._calls.durable_script("append", names, values)
        if code == 1:
            raise NoSuchModel(f"model {model}: no model of this name")
        if code == 2:
            raise Backlog(f"model {model}: the backlog limit of {limit} records is reached")
        if code == 3:
            raise Fenced(f"model {model}: the log no longer ends at {tail}")
        if code == 4:
            raise Changed(f"model {model}: a request received other feedback at the same time")
        return [AppendResult(*answer) for answer in answers]

    async def known(self, model: str, epoch: int, events: Sequence[str]) -> set[str]:
        """Return the events that have a dedupe key: they are in the log."""
        keys = keys_of(model)
        with translated(self._client):
            found = await self._client.mget([keys.event(epoch, event) for event in events])
        return {event for event, seen in zip(events, found, strict=True) if seen}

    async def read(self, model: str, after: int, count: int, wait: float = 0.0) -> list[LogEntry]:
        """Return the next records after seq `after`; wait up to `wait` seconds for the first."""
        keys, start = keys_of(model), f"{after}-0"
        with translated(self._client):
            found = await self._client.xread(
                {keys.log: start}, count=count, block=max(1, int(wait * 1000)) if wait else None
            )
        return [_entry(*entry) for _, entries in found or () for entry in entries]

    async def size(self, model: str) -> tuple[int, int]:
        """Return the number of records in the log and their approximate size in bytes."""
        key = keys_of(model).log
        with translated(self._client):
            length = int(await self._client.xlen(key))
            return length, int(await self._client.memory_usage(key) or 0) if length else 0

    async def tail(self, model: str) -> int:
        """Return the seq of the last record."""
        with translated(self._client):
            tail = await self._client.get(keys_of(model).seq)
        if tail is None:
            raise NoSuchModel(f"model {model}: no model of this name")
        return int(tail)

    async def tails(self, models: Sequence[str]) -> dict[str, int]:
        """Return the seq of the last record of each existing model, in one round trip.

        A model whose seq is damaged is missing.
        """
        with translated(self._client):
            pipeline = self._client.pipeline(transaction=False)
            for model in models:
                pipeline.get(keys_of(model).seq)
            found = await pipeline.execute() if models else []
        each = zip(models, found, strict=True)
        return {model: int(tail) for model, tail in each if is_number(tail)}

    async def store_impressions(
        self, model: str, epoch: int, shown: dict[str, bytes], ttl: float
    ) -> None:
        """Store the impressions of some requests for `ttl` seconds, in one round trip."""
        keys = keys_of(model)
        names = [keys.impression(epoch, request) for request in shown]
        await self._calls.script("remember", names, [int(ttl * 1000), *shown.values()])

    async def load_impressions(
        self, model: str, epoch: int, requests: Sequence[str], most: int = _ANY_SIZE
    ) -> list[StoredImpression | None]:
        """Return the impression of each request, None if it is unknown or expired.

        Impressions of more than `most` bytes together are returned for the first requests only.
        """
        found = await self._recall(model, epoch, requests, most, reserved=1)
        return [StoredImpression(i, a or b"") if i else None for i, a in found]

    async def load_small_impressions(
        self, model: str, epoch: int, requests: Sequence[str], most: int
    ) -> list[StoredImpression | int | None]:
        """Return the impression of each request; its size where `most` bytes are exceeded."""
        found = await self._recall(model, epoch, requests, most, reserved=0)
        return [
            one
            if isinstance(one, int)
            else StoredImpression(one[0], one[1] or b"")
            if one[0]
            else None
            for one in found
        ]

    async def _recall(
        self, model: str, epoch: int, requests: Sequence[str], most: int, reserved: int
    ) -> list[Any]:
        if not requests:
            return []
        keys = keys_of(model)
        names = [keys.impression(epoch, request) for request in requests]
        found: list[Any] = await self._calls.script("recall", names, [most, reserved])
        return found


def is_number(found: object) -> bool:
    """Whether a stored value is a number: not missing, no error and not damaged."""
    return isinstance(found, bytes) and found.isdigit()


def _entry(identity: bytes, fields: dict[bytes, bytes]) -> LogEntry:
    seq = int(identity.split(b"-")[0])
    return LogEntry(seq, fields[b"r"], int(fields.get(b"t", 0)), b"w" in fields)
