"""One training job, from its data to its record in the model's log.

The job reports its progress to the store, which also keeps its lease. Its result is appended to the
model's log as one event named after the job, so that repeated attempts append it once.
"""

import asyncio
import logging
import os
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

import msgspec

from app.config import Settings
from app.domain import codec
from app.domain.model_config import ModelConfig
from app.domain.records import Replace, Retune
from app.errors import BadBlob, BadData, Fenced, NewerFormat, NoSuchModel, SolarError, StoreError
from app.ingest.appender import now
from app.storage.cancellation import end
from app.storage.jobs import JOB_KEPT_SECONDS, Lease, record_event
from app.storage.log import APPENDED, REPEATED, AppendResult, LogEntry, NewRecord
from app.storage.store import Store
from app.training.child_process import exit_code, start_child
from app.training.options import REPLACEMENT, TASK, Training, TrainingTask

log = logging.getLogger("solar.jobs")

#: Seconds between two reports to the store, and the time that a process has to exit by itself.
REPORT_SECONDS = 0.5
#: Lower CPU priority than that of learners, which give way to workers.
TRAINING_NICE = 10
#: Log records per read.
READ_RECORDS = 256
STOPPED = "the service was stopped; start the job again"
BROKEN = "the store, the disk or the start of the process failed; start the job again"
CHANGED = "the model's settings changed during the training; start the job again"
NOT_APPENDED = "the log refused the result: another event has its id; start a new job"
DELETED = "the model was deleted"
NEWER = "upgrade the service, then start the job again"


class JobLost(Exception):
    """Another process trains this job now."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job and the directory of its data."""

    job: str
    model: str
    training: Training
    blob: bool
    directory: Path

    def about(self) -> dict[str, Any]:
        """Fields for the store."""
        return {"training": self.training, "blob": self.blob, "begun": round(time(), 3)}


