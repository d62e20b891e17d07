"""Where the processes of a service add up their metrics, and what each of them is called.

prometheus-client reads `PROMETHEUS_MULTIPROC_DIR` once, when it is imported. So this module does
not import it, and `choose_directory` is called before anybody does. Who uses a directory holds a
lock on it: one that nobody holds was left behind (kill -9), and the next start removes it.
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
#: What a process is called, set by whoever starts it.
PROCESS = "SOLAR_DEV_PROCESS"
_PREFIX = "solar-metrics-"
_OURS = re.compile(rf"{_PREFIX}\d+-\w+")
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

#: Directory → the descriptor that holds it, for as long as this process lives.
_held: dict[str, int] = {}


def choose_directory() -> None:
    """Let the workers of `uvicorn --workers` share a directory; touches no file.

    Their parent gave each of them the same random key, so its hash names one start of one service,
    and nobody else can guess it.
    """
    parent = multiprocessing.parent_process()
    if parent is None or DIRECTORY in os.environ or "prometheus_client" in sys.modules:
        return
    start = sha256(multiprocessing.current_process().authkey).hexdigest()[:16]
    folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  # gettempdir() writes a file to try
    os.environ[DIRECTORY] = str(Path(folder) / f"{_PREFIX}{parent.pid}-{start}")


def prepare_directory() -> None:
    """Make the directory that was chosen, hold it, and remove those that nobody holds."""
    chosen = os.environ.get(DIRECTORY, "")
    if not _OURS.fullmatch(Path(chosen).name) or chosen in _held:
        return
    _held[chosen] = _hold(chosen)
    remove_abandoned(Path(chosen).parent)


@contextmanager
def new_directory() -> Iterator[str]:
    """A directory for the processes that this one starts, removed in the end."""
    prefix = f"{_PREFIX}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as made:
        holding = _hold(made)
        try:
            remove_abandoned(Path(made).parent)
            yield made
        finally:
            os.close(holding)


def _hold(directory: str) -> int:
    """A descriptor with a lock that others can share; SolarError if the directory is not ours."""
    while True:
        try:
            Path(directory).mkdir(mode=0o700, exist_ok=True)
            holding = os.open(directory, _FLAGS)
        except OSError as error:
            raise SolarError(f"{directory}: cannot keep metrics there: {error.strerror}") from None
        found = os.fstat(holding)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            os.close(holding)
            raise SolarError(f"{directory}: expected a folder that only this user can open")
        fcntl.flock(holding, fcntl.LOCK_SH)
        with suppress(OSError):
            if os.path.samestat(found, os.stat(directory)):  # noqa: PTH116  # as fstat
                return holding
        os.close(holding)  # somebody removed it before we held it


def remove_abandoned(folder: Path) -> None:
    """Remove the directories of services that have ended without doing so."""
    for path in folder.glob(f"{_PREFIX}*"):
        if _OURS.fullmatch(path.name):
            with suppress(OSError):  # held, or gone meanwhile
                _remove_unless_held(path)


def _remove_unless_held(path: Path) -> None:
    trying = os.open(path, _FLAGS)
    try:
        if os.fstat(trying).st_uid == os.geteuid():
            fcntl.flock(trying, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
    finally:
        os.close(trying)


def name_process(directory: str, role: str) -> None:
    """Note what this process is called: as it was told, or its role and the next free number."""
    with (Path(directory) / "names.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        taken = named_processes(directory)
        if os.getpid() in taken.values():
            return
        free = next(name for number in count() if (name := f"{role} {number}") not in taken)
        note = Path(directory) / f"{os.environ.get(PROCESS) or free}.process"
        note.write_text(f"{os.getpid()} {_started(os.getpid())}")


def named_processes(directory: str) -> dict[str, int]:
    """The processes that live, by name."""
    found = {}
    for note in sorted(Path(directory).glob("*.process")):
        pid, _, started = note.read_text().partition(" ")
        if started and started == _started(int(pid)):
            found[note.stem] = int(pid)
    return found


def _started(pid: int) -> str:
    """When a process started, in ticks since boot: with its pid its identity; Linux only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
