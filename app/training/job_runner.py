"""Training jobs of this worker; each runs in a separate process."""

import asyncio
import logging
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any

from app.config import Settings
from app.domain.facts import Trained
from app.storage.cancellation import end
from app.storage.jobs import Lease
from app.storage.store import Store
from app.training.job import JobLost, JobSpec, Run

log = logging.getLogger("solar.jobs")

#: Seconds that unused uploads are kept, so that a failed job can be started again.
UPLOAD_KEPT_SECONDS = 86_400.0
#: Name of a job's directory.
_JOB_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

ReportTrained = Callable[[Trained], None]


class JobRunner:
    """Starts and supervises the jobs of this process."""

    def __init__(self, store: Store, settings: Settings, report: ReportTrained) -> None:
        self._store, self._settings, self._report = store, settings, report
        self._root = settings.uploads
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._beginning = 0

    def has_room(self) -> bool:
        """Check whether one more job may start (SOLAR_JOBS)."""
        return len(self._runs) + self._beginning < self._settings.jobs

    def trains(self, job: str) -> bool:
        """Check whether this process runs a job."""
        return any(task.get_name() == job for task in self._runs.values())

    def directory(self, job: str) -> Path:
        """Directory of a job's data."""
        return self._root / job

    async def prepare(self, job: str) -> Path:
        """Create a directory for a job's data; remove expired ones."""
        return await asyncio.to_thread(self._prepare, self.directory(job))

    def _prepare(self, directory: Path) -> Path:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in self._root.iterdir():
            with suppress(OSError):
                if (
                    _JOB_NAME.fullmatch(old.name)
                    and old.stat().st_mtime < time() - UPLOAD_KEPT_SECONDS
                ):
                    shutil.rmtree(old)
        directory.mkdir(mode=0o700)
        return directory

    async def begin(self, work: JobSpec) -> "asyncio.Future[dict[str, Any]] | None":
        """Start a job; return a future of the data's size, or None if another job trains the model.

        The future fails with BadData if the data is invalid.
        """
        self._beginning += 1  # reserves its slot
        try:
            found = await self._store.states.load_weights(work.model)
            lease = Lease(work.model, work.job, self._settings.lease)
            if not await self._store.jobs.begin(lease, found.epoch, work.about()):
                return None
            run = Run(self._store, self._settings, work, lease, found.epoch, found.config)
            task = asyncio.create_task(self._watch(run, lease.trains), name=work.job)
            self._runs[lease.trains] = task
            return run.read
        finally:
            self._beginning -= 1

    async def _watch(self, run: Run, trains: str) -> None:
        try:
            outcome = await run.run()
            self._report(Trained(run.work.model, outcome))
        except JobLost:
            log.warning("job %s: lease lost, another process trains it now", run.work.job)
        finally:
            self._runs.pop(trains, None)
            run.finish_reading()

    async def close(self) -> None:
        """Stop all jobs; they can be started again."""
        await end(list(self._runs.values()))
