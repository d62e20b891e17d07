"""Structured logs: one JSON object a line, on standard error. No bodies, no keys, no values.

Lines that any client can cause are limited: refused requests, and uvicorn's about invalid ones.
"""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from app.observability.recent_errors import RecentErrors, log_message, noting_errors
from app.observability.tracebacks import format_traceback
from app.observability.tracing import current_traceparent

#: Attributes of every log record, and uvicorn's message in colours; all others are `extra`.
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}

#: Loggers of libraries that are verbose at INFO: httpx logs every request.
VERBOSE_LOGGERS = ("httpx", "matplotlib", "uvicorn.error")

MOST_LINES_OF_A_KIND, LIMIT_SECONDS = 10, 60.0  # of one kind
MOST_KINDS = 1000  # remembered by a limit
#: uvicorn's lines on a request to upgrade. It is then answered and logged as any other request.
#: Some HTTP clients ask for HTTP/2 in this way.
UPGRADE_LINES = ("Unsupported upgrade request.", "No supported WebSocket library detected")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON with its `extra` fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, logger, message, `extra`, trace and traceback."""
        moment = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": log_message(record),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if trace := current_traceparent():
            fields["traceparent"] = trace
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields |= {"error": type(error).__name__, "traceback": format_traceback(error)}
        return json.dumps(fields, ensure_ascii=False, default=str)


@dataclass(slots=True)
class _Window:
    end: float
    lines: int = 0


class LineLimit:
    """Admits a number of lines of a kind in LIMIT_SECONDS; then one line counts the others."""

    def __init__(
        self,
        logger: logging.Logger,
        seconds: float = LIMIT_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._logger, self._seconds, self._clock = logger, seconds, clock
        self._windows: dict[Hashable, _Window] = {}

    def admits(self, kind: Hashable, level: int, message: str, about: Mapping[str, Any]) -> bool:
        """Whether to log a line; `level`, `message` and `about` are of the line with the count."""
        now, window = self._clock(), self._windows.get(kind)
        if window is None or now >= window.end:
            if len(self._windows) >= MOST_KINDS:
                self._windows.clear()
            window = self._windows[kind] = _Window(now + self._seconds)
        window.lines += 1
        if window.lines == MOST_LINES_OF_A_KIND + 1:
            with suppress(RuntimeError):  # no event loop
                loop = asyncio.get_running_loop()
                loop.call_later(window.end - now, self._report, window, level, message, about)
        return window.lines <= MOST_LINES_OF_A_KIND

    def _report(self, window: _Window, level: int, message: str, about: Mapping[str, Any]) -> None:
        count = window.lines - MOST_LINES_OF_A_KIND
        text = "%s: %d more lines of this kind within %g s"
        self._logger.log(
            level, text, message, count, self._seconds, extra={**about, "suppressed": count}
        )


class _ServerLines(logging.Filter):
    """Limits the lines of uvicorn; a request causes at most one."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._limit = LineLimit(logger)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a line."""
        text = str(record.msg).strip()
        if text.startswith(UPGRADE_LINES):
            return False
        return hasattr(record, "suppressed") or self._limit.admits(text, record.levelno, text, {})


@contextmanager
def limited_server_lines() -> Iterator[None]:
    """Limit the lines of uvicorn, such as those about invalid requests."""
    logger = logging.getLogger("uvicorn.error")
    limit = _ServerLines(logger)
    logger.addFilter(limit)
    try:
        yield
    finally:
        logger.removeFilter(limit)


@asynccontextmanager
async def application_logging() -> AsyncIterator[RecentErrors]:
    """Limit uvicorn's lines while an application runs, and keep its last errors."""
    with limited_server_lines(), _json_lines(), noting_errors() as errors:
        yield errors


@contextmanager
def _json_lines() -> Iterator[None]:
    """Log JSON lines if logging is not set up."""
    logger = logging.getLogger("solar")
    if logger.hasHandlers():
        yield
        return
    handler, level = _handler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def _handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    return handler


def configure_logging() -> None:
    """Set up JSON logging for this process."""
    logging.basicConfig(level=logging.INFO, handlers=[_handler()], force=True)
    for name in VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
