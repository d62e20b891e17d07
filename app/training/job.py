"""One job, from its data to its record in a model's log: starts the training, watches it.

How far it is goes to the store, which also keeps the job's lease; what was found enters the model's
log as one event of the job's name, so that it does so once, however often it is tried.
"""

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

import msgspec

from app.config import Settings
from app.domain import codec
from app.domain.model_config import ModelConfig
from app.domain.records import Replace
from app.errors import BadData, Fenced, NoSuchModel, SolarError, StoreError
from app.ingest.appender import now
from app.storage.cancellation import end
from app.storage.embedded.server import tied
from app.storage.jobs import JOB_KEPT_SECONDS, Lease
from app.storage.log import AppendResult, LogEntry, NewRecord
from app.storage.store import Store
from app.training.options import REPLACEMENT, TASK, Training, TrainingTask

log = logging.getLogger("solar.jobs")

#: Seconds between two words to the store about a job, and that a process gets to end by itself.
BEAT = 0.5
#: Records that are looked at together.
TOGETHER = 256
STOPPED = "the service was stopped; start the job again"
BROKEN = "the work cannot be done here now; start the job again"
CHANGED = "the model got other settings meanwhile; start the job again"
#: One thread each: the other cores are for those who serve.
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class JobLost(Exception):
    """Somebody else trains this job now."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job to be done, and where its data is."""

    job: str
    model: str
    training: Training
    blob: bool
    directory: Path

    def about(self) -> dict[str, Any]:
        """What the store keeps of it."""
        return {"training": self.training, "blob": self.blob, "begun": round(time(), 3)}


