"""A model's log, and the impressions that its feedback builds on.

An append is one Lua script and may be sent twice without harm: each event is deduplicated.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from app.domain import codec
from app.errors import Backlog, Changed, Fenced, NoSuchModel
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import keys_of

APPENDED, REPEATED, OTHER_BODY, FORGOTTEN = range(4)
#: Dedupe keys live at least this long.
LEAST_DEDUPE = 3_600.0


class NewRecord(NamedTuple):
    """An event's record, and for feedback on a request what it builds on.

    `expected` is the accumulation (what has come of the request so far) that the record was made
    from, `new` the one that it makes; both empty for an event without a request. `shown` is the
    SHA-1 (hex) of the impression it was made from, empty if that does not matter.
    """

    event: str
    digest: bytes
    record: bytes
    request: str = ""
    expected: bytes = b""
    new: bytes = b""
    shown: str = ""


class AppendResult(NamedTuple):
    """What became of an event (APPENDED … FORGOTTEN), and its seq."""

    outcome: int
    seq: int


class LogEntry(NamedTuple):
    """A record in the log, and when it was appended (ms since 1970, by the poster's clock)."""

    seq: int
    record: bytes
    time: int
    waited_for: bool = False

    @property
    def replaces(self) -> bool:
        """Whether the record replaces the model; seen without decoding it."""
        return codec.kind_is(self.record, "replace")


class StoredImpression(NamedTuple):
    """What was shown for a request (opaque here), and what has come of it so far."""

    shown: bytes
    accumulated: bytes


class Log:
    """The logs of all models, and what was shown for their requests."""

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
        dedupe: float = LEAST_DEDUPE,
        tail: int | None = None,
        wait: bool = False,
    ) -> list[AppendResult]:
        """Enter all events of a post into the log, each once: one script, one call.

        All or none: Changed if one of them builds on what is no longer so. With `tail` only if the
        log ends there, else Fenced. With `wait` the learner commits at once: somebody waits.
        """
        if not events:
            return []
        keys = keys_of(model)
        names = [keys.state, keys.seq, keys.log]
        values: list[Any] = [epoch, limit, int(max(dedupe, LEAST_DEDUPE) * 1000), time]
        values += ["" if tail is None else tail, int(wait)]
        for event in events:
            request = keys.impression(epoch, event.request) if event.request else keys.state
            names += [keys.event(epoch, event.event), request]
            values += [event.digest, event.record, event.expected, event.new, event.shown]
        code, *answers = await self._calls.kept_script("append", names, values)
        if code == 1:
            raise NoSuchModel(f"model {model}: there is none of this name (any more)")
        if code == 2:
            raise Backlog(f"model {model}: more than {limit} records wait to be learnt")
        if code == 3:
            raise Fenced(f"model {model}: the log no longer ends at {tail}")
        if code == 4:
            raise Changed(f"model {model}: a request has got other feedback meanwhile")
        return [AppendResult(*answer) for answer in answers]

    async def known(self, model: str, epoch: int, events: Sequence[str]) -> set[str]:
        """Which of these events are in the log already, as far as that is remembered."""
        keys = keys_of(model)
        with translated():
            found = await self._client.mget([keys.event(epoch, event) for event in events])
        return {event for event, seen in zip(events, found, strict=True) if seen}

    async def read(self, model: str, after: int, count: int, wait: float = 0.0) -> list[LogEntry]:
        """The next records after seq `after`; waits up to so many seconds for the first."""
        keys, start = keys_of(model), f"{after}-0"
        with translated():
            found = await self._client.xread(
                {keys.log: start}, count=count, block=max(1, int(wait * 1000)) if wait else None
            )
        return [_entry(*entry) for _, entries in found or () for entry in entries]

    async def size(self, model: str) -> tuple[int, int]:
        """How many records the log has, and about how many bytes they take."""
        key = keys_of(model).log
        with translated():
            length = int(await self._client.xlen(key))
            return length, int(await self._client.memory_usage(key) or 0) if length else 0

    async def tail(self, model: str) -> int:
        """The seq of the last record."""
        with translated():
            tail = await self._client.get(keys_of(model).seq)
        if tail is None:
            raise NoSuchModel(f"model {model}: there is none of this name")
        return int(tail)

    async def remember(self, model: str, epoch: int, shown: dict[str, bytes], ttl: float) -> None:
        """Keep what was shown for some requests, for `ttl` seconds: one round trip."""
        keys = keys_of(model)
        names = [keys.impression(epoch, request) for request in shown]
        await self._calls.script("remember", names, [int(ttl * 1000), *shown.values()])

    async def recall(
        self, model: str, epoch: int, requests: Sequence[str]
    ) -> list[StoredImpression | None]:
        """What was shown for each request, None where that is unknown or forgotten."""
        keys = keys_of(model)
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for request in requests:
                pipeline.hmget(keys.impression(epoch, request), ["i", "a"])
            found = await pipeline.execute()
        return [StoredImpression(i, a or b"") if i else None for i, a in found]


def _entry(identity: bytes, fields: dict[bytes, bytes]) -> LogEntry:
    seq = int(identity.split(b"-")[0])
    return LogEntry(seq, fields[b"r"], int(fields.get(b"t", 0)), b"w" in fields)
