"""The data directory of an embedded server: its lock, the holder of the lock, and the socket.

The directory holds `valkey.lock` (locked while the server runs; its JSON names the holder and the
socket), `valkey.sock`, `valkey.log` and `appendonlydir/`.
"""

import contextlib
import fcntl
import json
import os
import socket
import stat
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from app.errors import DataDirectoryInUse, ServerFailed

LOCK, SOCKET, LOG = "valkey.lock", "valkey.sock", "valkey.log"
SOCKET_LIMIT = 108 if sys.platform == "linux" else 104  # bytes of sun_path, the final NUL included
POLL_SECONDS = 0.005  # between two checks of a server that is not ready


def make_directory(data_directory: Path) -> Path:
    """Create a data directory for this user only; return its absolute path."""
    directory = data_directory.resolve()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ServerFailed(f"{directory}: cannot store data there: {error.strerror}") from error
    return directory


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a data directory, as written to the lock file; parent 0 after a stop."""

    server: int
    parent: int
    since: str
    socket: str


def new_holder(server: int, directory: Path, path: Path) -> Holder:
    """Return this process as the holder, with its server and its socket."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    where = path.name if path.parent == directory else str(path)  # `directory / where` is both
    return Holder(server=server, parent=os.getpid(), since=since, socket=where)


def write_holder(lock: int, holder: Holder) -> None:
    """Write the holder to the lock file."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(asdict(holder)).encode(), 0)


def note_stop(directory: Path, server: int) -> None:
    """Write that no process restarts a server that was stopped, unless there is a new one."""
    with contextlib.suppress(OSError), (directory / LOCK).open("rb+") as lock:
        holder = read_holder(directory) if _try_lock(lock.fileno(), fcntl.LOCK_EX) else None
        if holder is not None and holder.server == server:
            write_holder(lock.fileno(), replace(holder, parent=0))


def read_holder(directory: Path) -> Holder | None:
    """Return the last holder of a directory, if there was one."""
    try:
        return Holder(**json.loads((directory / LOCK).read_bytes()))
    except (OSError, ValueError, TypeError):  # missing or partly written
        return None


def process_runs(pid: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True


@contextlib.contextmanager
def locked_directory(directory: Path, timeout: float) -> Iterator[int]:
    """Lock the directory. A server that inherits the descriptor keeps the lock afterwards.

    If the holder answers a PING, fail at once; else wait, because it may be ending. An open socket
    is no answer: a server that was just killed still has one, and the lock (seen).
    """
    lock = _open_lock(directory)
    deadline = time.monotonic() + timeout
    try:
        while not _try_lock(lock, fcntl.LOCK_EX):
            holder = read_holder(directory)
            late = time.monotonic() > deadline
            if late or (holder is not None and ping(directory / holder.socket) != b""):
                raise DataDirectoryInUse(_in_use(directory, holder))
            time.sleep(POLL_SECONDS)
        yield lock
    finally:
        os.close(lock)


def _open_lock(directory: Path) -> int:
    try:
        return os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ServerFailed(f"{directory}: cannot store data there: {error.strerror}") from error


def _try_lock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(directory: Path) -> bool:
    """Whether a server holds the directory."""
    try:
        with (directory / LOCK).open("rb") as lock:
            return not _try_lock(lock.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def _in_use(directory: Path, holder: Holder | None) -> str:
    if holder is None:
        return f"{directory}: in use by another process; stop it or choose another SOLAR_DATA_DIR"
    return (
        f"{directory}: in use since {holder.since} by process {holder.parent} "
        f"and its server, process {holder.server}; stop it or choose another SOLAR_DATA_DIR"
    )


def place_socket(directory: Path) -> Path:
    """Return the socket path: in the data directory, or in TMPDIR if that path is too long.

    A path in TMPDIR is that of the earlier server if possible: clients find the new server there.
    Its name has a hash of the data directory, because a copied directory has a copied lock file.
    """
    if _fits(directory / SOCKET):
        return directory / SOCKET
    prefix = f"solar-{sha256(os.fsencode(directory)).hexdigest()[:8]}-"
    earlier = read_holder(directory)
    path = directory / (earlier.socket if earlier else "")
    if path.parent.name.startswith(prefix) and _made_private(path.parent):
        path.unlink(missing_ok=True)  # under the lock of the directory, so no server listens there
        return path
    path = Path(tempfile.mkdtemp(prefix=prefix)) / SOCKET  # 0700
    if not _fits(path):
        path.parent.rmdir()
        raise ServerFailed(f"{path}: too long for a socket; set TMPDIR to a shorter path")
    return path


def _made_private(folder: Path) -> bool:
    """Create a directory that only this user can open; return whether it is one."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        return (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.geteuid()
            and not (found.st_mode & 0o077)
        )
    return False


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) < SOCKET_LIMIT


def remove_socket(directory: Path, path: Path) -> None:
    """Remove a socket in TMPDIR; in the data directory the next server may already use it."""
    if path.parent != directory:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def socket_url(path: Path) -> str:
    """Return the URL of a server on a socket."""
    return f"unix://{urllib.parse.quote(str(path))}"


def listens(path: Path) -> bool:
    """Whether a server listens on a socket; it may be loading its data."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def ping(path: Path, timeout: float = 1.0) -> bytes:
    """Return the answer to PING: +PONG, -LOADING while data load, or empty."""
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
        connection.settimeout(timeout)
        connection.connect(str(path))
        connection.sendall(b"PING\r\n")
        return connection.recv(64)
    return b""