class Run:
    """One job on its way."""

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

    def tell_reader(self) -> None:
        """Whoever still waits for the data to be read hears that it was refused, or not read."""
        if self.read.done():
            return
        if self._refused is None:
            self.read.cancel()
        else:
            self.read.set_exception(self._refused)
            self.read.exception()  # it may be that nobody waits

    async def run(self) -> str:
        """Train and put the result in place; how it ended."""
        try:
            state = await self._outcome()
        except NoSuchModel:
            state, self._error = "failed", "the model is gone"
        except (OSError, SolarError) as error:
            log.warning("job %s: %s", self.work.job, type(error).__name__)
            state, self._error = "failed", BROKEN
        except asyncio.CancelledError:
            self._error = STOPPED
            with suppress(SolarError, JobLost, TimeoutError):
                async with asyncio.timeout(BEAT):
                    await self._say(ends=True, state="failed", error=self._error)
            raise
        if state != "failed" or self._refused is not None:
            await asyncio.to_thread(shutil.rmtree, self.work.directory, ignore_errors=True)
        await self._insist(ends=True, state=state, result=self._result, error=self._error)
        log.info("job %s: %s", self.work.job, state, extra={"error": self._error})
        return state

    async def _outcome(self) -> str:
        """Train; whether that was done, cancelled, or failed."""
        task = TrainingTask(
            self._config, self.work.training, self._settings.feature_bound, self.work.blob,
            self._settings.training_memory,
        )  # fmt: skip
        path = self.work.directory / TASK
        await asyncio.to_thread(path.write_bytes, msgspec.json.encode(task))
        process, heard = await asyncio.to_thread(_start_process, self.work.directory)
        listening = asyncio.create_task(self._listen(heard))
        cancelled = True
        try:
            cancelled = await self._wait(listening)
        finally:
            code = await asyncio.to_thread(_ended, process, 0.0 if cancelled else BEAT)
            await end([listening])
        if cancelled:
            return "cancelled"
        if not self._result:
            self._error = self._error or f"the process that trained ended with {code}"
            return "failed"
        return await self._put_in_place()

    async def _wait(self, listening: "asyncio.Task[None]") -> bool:
        """Until the process has said all; whether it is to be stopped before."""
        while not listening.done():
            await asyncio.wait({listening}, timeout=min(BEAT, self._lease.seconds / 3))
            with suppress(StoreError):  # it may come back
                if await self._say(progress=self._progress) == "cancel":
                    return True
        return False

    async def _listen(self, heard: socket.socket) -> None:
        """Take what the process says, until it has nothing more to say."""
        reader, writer = await asyncio.open_connection(sock=heard, limit=1 << 20)
        try:
            while line := await reader.readline():
                self._take(msgspec.json.decode(line))
        finally:
            writer.close()

    def _take(self, word: dict[str, Any]) -> None:
        match word:
            case {"read": found}:
                self._progress = found
                if not self.read.done():
                    self.read.set_result(found)
            case {"refused": why}:
                self._error = why
                if not self.read.done():
                    self._refused = BadData(why)
            case {"progress": progress}:
                self._progress = {**self._progress, **progress}
            case {"done": result}:
                self._result = result

    async def _put_in_place(self) -> str:
        """Append what was found; tried again while the store cannot."""
        record = await asyncio.to_thread((self.work.directory / REPLACEMENT).read_bytes)
        if await self._insist(state="finishing", progress=self._progress) == "cancel":
            return "cancelled"
        while True:
            try:
                appended = await self._append(record)
            except StoreError:
                await asyncio.sleep(BEAT)
                await self._keep()
            else:
                if appended is None:
                    self._error = CHANGED
                    return "failed"
                self._result = {**self._result, "seq": appended.seq}
                return "done"

    async def _append(self, record: bytes) -> AppendResult | None:
        """Append a record; None if the model has other settings by then, learnt or not."""
        model = self.work.model
        found = await self._store.states.load_weights(model)
        if found.epoch != self._epoch:
            raise NoSuchModel(f"model {model}: it was made anew")
        if found.config != self._config:
            return None
        at = found.seq
        while True:
            while entries := await self._store.log.read(model, at, TOGETHER):
                if any(map(self._changes_config, entries)):
                    return None
                at = entries[-1].seq
            try:
                (appended,) = await self._store.log.append(
                    model, self._epoch, [NewRecord(f"job-{self.work.job}", b"", record)],
                    limit=self._settings.backlog, time=now(), wait=True,
                    dedupe=JOB_KEPT_SECONDS, tail=at,
                )  # fmt: skip
            except Fenced:  # feedback came in between, or something else: look again
                await self._keep()
            else:
                return appended

    def _changes_config(self, entry: LogEntry) -> bool:
        if not entry.replaces:
            return codec.kind_is(entry.record, "retune")
        replaced = codec.load_record(entry.record)
        return isinstance(replaced, Replace) and replaced.model.config != self._config

    async def _keep(self) -> None:
        with suppress(StoreError):
            await self._say(state="finishing")

    async def _insist(self, **fields: Any) -> str:
        """Say it, and again while the store cannot be reached."""
        while True:
            try:
                return await self._say(**fields)
            except StoreError:
                await asyncio.sleep(BEAT)

    async def _say(self, **fields: Any) -> str:
        said = await self._store.jobs.report(self._lease, **fields)
        if said == "lost":
            raise JobLost
        with suppress(OSError):
            os.utime(self.work.directory)
        return said


def _start_process(directory: Path) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """A process that trains, and where it says how it goes.

    Not a pipe: uvloop closes the descriptor of one twice, by then perhaps that of another file.
    """
    heard, said = socket.socketpair()
    number = said.fileno()
    python = [sys.executable, "-P", "-m"]  # -P: import no `app` from the working directory
    command = [*python, "app.training.process", str(number), str(directory)]
    with said:
        try:
            process = tied(command, environ={**os.environ, **THREADS}, inherited=(number,))
        except OSError:
            heard.close()
            raise
    return process, heard


def _ended(process: "subprocess.Popen[bytes]", patience: float) -> int:
    """How a process ended, by itself if it does so soon."""
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    return process.wait()
