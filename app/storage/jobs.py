"""Training jobs in Redis: their state, progress and result, and the lease of the trainer.

One job at a time trains a model. The training process holds a lease and renews it with every
report. A job whose lease has expired has failed and may start again. The result enters the model's
log as one event, so it is applied once, whatever happens to the lease.
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
#: Seconds that a job is kept after its last report.
JOB_KEPT_SECONDS = 7 * 86_400.0
#: Answers of the scripts by return code.
_REPORTED: tuple[Reported, ...] = ("kept", "lost", "cancel")
_CANCELLED: tuple[Cancelled, ...] = ("cancelled", "unknown", "ended")
DIED = "the training process died; start the job again"


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a training process; `trains` is its name, `seconds` the time to live."""

    model: str
    job: str
    seconds: float
    trains: str = field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True, slots=True)
class Job:
    """A job as stored."""

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
        """Start a job, also a second time; False if another job trains the model."""
        keys = keys_of(lease.model)
        values = [epoch, lease.trains, _ms(lease.seconds), _ms(JOB_KEPT_SECONDS)]
        fields = {"state": "running", "trains": lease.trains, "about": about}
        code = await self._calls.script(
            "job_begin",
            [keys.state, keys.job(lease.job), keys.training, keys.trained],
            [*values, *_fields(fields)],
        )
        if code == 1:
            raise NoSuchModel(f"model {lease.model}: no model of this name")
        return int(code) == 0

    async def report(self, lease: Lease, *, ends: bool = False, **fields: Any) -> Reported:
        """Store a job's progress and renew its lease; the answer tells whether to continue."""
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
        """Ask the training process to stop."""
        keys = keys_of(model)
        code = await self._calls.script(
            "job_cancel", [keys.job(job), keys.training], ["running", "cancelled"]
        )
        return _CANCELLED[int(code)]

    async def read(self, model: str, job: str) -> Job | None:
        """Return a job, or None.

        A job whose training process died has failed, or is cancelled if that was requested.
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
    """Return names and values in turn; values other than text become JSON."""
    return [
        part
        for name, value in fields.items()
        for part in (name, value if isinstance(value, str) else msgspec.json.encode(value))
    ]


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
