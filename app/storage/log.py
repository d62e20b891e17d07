"""A model's log, and the impressions that its feedback builds on.

An append is one Lua script and is safe to resend: each event is deduplicated.
"""

from asyncio import get_running_loop
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError

from app.domain import codec
from app.domain.work import RECORD_WORK
from app.errors import (
    Backlog,
    Changed,
    Fenced,
    InvalidInput,
    NoSuchModel,
    SolarError,
    TooLate,
    WorkBacklog,
)
from app.storage.calls import ScriptRunner, ServerClocks, translated
from app.storage.keys import BODY_BYTES, Keys, Slices, bucket_keys, event_hash, keys_of, read_slices

APPENDED, REPEATED, OTHER_BODY, NO_IMPRESSION, TOO_OLD, TOO_FAR_AHEAD, NOT_REPEATED = range(7)
ONLY_CLICKS, TOO_MANY_PAIRS = 7, 8  # the latter of the appender, for one that is not repeated
#: Default window of the deduplication in seconds.
DEDUPE_SECONDS = 3_600.0
#: Attempts to append while other processes open slices, which is rare.
_ATTEMPTS = 10
#: Models whose slices are cached.
_CACHED = 8192
_ANY_SIZE = 1 << 53
TOO_MUCH_WORK = (
    "events: they take more work than may wait for the learner (SOLAR_BACKLOG_WORK); send fewer "
    "events, or one alone"
)
#: Values of the conditions of an event in the append script.
_CONDITIONS = 8


class NewRecord(NamedTuple):
    """The record of an event; for feedback on a request also what the record builds on.

    `expected` is the accumulated feedback of the request before this record, `new` after it; both
    are empty for an event without a request. `shown` is the SHA-1 (hex) of the impression that the
    record builds on, empty for any. `time` is the time that the sender states, in ms since 1970.
    `work` is what it costs the learner (`app/domain/work.py`). `keep` is the lifetime of the
    impression from now on in ms, if that is longer than it is. `first_click` is whether it has the
    first click on its list, and `growth` the bytes by which what has come of a clicked list grows.
    With `repeated_only` an event that is new is refused, with `first_life_only` one on a list that
    lives only because it was clicked. It is also `repeated_only` if it gives `too_many_pairs`.
    """

    event: str
    digest: bytes
    record: bytes
    request: str = ""
    expected: bytes = b""
    new: bytes = b""
    shown: str = ""
    tenant: str = ""
    time: int | None = None
    repeated_only: bool = False
    work: int = RECORD_WORK
    keep: int = 0
    first_click: bool = False
    growth: int = 0
    first_life_only: bool = False
    too_many_pairs: bool = False

    @property
    def is_internal(self) -> bool:
        """Whether it is an event of the service: its id has a control character."""
        return self.event < " "


class AppendResult(NamedTuple):
    """The outcome of an event (APPENDED … TOO_MANY_PAIRS) and its seq."""

    outcome: int
    seq: int


class LogEntry(NamedTuple):
    """A record in the log; `time` is the append time (ms since 1970, the sender's clock).

    `work` is that of all records up to this one; 0 if an older process has appended it. `request`
    is the one that the record is feedback on, if any.
    """

    seq: int
    record: bytes
    time: int
    waited_for: bool = False
    work: int = 0
    request: str = ""

    @property
    def replaces(self) -> bool:
        """Whether the record replaces the model; needs no decoding."""
        return codec.kind_is(self.record, "replace")


class NewImpression(NamedTuple):
    """The impression of a request (opaque here) and its tenant."""

    request: str
    shown: bytes
    tenant: str = ""


class WrittenImpressions(NamedTuple):
    """What became of some impressions that were to be stored, and when the new ones expire.

    `stored` is False if the request belongs to another tenant. `new` is False also if the request
    had the same impression before. `expire` is in ms since 1970, by the server's clock.
    """

    stored: list[bool]
    new: list[bool]
    expire: int


class StoredImpression(NamedTuple):
    """The impression of a request and its accumulated feedback.

    `tenant` is None for an impression of a release without tenants.
    """

    shown: bytes
    accumulated: bytes
    tenant: str | None = ""

    def is_open_to(self, tenant: str) -> bool:
        """Whether a tenant may send feedback on it."""
        return self.tenant is None or self.tenant == tenant