class Run:
    """One running job."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        work: JobSpec,
        lease: Lease,
        epoch: int,
        config: ModelConfig,
    ) -> None:
        self._store, self._settings, self.work = store, settings, work
        self._lease, self._epoch, self._config = lease, epoch, config
        self.read: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._progress: dict[str, Any] = {}
        self._result: dict[str, Any] = {}
        self._error = ""
        self._refused: BadData | None = None

    def finish_reading(self) -> None:
        """Resolve the future `read` if the data was refused or never read."""
        if self.read.done():
            return
        if self._refused is None:
            self.read.cancel()
        else:
            self.read.set_exception(self._refused)
            self.read.exception()  # marks it as retrieved; there may be no waiter

    async def run(self) -> str:
        """Train and append the result; return the final state."""
        try:
            state = await self._outcome()
        except NoSuchModel:
            state, self._error = "failed", DELETED
        except NewerFormat as error:
            state, self._error = "failed", f"stored data was {error}; {NEWER}"
        except (OSError, SolarError) as error:
            log.warning("job %s: %s", self.work.job, type(error).__name__)
            state, self._error = "failed", BROKEN
        except asyncio.CancelledError:
            self._error = STOPPED
            with suppress(SolarError, JobLost, TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    await self._report(ends=True, state="failed", error=self._error)
            raise
        if state != "failed" or self._refused is not None:
            await asyncio.to_thread(shutil.rmtree, self.work.directory, ignore_errors=True)
        await self._report_until_stored(
            ends=True, state=state, result=self._result, error=self._error
        )
        log.info("job %s: %s", self.work.job, state, extra={"error": self._error})
        return state

    async def _outcome(self) -> str:
        """Train; return done, cancelled or failed."""
        self._config, _ = await self._latest_config()
        task = TrainingTask(
            self._config, self.work.training, self._settings.feature_bound, self.work.blob,
            self._settings.training_memory, self._settings.shards, self._settings.cluster,
        )  # fmt: skip
        path = self.work.directory / TASK
        await asyncio.to_thread(path.write_bytes, msgspec.json.encode(task))
        process, connection = await asyncio.to_thread(
            start_child, "app.training.process", str(self.work.directory), nice=TRAINING_NICE
        )
        listening = asyncio.create_task(self._listen(connection))
        cancelled = True
        try:
            cancelled = await self._wait(listening)
        finally:
            code = await asyncio.to_thread(exit_code, process, 0.0 if cancelled else REPORT_SECONDS)
            await end([listening])
        if cancelled:
            return "cancelled"
        if not self._result:
            self._error = (
                self._error
                or f"the training process ended with exit code {code}; start the job again"
            )
            return "failed"
        return await self._append_result()

    async def _wait(self, listening: "asyncio.Task[None]") -> bool:
        """Wait until the process has reported everything; return True if the job is cancelled."""
        while not listening.done():
            await asyncio.wait({listening}, timeout=min(REPORT_SECONDS, self._lease.seconds / 3))
            with suppress(StoreError):  # the store may recover
                if await self._report(progress=self._progress) == "cancel":
                    return True
        return False

    async def _listen(self, connection: socket.socket) -> None:
        """Handle the reports of the process until it closes the socket."""
        reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 20)
        try:
            while line := await reader.readline():
                self._handle(msgspec.json.decode(line))
        finally:
            writer.close()

    def _handle(self, report: dict[str, Any]) -> None:
        match report:
            case {"read": found}:
                self._progress = {**self._progress, **found}
                if not self.read.done():
                    self.read.set_result(found)
            case {"refused": why}:
                self._error = why
                if not self.read.done():
                    self._refused = BadData(why)
            case {"failed": why}:
                self._error = why
            case {"progress": progress}:
                self._progress = {**self._progress, **progress}
            case {"share": share}:
                done = max(share, self._progress.get("share_done", 0.0))
                self._progress = {**self._progress, "share_done": round(done, 4)}
            case {"done": result}:
                self._result = result

    async def _append_result(self) -> str:
        """Append the result; repeat while the store is unreachable or at its backlog limit."""
        record = await asyncio.to_thread((self.work.directory / REPLACEMENT).read_bytes)
        while await self._report_until_stored(progress=self._progress) != "cancel":
            try:
                appended = await self._append(record)
            except StoreError:  # unreachable, or at its backlog limit
                await asyncio.sleep(REPORT_SECONDS)
                continue
            if appended is None:
                self._error = CHANGED
                return "failed"
            if appended.outcome not in (APPENDED, REPEATED):
                self._error = NOT_APPENDED
                return "failed"
            if not appended.seq:  # the cancellation came first
                break
            self._result = {**self._result, "seq": appended.seq}
            return "done"
        self._result = {}
        return "cancelled"

    async def _append(self, record: bytes) -> AppendResult | None:
        """Append a record; None if the model's settings changed, in the state or in the log."""
        model = self.work.model
        config, at = await self._latest_config()
        while config == self._config:
            earlier = await self._store.jobs.record_of_0_2(model, self._epoch, self.work.job)
            if earlier is not None:
                return AppendResult(REPEATED, earlier)
            try:
                (appended,) = await self._store.log.append(
                    model, self._epoch, [NewRecord(record_event(self.work.job), b"", record)],
                    limit=self._settings.backlog, time=now(), wait=True,
                    dedupe=JOB_KEPT_SECONDS, tail=at,
                )  # fmt: skip
            except Fenced:  # another record was appended meanwhile: read it first
                await self._renew_lease()
                config, at = await self._config_after(config, at)
            else:
                return appended
        return None

    async def _latest_config(self) -> tuple[ModelConfig, int]:
        """Return the settings at the end of the log, and its last seq."""
        found = await self._store.states.load_weights(self.work.model)
        if found.epoch != self._epoch:
            raise NoSuchModel(f"model {self.work.model}: deleted and created again")
        return await self._config_after(found.config, found.seq)

    async def _config_after(self, config: ModelConfig, at: int) -> tuple[ModelConfig, int]:
        """Return the settings after the records that follow seq `at`, and the last seq."""
        while entries := await self._store.log.read(self.work.model, at, READ_RECORDS):
            for entry in entries:
                config = _config_after(config, entry)
            at = entries[-1].seq
        return config, at

    async def _renew_lease(self) -> None:
        with suppress(StoreError):
            await self._report(progress=self._progress)

    async def _report_until_stored(self, **fields: Any) -> str:
        """Report to the store; repeat while it is unreachable."""
        while True:
            try:
                return await self._report(**fields)
            except StoreError:
                await asyncio.sleep(REPORT_SECONDS)

    async def _report(self, **fields: Any) -> str:
        """Report to the store and renew the lease; return its answer."""
        answer = await self._store.jobs.report(self._lease, **fields)
        if answer == "lost":
            raise JobLost
        with suppress(OSError):
            os.utime(self.work.directory)
        return answer


def _config_after(config: ModelConfig, entry: LogEntry) -> ModelConfig:
    """Return the settings after a record."""
    codec.refuse_newer(entry.record)
    if entry.replaces or codec.kind_is(entry.record, "retune"):
        with suppress(BadBlob):  # the learner will count it as rejected
            record = codec.load_record(entry.record)
            if isinstance(record, Replace):
                return record.model.config
            if isinstance(record, Retune):
                return record.retuned(config)
    return config
