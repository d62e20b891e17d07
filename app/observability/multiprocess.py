"""The shared metrics directory of a service's processes: names, readiness and status of each.

prometheus-client reads `PROMETHEUS_MULTIPROC_DIR` once, at import. So this module does not import
it, and `choose_directory` runs before the first import. Each process holds a shared lock on its
directory. A directory without a lock is a leftover (of kill -9), and the next start removes it.
Earlier releases took no lock: see `_is_unlocked_leftover`.
"""

import fcntl
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from time import time
from typing import NamedTuple

from app.errors import SolarError

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
#: The name of a process, set by its parent.
PROCESS = "SOLAR_DEV_PROCESS"
_STATUS = "status.json"
_PREFIX = "solar-metrics-"
_NAME = re.compile(rf"{_PREFIX}\d+-\w+")
_UNLOCKED_NAME = re.compile(rf"{_PREFIX}\w{{8}}")  # of a release without locks
_UNLOCKED_SECONDS = 86_400.0
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
        with suppress(OSError):  # locked, or already removed
            if _NAME.fullmatch(path.name) or _is_unlocked_leftover(path):
                _remove_unless_locked(path)


def _is_unlocked_leftover(path: Path) -> bool:
    """Whether a directory is of a release without locks, a day old, and its processes have ended.

    The names of its files end with the ids of its processes.
    """
    if not _UNLOCKED_NAME.fullmatch(path.name):
        return False
    files = list(path.iterdir())
    changed = max(one.lstat().st_mtime for one in (path, *files))
    pids = (one.stem.rpartition("_")[2] for one in files)
    return time() - changed > _UNLOCKED_SECONDS and not any(map(is_running, pids))


def is_running(pid: str) -> bool:
    """Whether a process runs; False if `pid` is no number."""
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:  # of another user
        pass
    return True


def remove_ended_gauges(directory: str) -> None:
    """Remove the gauges of processes that have ended; their counters stay."""
    for file in Path(directory).glob("gauge_live*.db"):
        if not is_running(file.stem.rpartition("_")[2]):
            file.unlink(missing_ok=True)


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


def ready_file(environ: Mapping[str, str]) -> Path | None:
    """Return the file of a process that reports readiness; None without a directory or a name."""
    directory, name = environ.get(DIRECTORY), environ.get(PROCESS)
    return Path(directory) / f"{name}.ready" if directory and name else None


def report_ready() -> None:
    """Report to the parent that this process has started completely."""
    if file := ready_file(os.environ):
        with suppress(OSError):  # a full disk does not end a process
            file.touch()


class ProcessStatus(NamedTuple):
    """Whether a process is up, and how often it was restarted."""

    up: bool
    restarts: int


class StatusFile:
    """The status of the processes that this process restarts, for all processes to read."""

    def __init__(self, directory: str) -> None:
        self._path, self._written = Path(directory) / _STATUS, dict[str, ProcessStatus]()

    def write(self, status: dict[str, ProcessStatus]) -> None:
        """Write the status of each process by name, if it has changed."""
        if status == self._written:
            return
        new = self._path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):  # a full disk does not end a service
            new.write_text(json.dumps(status))
            new.replace(self._path)  # readers see a complete file
            self._written = status


def read_status(directory: str = "") -> dict[str, ProcessStatus]:
    """Return the status of each process by name, from a directory or the shared one."""
    directory = directory or os.environ.get(DIRECTORY, "")
    try:
        found = json.loads((Path(directory) / _STATUS).read_bytes()) if directory else {}
    except OSError:  # no process watches others
        return {}
    return {name: ProcessStatus(*one) for name, one in found.items()}


def all_processes(directory: str = "") -> dict[str, ProcessStatus]:
    """Return the status of each process by name, also of those that no process restarts."""
    shared = os.environ.get(DIRECTORY, "")
    named = named_processes(shared) if shared else ("worker",)
    return {name: ProcessStatus(up=True, restarts=0) for name in named} | read_status(directory)


def processes_down(directory: str = "") -> list[str]:
    """Return the names of the processes that are down, from a directory or the shared one."""
    return [name for name, status in read_status(directory).items() if not status.up]


def _started(pid: int) -> str:
    """Return the start time in ticks since boot; with the pid it identifies a process (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
