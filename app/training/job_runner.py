"""Training jobs of this worker; each runs in a separate process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from app.config import Settings
from app.domain.facts import Trained
from app.errors import NoSlot
from app.storage.cancellation import end
from app.storage.jobs import Lease
from app.storage.store import Store
from app.training.job import JobLost, JobSpec, Run
from app.training.job_files import JobFiles, sweep

log = logging.getLogger("solar.jobs")

ReportTrained = Callable[[Trained], None]


@dataclass(eq=False, slots=True)
class Claim:
    """A slot for a job and its locked files; a run keeps both until it ends."""

    files: JobFiles
    running: bool = False


class JobRunner:
    """Starts and supervises the jobs of this process."""

    def __init__(self, store: Store, settings: Settings, report: ReportTrained) -> None:
        self._store, self._settings, self._report = store, settings, report
        self._root = settings.uploads
        self._runs: set[asyncio.Task[None]] = set()
        self._slots_taken = 0

    async def sweep(self) -> None:
        """Remove the uploads of dead processes, and old data."""
        await asyncio.to_thread(sweep, self._root)

    def directory(self, job: str) -> Path:
        """Directory of a job's data."""
        return self._root / job

    def new(self, job: str) -> AbstractAsyncContextManager[Claim]:
        """Reserve a slot and a directory for a new job; both are freed unless the job begins."""
        return self._claimed(partial(self._created, job), JobFiles.remove)

    def again(self, job: str) -> AbstractAsyncContextManager[Claim]:
        """Reserve a slot for a job that has data here; the data remains."""
        return self._claimed(partial(JobFiles.open, self._root, job), JobFiles.close)

    def _created(self, job: str) -> JobFiles:
        sweep(self._root)
        return JobFiles.create(self._root, job)

    async def discard(self, job: str) -> None:
        """Remove the data of a cancelled job, which its worker may have left."""
        with suppress(OSError):  # the data is on another machine, or gone
            files = await asyncio.to_thread(JobFiles.open, self._root, job)
            await asyncio.to_thread(files.remove)

    @asynccontextmanager
    async def _claimed(
        self, files: Callable[[], JobFiles], leave: Callable[[JobFiles], None]
    ) -> AsyncIterator[Claim]:
        """Claim a slot, NoSlot if none is free, then the files; `leave` them without a run."""
        if self._slots_taken >= self._settings.jobs:
            raise NoSlot("the limit of uploads and training jobs is reached (SOLAR_JOBS)")
        self._slots_taken += 1
        claim = None
        try:
            claim = Claim(await asyncio.to_thread(files))
            yield claim
        finally:
            if claim is None or not claim.running:
                try:
                    if claim is not None:
                        await asyncio.to_thread(leave, claim.files)
                finally:
                    self._slots_taken -= 1

    async def begin(self, work: JobSpec, claim: Claim) -> "asyncio.Future[dict[str, Any]] | None":
        """Start a job; return a future of the data's size, or None if another job trains the model.

        The future fails with BadData if the data is invalid.
        """
        found = await self._store.states.load_weights(work.model)
        lease = Lease(work.model, work.job, self._settings.lease)
        if not await self._store.jobs.begin(lease, found.epoch, work.about()):
            return None
        run = Run(self._store, self._settings, work, lease, found.epoch, found.config)
        self._runs.add(asyncio.create_task(self._watch(run, claim), name=work.job))
        claim.running = True
        return run.read

    async def _watch(self, run: Run, claim: Claim) -> None:
        try:
            outcome = await run.run()
            self._report(Trained(run.work.model, outcome))
        except JobLost:
            log.warning("job %s: lease lost, another process trains it now", run.work.job)
        finally:
            claim.files.close()
            self._slots_taken -= 1
            self._runs.discard(asyncio.current_task())
            run.finish_reading()

    async def close(self) -> None:
        """Stop all jobs; they can be started again."""
        await end(list(self._runs))