class Log:
    """The logs of all models and the impressions of their requests."""

    def __init__(self, client: Any, calls: ScriptRunner) -> None:
        self._client, self._calls = client, calls
        self._slices: dict[tuple[str, int], bytes] = {}  # as the last append saw them
        self._clocks = ServerClocks()

    async def append(
        self,
        model: str,
        epoch: int,
        events: Sequence[NewRecord],
        *,
        limit: int,
        work_limit: int | None = None,
        time: int,
        dedupe: float = DEDUPE_SECONDS,
        tail: int | None = None,
        chain: bytes = b"",
        wait: bool = False,
    ) -> list[AppendResult]:
        """Append all events of a post to the log, each once, in one script call.

        The events are all internal, or none is. All or none: Changed if an event builds on outdated
        feedback, Backlog if more than `limit` records would wait for the learner, or more work than
        `work_limit`, InvalidInput if several events alone take more. A repeated event is recognised
        for `dedupe` seconds. With `tail` only if the log ends there, with `chain` only if that is
        the chain of the committed state, else Fenced. With `wait` the learner commits at once.
        """
        if not events:
            return []
        most_work = "" if work_limit is None else work_limit
        first = [epoch, limit, most_work, time, "" if tail is None else tail, int(wait)]
        window = int(dedupe * 1000)
        internal = events[0].is_internal
        for _ in range(_ATTEMPTS):
            known = await self._known_slices(model, epoch)
            slices = read_slices(known)
            named = internal or slices.legacy
            names, values = _event_arguments(keys_of(model), epoch, events, slices, named)
            given = [*first, known, "" if internal else window, window if named else ""]
            given += [len(events), chain, *values]
            code, *answers = await self._calls.durable_script("append", names, given)
            if code in (0, 5):
                self._keep_slices((model, epoch), answers[0])
            if code == 0:
                return list(map(AppendResult, answers[1::2], answers[2::2]))
            if code == 4:
                raise Changed(
                    f"model {model}: a request received other feedback at the same time",
                    skipped={at - 1 for at in answers[1:]},
                )
            if code != 5:
                raise _refused(code, model, limit, tail)
        raise Changed(f"model {model}: the deduplication changes too often; try again")

    async def _known_slices(self, model: str, epoch: int) -> bytes:
        """Return the slices of a model as the last append saw them, or as they are stored."""
        known = self._slices.get((model, epoch))
        if known is None:
            with translated(self._client):
                known = await self._client.hget(keys_of(model).state, "slices") or b""
            self._keep_slices((model, epoch), known)
        return known

    def _keep_slices(self, model: tuple[str, int], text: bytes) -> None:
        if text:
            if len(self._slices) >= _CACHED:
                self._slices.clear()
            self._slices[model] = text

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
        self,
        model: str,
        epoch: int,
        shown: Sequence[NewImpression],
        ttl: float,
        noted: int | None = None,
        within: float | None = None,
    ) -> WrittenImpressions:
        """Store the impressions of some requests for `ttl` seconds, in one round trip.

        The request at position `noted` becomes the newest of the recent ones. TooLate if the server
        got them after `within` seconds: none is stored.
        """
        keys = keys_of(model)
        names = [keys.recent(epoch), *(keys.impression(epoch, one.request) for one in shown)]
        deadline = 0 if within is None else self._clocks.deadline(model, within)
        values: list[Any] = [int(ttl * 1000), 0 if noted is None else noted + 1, deadline]
        values += [part for one in shown for part in (one.tenant, one.shown)]
        sent = get_running_loop().time()
        clock, *stored = await self._calls.script("remember", names, values)
        self._clocks.note(model, sent, clock, refused=not stored)
        if not stored:
            raise TooLate(f"model {model}: impressions reached the store after their deadline")
        expire = clock + int(ttl * 1000)
        return WrittenImpressions([one > 0 for one in stored], [one == 1 for one in stored], expire)

    async def recent_requests(self, model: str, epoch: int) -> list[str]:
        """Return the ids of recent requests, newest first, each once; at most 100.

        Their impressions may have expired. None if the user of the store may not read the list.
        """
        with translated(self._client):
            try:
                found = await self._client.lrange(keys_of(model).recent(epoch), 0, -1)
            except NoPermissionError:
                return []
        return list(dict.fromkeys(one.decode() for one in found))

    async def load_impressions(
        self, model: str, epoch: int, requests: Sequence[str], most: int = _ANY_SIZE
    ) -> list[StoredImpression | None]:
        """Return the impression of each request, None if it is unknown or expired.

        Impressions of more than `most` bytes together are returned for the first requests only.
        """
        found = await self._recall(model, epoch, requests, most, reserved=1)
        return [_impression(one) for one in found]

    async def load_small_impressions(
        self, model: str, epoch: int, requests: Sequence[str], most: int
    ) -> list[StoredImpression | int | None]:
        """Return the impression of each request; its size where `most` bytes are exceeded."""
        found = await self._recall(model, epoch, requests, most, reserved=0)
        return [one if isinstance(one, int) else _impression(one) for one in found]

    async def _recall(
        self, model: str, epoch: int, requests: Sequence[str], most: int, reserved: int
    ) -> list[Any]:
        if not requests:
            return []
        keys = keys_of(model)
        names = [keys.impression(epoch, request) for request in requests]
        found: list[Any] = await self._calls.script("recall", names, [most, reserved])
        return found


