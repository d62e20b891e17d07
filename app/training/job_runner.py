"""Jobs that train a model, each in a process of its own, and who does them: this process."""

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

#: Uploads that nobody trains from any more are kept so long, for a job to be started again.
UPLOAD_KEPT_SECONDS = 86_400.0
#: The name of a job's directory.
_OURS = re.compile(r"[A-Za-z0-9_-]{1,64}\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

TellTrained = Callable[[Trained], None]


class JobRunner:
    """All jobs that this process watches."""

    def __init__(self, store: Store, settings: Settings, tell: TellTrained) -> None:
        self._store, self._settings, self._tell = store, settings, tell
        self._root = settings.uploads
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._beginning = 0

    def has_room(self) -> bool:
        """Whether one more may train."""
        return len(self._runs) + self._beginning < self._settings.jobs

    def trains(self, job: str) -> bool:
        """Whether a job is being done here."""
        return any(task.get_name() == job for task in self._runs.values())

    def directory(self, job: str) -> Path:
        """Where a job's data is, or would be."""
        return self._root / job

    async def prepare(self, job: str) -> Path:
        """A new directory for a job's data; old ones that nobody came back for go."""
        return await asyncio.to_thread(self._prepare, self.directory(job))

    def _prepare(self, directory: Path) -> Path:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in self._root.iterdir():
            with suppress(OSError):
                if _OURS.fullmatch(old.name) and old.stat().st_mtime < time() - UPLOAD_KEPT_SECONDS:
                    shutil.rmtree(old)
        directory.mkdir(mode=0o700)
        return directory

    async def begin(self, work: JobSpec) -> "asyncio.Future[dict[str, Any]] | None":
        """Begin a job; a future of what was read, or None if another trains the model.

        The future fails with BadData if the data is not what it should be.
        """
        self._beginning += 1  # its room is taken from here on
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
            self._tell(Trained(run.work.model, outcome))
        except JobLost:
            log.warning("job %s: another process trains it now", run.work.job)
        finally:
            self._runs.pop(trains, None)
            run.tell_reader()

    async def close(self) -> None:
        """Stop all trainings; their jobs can be started again."""
        await end(list(self._runs.values()))
