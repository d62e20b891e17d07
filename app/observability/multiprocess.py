"""The shared metrics directory of a service's processes, and the names of the processes.

prometheus-client reads `PROMETHEUS_MULTIPROC_DIR` once, at import. So this module does not import
it, and `choose_directory` runs before the first import. Each process holds a shared lock on its
directory. A directory without a lock is a leftover (of kill -9), and the next start removes it.
"""

import fcntl
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path

from app.errors import SolarError

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
#: The name of a process, set by its parent.
PROCESS = "SOLAR_DEV_PROCESS"
_PREFIX = "solar-metrics-"
_NAME = re.compile(rf"{_PREFIX}\d+-\w+")
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

#: Locked directory → its file descriptor, open until the process ends.
_locked: dict[str, int] = {}


def choose_directory() -> None:
    """Choose one directory for all workers of `uvicorn --workers`; touch no file.

    The parent process gives all workers the same random key. Its hash names one start of one
    service and cannot be guessed.
    """
    parent = multiprocessing.parent_process()
    if parent is None or DIRECTORY in os.environ or "prometheus_client" in sys.modules:
        return
    start = sha256(multiprocessing.current_process().authkey).hexdigest()[:16]
    folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  # gettempdir() writes a test file
    os.environ[DIRECTORY] = str(Path(folder) / f"{_PREFIX}{parent.pid}-{start}")


def prepare_directory() -> None:
    """Create and lock the chosen directory, and remove leftover directories."""
    chosen = os.environ.get(DIRECTORY, "")
    if not _NAME.fullmatch(Path(chosen).name) or chosen in _locked:
        return
    _locked[chosen] = _lock(chosen)
    remove_abandoned(Path(chosen).parent)


@contextmanager
def new_directory() -> Iterator[str]:
    """Provide a directory for the children of this process, and remove it at the end."""
    prefix = f"{_PREFIX}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as made:
        descriptor = _lock(made)
        try:
            remove_abandoned(Path(made).parent)
            yield made
        finally:
            os.close(descriptor)


def _lock(directory: str) -> int:
    """Create a directory and take a shared lock; SolarError unless only this user can open it."""
    while True:
        try:
            Path(directory).mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(directory, _FLAGS)
        except OSError as error:
            raise SolarError(f"{directory}: cannot store metrics there: {error.strerror}") from None
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            os.close(descriptor)
            raise SolarError(f"{directory}: expected a directory that only this user can open")
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with suppress(OSError):
            if os.path.samestat(found, os.stat(directory)):  # noqa: PTH116  # as fstat
                return descriptor
        os.close(descriptor)  # removed by another process before the lock


def remove_abandoned(folder: Path) -> None:
    """Remove the leftover directories of services that were killed."""
    for path in folder.glob(f"{_PREFIX}*"):
        if _NAME.fullmatch(path.name):
            with suppress(OSError):  # locked, or already removed
                _remove_unless_locked(path)


def _remove_unless_locked(path: Path) -> None:
    descriptor = os.open(path, _FLAGS)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
    finally:
        os.close(descriptor)


def name_process(directory: str, role: str) -> None:
    """Write the name of this process: as set by its parent, or its role and the next number."""
    with (Path(directory) / "names.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        taken = named_processes(directory)
        if os.getpid() in taken.values():
            return
        free = next(name for number in count() if (name := f"{role} {number}") not in taken)
        note = Path(directory) / f"{os.environ.get(PROCESS) or free}.process"
        note.write_text(f"{os.getpid()} {_started(os.getpid())}")


def named_processes(directory: str) -> dict[str, int]:
    """Return the pids of running processes by name."""
    found = {}
    for note in sorted(Path(directory).glob("*.process")):
        pid, _, started = note.read_text().partition(" ")
        if started and started == _started(int(pid)):
            found[note.stem] = int(pid)
    return found


def _started(pid: int) -> str:
    """Return the start time in ticks since boot; with the pid it identifies a process (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