def _event_arguments(
    keys: Keys, epoch: int, events: Sequence[NewRecord], slices: Slices, named: bool
) -> tuple[list[str], list[Any]]:
    """Return the keys and the values of events for the append script."""
    names, values, hashes = [keys.state, keys.seq, keys.log], list[Any](), list[bytes]()
    if named:
        names += [keys.event(epoch, event.event) for event in events]
    requests: dict[str, int] = {}  # number among the keys
    conditions = list[Any]()
    for event in events:
        hashed, digest, number = b"", event.digest, ""
        if not event.is_internal:
            hashed, digest = event_hash(event.tenant, event.event), digest.ljust(BODY_BYTES, b"\0")
            hashes.append(hashed)
        if event.request or event.repeated_only or event.time is not None:
            conditions += _conditions(event, requests, len(names))
            number = str(len(conditions) // _CONDITIONS)
        values += (hashed, digest, event.record, event.work, number)
    names += [keys.impression(epoch, request) for request in requests]
    return names + bucket_keys(keys, epoch, slices, hashes), values + conditions


def _conditions(event: NewRecord, requests: dict[str, int], first: int) -> tuple[Any, ...]:
    """Return the conditions of an event; `requests` are numbered after the `first` keys."""
    on: str | int = "-" if event.repeated_only else ""
    if event.request:
        on = requests.setdefault(event.request, first + len(requests) + 1)
    time = "" if event.time is None else event.time
    own: tuple[Any, ...] = (event.keep or "", "1" if event.first_life_only else "")
    return on, event.tenant, event.expected, event.new, event.shown, time, *own


def _refused(code: int, model: str, limit: int, tail: int | None) -> SolarError:
    """Return the error of an append that was refused."""
    if code == 1:
        return NoSuchModel(f"model {model}: no model of this name")
    if code == 2:
        return Backlog(f"model {model}: the backlog limit of {limit} records is reached")
    if code == 6:
        return WorkBacklog(f"model {model}: the backlog limit of work is reached")
    if code == 7:
        return InvalidInput(TOO_MUCH_WORK)
    return Fenced(f"model {model}: the log no longer ends at {tail}, or its state has changed")


def _impression(found: Sequence[bytes | None]) -> StoredImpression | None:
    shown, accumulated, tenant = found
    if not shown:
        return None
    return StoredImpression(shown, accumulated or b"", None if tenant is None else tenant.decode())


def is_number(found: object) -> bool:
    """Whether a stored value is a number: not missing, no error and not damaged."""
    return isinstance(found, bytes) and found.isdigit()


def _entry(identity: bytes, fields: dict[bytes, bytes]) -> LogEntry:
    seq = int(identity.split(b"-")[0])
    time, work = int(fields.get(b"t", 0)), int(fields.get(b"k", 0))
    request = fields.get(b"q", b"").decode()
    return LogEntry(seq, fields[b"r"], time, b"w" in fields, work, request)
