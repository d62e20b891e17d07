"""The last warnings and errors of each process of a service, for `GET /status`.

A process with a shared metrics directory writes them to a file there, in rows of a fixed size, so
that a line costs one small write and any worker can read those of all processes. A process that is
restarted continues its file. The rows have no more than the log: time, level, logger, message, and
the request that a line is about.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from app.observability.multiprocess import DIRECTORY, PROCESS

#: Lines that a process keeps, and that are read; bytes of a row.
MOST_ERRORS, ERROR_ROW_BYTES = 20, 1024
#: Characters of a message, of one whose row is too long, and of a name. In JSON a character has up
#: to 12 bytes.
_MESSAGE, _SHORT_MESSAGE, _NAME = 400, 60, 40
_SUFFIX = ".errors"
#: Fields of a line about a request that follow its message.
_ABOUT = ("method", "route", "status", "cause", "request_id")


class LoggedError(NamedTuple):
    """A line of the log: the time in seconds since 1970, and the name of its process."""

    time: float
    level: str
    process: str
    logger: str
    message: str


class RecentErrors(logging.Handler):
    """Keeps the last warnings and errors: in a file of `directory`, or in memory without one."""

    def __init__(self, directory: str = "", role: str = "worker") -> None:
        super().__init__(logging.WARNING)
        name = os.environ.get(PROCESS)
        self._process = (name or role)[:_NAME]
        file = f"{name or f'{role} {os.getpid()}'}{_SUFFIX}"
        self._path = Path(directory) / file if directory else None
        self._rows, self._next = [b""] * MOST_ERRORS, 0
        if self._path is not None:
            self._continue(self._path)

    def _continue(self, path: Path) -> None:
        """Go on after the newest row of an earlier process of this name."""
        self._rows = _rows_of(path)
        times = [one.time if (one := _decoded(row)) else 0.0 for row in self._rows]
        self._next = times.index(min(times))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        try:
            row = _encoded(record, self._process)
        except Exception:  # noqa: BLE001  # a message that does not fit its arguments
            self.handleError(record)
            return
        at, self._next = self._next, (self._next + 1) % MOST_ERRORS
        self._rows[at] = row
        if self._path is not None:
            with suppress(OSError):  # a full disk, or a directory that was removed
                _write(self._path, at, row)

    def read(self, *directories: str) -> list[LoggedError]:
        """Return the last lines of this process, and of those with files there, newest first."""
        rows = [*self._rows]
        for directory in filter(None, directories):
            for path in Path(directory).glob(f"*{_SUFFIX}"):
                rows += _rows_of(path) if path != self._path else []
        found = [one for row in rows if (one := _decoded(row))]
        return sorted(found, reverse=True)[:MOST_ERRORS]


def log_message(record: logging.LogRecord) -> str:
    """Return the message; for asyncio its first line, because the others may hold values."""
    message = record.getMessage().strip()
    return message.partition("\n")[0] if record.name == "asyncio" else message


def _described(record: logging.LogRecord) -> str:
    """Return the message with the request that it is about, if any."""
    about = [str(getattr(record, name)) for name in _ABOUT if hasattr(record, name)]
    return ": ".join([log_message(record), *([" ".join(about)] if about else [])])


def _write(path: Path, at: int, row: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, row.ljust(ERROR_ROW_BYTES), at * ERROR_ROW_BYTES)
    finally:
        os.close(descriptor)


def _rows_of(path: Path) -> list[bytes]:
    found = b""
    with suppress(OSError):  # there is none yet
        found = path.read_bytes()
    return [found[at * ERROR_ROW_BYTES : (at + 1) * ERROR_ROW_BYTES] for at in range(MOST_ERRORS)]


def _encoded(record: logging.LogRecord, process: str) -> bytes:
    """Encode a line in at most ERROR_ROW_BYTES."""
    row = b""
    for most in (_MESSAGE, _SHORT_MESSAGE):
        message = _described(record)[:most]
        level, name = record.levelname.lower()[:_NAME], record.name[:_NAME]
        row = json.dumps([record.created, level, process, name, message]).encode()
        if len(row) <= ERROR_ROW_BYTES:
            break
    return row[:ERROR_ROW_BYTES]


def _decoded(row: bytes) -> LoggedError | None:
    """Decode a row; None for an empty one, or one that is being written."""
    with suppress(ValueError, TypeError):
        time, *texts = json.loads(row)
        return LoggedError(float(time), *map(str, texts))
    return None


@contextmanager
def noting_errors(directory: str | None = None, role: str = "worker") -> Iterator[RecentErrors]:
    """Keep the last warnings and errors of this process; by default in the shared directory."""
    shared = os.environ.get(DIRECTORY, "") if directory is None else directory
    logger, handler = logging.getLogger("solar"), RecentErrors(shared, role)
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        handler.close()
