"""Directories of jobs on disk. A process locks a directory while it uses it.

The kernel releases the lock (flock) with its process, also after SIGKILL. A process that starts
thus recognises the uploads of dead processes, also of another container that shares the volume.
"""

import fcntl
import logging
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from time import time

from app.training.options import JOB_LOCK, TASK, UPLOAD

log = logging.getLogger("solar.jobs")

#: Seconds that the data of a failed job is kept, so that the job can be started again.
UPLOAD_KEPT_SECONDS = 86_400.0
#: Name of a job's directory; others in the directory of uploads are not touched.
_JOB_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class JobFiles:
    """A job's directory, locked by this process."""

    def __init__(self, directory: Path, lock: int) -> None:
        self.directory, self._lock = directory, lock

    @classmethod
    def create(cls, root: Path, job: str) -> "JobFiles":
        """Create and lock the directory of a new job."""
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = root / job
        directory.mkdir(mode=0o700)
        unnamed = directory / f"{JOB_LOCK}.new"
        lock = os.open(unnamed, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _share(lock)
            unnamed.rename(directory / JOB_LOCK)  # a sweep sees the file only once it is locked
        except BaseException:
            os.close(lock)
            raise
        return cls(directory, lock)

    @classmethod
    def open(cls, root: Path, job: str) -> "JobFiles":
        """Lock the directory of a job that has data; FileNotFoundError if there is none."""
        directory = root / job
        directory.joinpath(UPLOAD).stat()
        lock = os.open(directory / JOB_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _share(lock)
            directory.joinpath(UPLOAD).stat()  # a sweep may have removed it meanwhile
        except BaseException:
            os.close(lock)
            raise
        return cls(directory, lock)

    def remove(self) -> None:
        """Remove the directory and release the lock."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Release the lock; the data remains."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _share(lock: int) -> None:
    """Lock, shared: a paused process that lost its job may hold the lock too."""
    with suppress(OSError):  # a file system without flock: old data only is swept there
        fcntl.flock(lock, fcntl.LOCK_SH)


def sweep(root: Path) -> None:
    """Remove what no process uses: uploads that no job has read, and old data of failed jobs."""
    try:
        found = [one for one in root.iterdir() if _JOB_NAME.fullmatch(one.name)]
    except OSError:  # there is none yet, or uploads are refused with the reason
        return
    for directory in found:
        with suppress(OSError):
            _sweep(directory)


def _sweep(directory: Path) -> None:
    expired = directory.stat().st_mtime < time() - UPLOAD_KEPT_SECONDS
    try:
        lock = os.open(directory / JOB_LOCK, os.O_RDWR)
    except FileNotFoundError:  # just created, or of an earlier version
        if expired:
            shutil.rmtree(directory)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it is in use
        orphaned = not (directory / TASK).exists()
        if orphaned or expired:
            # First: a sweep that is killed after it removed JOB_LOCK would leave it for a day.
            (directory / UPLOAD).unlink(missing_ok=True)
            shutil.rmtree(directory)
            log.info("removed the upload of %s", directory.name, extra={"expired": expired})
    finally:
        os.close(lock)
