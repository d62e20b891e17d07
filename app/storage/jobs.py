"""Training jobs in Redis: their state, progress and result, and the lease of the trainer.

One job at a time trains a model. The training process holds a lease and renews it with every
report. A job whose lease has expired has failed and may start again. The result enters the model's
log as one event, so it is applied once, whatever happens to the lease. A job can be cancelled until
then: the cancellation takes the event's id.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import msgspec

from app.errors import NoSuchModel
from app.storage.calls import ScriptRunner, translated
from app.storage.keys import JOB_LIST, internal_event, keys_of
from app.storage.leases import milliseconds, with_length

JobState = Literal["running", "done", "failed", "cancelled"]
Reported = Literal["kept", "lost", "cancel"]
Cancelled = Literal["cancelled", "unknown", "ended"]
#: Seconds that a job is kept after its last report.
JOB_KEPT_SECONDS = 7 * 86_400.0
#: Answers of the scripts by return code.
_REPORTED: tuple[Reported, ...] = ("kept", "lost", "cancel")
_CANCELLED: tuple[Cancelled, ...] = ("cancelled", "unknown", "ended")
#: Value of the dedupe key of a cancelled job's record: seq 0, which no record has.
_NO_RECORD = "0:"
#: Value of the dedupe key of a job's record in version 0.2: the seq and an empty digest.
_RECORD_OF_0_2 = re.compile(rb"\d+:")
#: State that version 0.2 stored while it appended the result.
_FINISHING = "finishing"
#: Seconds from the creation of a job, when its upload starts, within which it starts.
_STARTS_WITHIN = 86_400.0
#: Expired jobs that one start removes from the list of jobs.
_REMOVED_AT_ONCE = 100
DIED = "the training process died; start the job again"


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a training process; `seconds` is its length."""

    model: str
    job: str
    seconds: float
    process: str = field(default_factory=lambda: str(uuid4()))

    @property
    def trains(self) -> str:
        """Name of the training process, with the length of its lease."""
        return with_length(self.process, self.seconds)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as stored."""

    epoch: int
    state: JobState
    about: dict[str, Any]
    progress: dict[str, Any]
    result: dict[str, Any]
    error: str


class JobPage(NamedTuple):
    """Jobs by id, the newest first, and whether there are older ones."""

    jobs: dict[str, Job]
    more: bool


class Jobs:
    """The jobs of all models."""

    def __init__(self, client: Any, calls: ScriptRunner) -> None:
        self._client, self._calls = client, calls

    async def begin(self, lease: Lease, epoch: int, about: Mapping[str, Any]) -> bool:
        """Start a job, also a second time; False if another job trains the model."""
        keys = keys_of(lease.model)
        names = [keys.state, keys.job(lease.job), keys.training, keys.trained]
        values = [
            epoch,
            lease.trains,
            milliseconds(lease.seconds),
            milliseconds(JOB_KEPT_SECONDS),
            _NO_RECORD,
        ]
        fields = {"state": "running", "trains": lease.trains, "about": about}
        await self._enlist(lease.job)
        code = await self._calls.script(
            "job_begin",
            [*names, *_event_keys(lease.model, epoch, lease.job)],
            [*values, *_fields(fields)],
        )
        if code and await self.read(lease.model, lease.job) is None:
            await self._remove([_entry(lease.job)])
        if code == 1:
            raise NoSuchModel(f"model {lease.model}: no model of this name")
        return int(code) == 0

    async def report(self, lease: Lease, *, ends: bool = False, **fields: Any) -> Reported:
        """Store a job's progress and renew its lease; the answer tells whether to continue."""
        keys = keys_of(lease.model)
        values = [
            lease.trains,
            milliseconds(lease.seconds),
            milliseconds(JOB_KEPT_SECONDS),
            int(ends),
            *_fields(fields),
        ]
        code = await self._calls.script(
            "job_report", [keys.job(lease.job), keys.training, keys.trained], values
        )
        return _REPORTED[int(code)]

    async def cancel(self, model: str, job: str) -> Cancelled:
        """Ask the training process to stop, unless the job's record is in the log."""
        keys = keys_of(model)
        with translated(self._client):
            epoch = int(await self._client.hget(keys.job(job), "epoch") or 0)
        code = await self._calls.script(
            "job_cancel",
            [keys.job(job), keys.training, *_event_keys(model, epoch, job)],
            ["running", "cancelled", milliseconds(JOB_KEPT_SECONDS), _NO_RECORD],
        )
        return _CANCELLED[int(code)]

    async def record_of_0_2(self, model: str, epoch: int, job: str) -> int | None:
        """Return the seq of the record that version 0.2 appended for a job, 0 if it was cancelled.

        Feedback may have the same id; its value ends with a digest.
        """
        _, key = _event_keys(model, epoch, job)
        with translated(self._client):
            found: bytes = await self._client.get(key) or b""
        return int(found[:-1]) if _RECORD_OF_0_2.fullmatch(found) else None

    async def read(self, model: str, job: str) -> Job | None:
        """Return a job, or None.

        A job whose training process died has failed, or is cancelled if that was requested.
        """
        keys = keys_of(model)
        flat, trains = await self._calls.script("job_look", [keys.job(job), keys.training], [])
        if not flat:
            return None
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        stored = found[b"state"].decode()
        state: JobState = "running" if stored == _FINISHING else stored
        error = found.get(b"error", b"").decode()
        if state == "running" and found[b"trains"] != trains:
            state, error = ("cancelled", "") if b"cancel" in found else ("failed", DIED)
        about, progress, result = (
            msgspec.json.decode(found.get(name, b"{}"))
            for name in (b"about", b"progress", b"result")
        )
        return Job(int(found[b"epoch"]), state, about, progress, result, error)

    # ---- the list of jobs ----

    async def page(self, limit: int, after: str = "") -> JobPage:
        """Return the newest jobs, or the newest that are older than `after`."""
        found: dict[str, Job] = {}
        bound, expired = f"({_entry(after)}" if after else "+", []
        while len(found) <= limit:  # expired jobs leave gaps
            entries = await self._entries(bound, "-", limit + 1 - len(found), newest_first=True)
            if not entries:
                break
            ids = [_entry(entry) for entry in entries]
            read = await asyncio.gather(*(self.read(one.partition(".")[0], one) for one in ids))
            found |= {one: job for one, job in zip(ids, read, strict=True) if job}
            expired += [entry for entry, job in zip(entries, read, strict=True) if job is None]
            bound = f"({entries[-1]}"
        before = _moment(time() - _STARTS_WITHIN)
        await self._remove([entry for entry in expired if entry < before])
        return JobPage(dict([*found.items()][:limit]), len(found) > limit)

    async def _enlist(self, job: str) -> None:
        """Add a job to the list; remove some that expired long ago."""
        before = f"({_moment(time() - 2 * JOB_KEPT_SECONDS)}"
        await self._remove(await self._entries("-", before, _REMOVED_AT_ONCE))
        with translated(self._client):
            await self._client.zadd(JOB_LIST, {_entry(job): 0})

    async def _entries(
        self, start: str, stop: str, most: int, *, newest_first: bool = False
    ) -> list[str]:
        with translated(self._client):
            found = await self._client.zrange(
                JOB_LIST, start, stop, desc=newest_first, bylex=True, offset=0, num=most
            )
        return [entry.decode() for entry in found]

    async def _remove(self, entries: Sequence[str]) -> None:
        if entries:
            with translated(self._client):
                await self._client.zrem(JOB_LIST, *entries)


def record_event(job: str) -> str:
    """Return the event id of a job's record."""
    return internal_event("job", job)


def _event_keys(model: str, epoch: int, job: str) -> tuple[str, str]:
    """Return the dedupe keys of a job's record: of this version, and of version 0.2."""
    keys = keys_of(model)
    return keys.event(epoch, record_event(job)), keys.event(epoch, f"job-{job}")


def _entry(job: str) -> str:
    """Convert the id of a job, `<model>.<uuid7>`, to its entry in the list, and back.

    >>> _entry("books.01970000-0000"), _entry("01970000-0000.books")
    ('01970000-0000.books', 'books.01970000-0000')
    """
    first, _, last = job.partition(".")
    return f"{last}.{first}"


def _moment(seconds: float) -> str:
    """Return the start of the entries of jobs that were created at this time.

    >>> _moment(1_750_000_000.5)
    '01977420-ddf4'
    """
    digits = f"{int(seconds * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}"


def _fields(fields: Mapping[str, Any]) -> list[Any]:
    """Return names and values in turn; values other than text become JSON."""
    return [
        part
        for name, value in fields.items()
        for part in (name, value if isinstance(value, str) else msgspec.json.encode(value))
    ]
