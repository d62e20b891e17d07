"""Jobs in Redis: what they are, how far they are, and who trains.

A model is trained by one job at a time. Who trains holds a lease, which every report keeps; a job
whose lease has run out has failed, and may be begun again. Its result enters the model's log as one
event, so whatever happens to the lease, that happens once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import msgspec

from app.errors import NoSuchModel
from app.storage.calls import ScriptRunner
from app.storage.keys import keys_of

JobState = Literal["running", "finishing", "done", "failed", "cancelled"]
Reported = Literal["kept", "lost", "cancel"]
Cancelled = Literal["cancelled", "unknown", "ended"]
#: A job is known for so long after its last report, in seconds.
JOB_KEPT_SECONDS = 7 * 86_400.0
#: What the scripts answer, by their codes.
_REPORTED: tuple[Reported, ...] = ("kept", "lost", "cancel")
_CANCELLED: tuple[Cancelled, ...] = ("cancelled", "unknown", "ended")
DIED = "the process that trained has died; start the job again"


@dataclass(frozen=True, slots=True)
class Lease:
    """Who trains what, and for how long without a word."""

    model: str
    job: str
    seconds: float
    trains: str = field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the store has it."""

    epoch: int
    state: JobState
    about: dict[str, Any]
    progress: dict[str, Any]
    result: dict[str, Any]
    error: str


class Jobs:
    """The jobs of all models."""

    def __init__(self, calls: ScriptRunner) -> None:
        self._calls = calls

    async def begin(self, lease: Lease, epoch: int, about: Mapping[str, Any]) -> bool:
        """Begin a job, or begin it again; False if another trains the model."""
        keys = keys_of(lease.model)
        values = [epoch, lease.trains, _ms(lease.seconds), _ms(JOB_KEPT_SECONDS)]
        fields = {"state": "running", "trains": lease.trains, "about": about}
        code = await self._calls.script(
            "job_begin",
            [keys.state, keys.job(lease.job), keys.training, keys.trained],
            [*values, *_fields(fields)],
        )
        if code == 1:
            raise NoSuchModel(f"model {lease.model}: there is none of this name (any more)")
        return int(code) == 0

    async def report(self, lease: Lease, *, ends: bool = False, **fields: Any) -> Reported:
        """Say how a job goes on, and keep its lease; whether to go on, as another may train."""
        keys = keys_of(lease.model)
        values = [
            lease.trains,
            _ms(lease.seconds),
            _ms(JOB_KEPT_SECONDS),
            int(ends),
            *_fields(fields),
        ]
        code = await self._calls.script(
            "job_report", [keys.job(lease.job), keys.training, keys.trained], values
        )
        return _REPORTED[int(code)]

    async def cancel(self, model: str, job: str) -> Cancelled:
        """Ask whoever trains to stop."""
        keys = keys_of(model)
        code = await self._calls.script(
            "job_cancel", [keys.job(job), keys.training], ["running", "cancelled"]
        )
        return _CANCELLED[int(code)]

    async def look(self, model: str, job: str) -> Job | None:
        """A job, None if there is none.

        One that no process trains any more has failed, or was cancelled if that was asked for.
        """
        keys = keys_of(model)
        flat, trains = await self._calls.script("job_look", [keys.job(job), keys.training], [])
        if not flat:
            return None
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        state: JobState = found[b"state"].decode()
        error = found.get(b"error", b"").decode()
        if state in ("running", "finishing") and found[b"trains"] != trains:
            state, error = ("cancelled", "") if b"cancel" in found else ("failed", DIED)
        about, progress, result = (
            msgspec.json.decode(found.get(name, b"{}"))
            for name in (b"about", b"progress", b"result")
        )
        return Job(int(found[b"epoch"]), state, about, progress, result, error)


def _fields(fields: Mapping[str, Any]) -> list[Any]:
    """Names and values in turn; what is no text becomes JSON."""
    return [
        part
        for name, value in fields.items()
        for part in (name, value if isinstance(value, str) else msgspec.json.encode(value))
    ]


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
