"""Structured logs: one JSON object a line, on standard error. No bodies, no keys, no values."""

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from app.observability.tracebacks import format_traceback
from app.observability.tracing import current_traceparent

#: Attributes of every log record, and uvicorn's message in colours; all others are `extra`.
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}

#: Loggers of libraries that are verbose at INFO: httpx logs every request.
VERBOSE_LOGGERS = ("httpx", "matplotlib", "uvicorn.error")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON with its `extra` fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, logger, message, `extra`, trace and traceback."""
        moment = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if trace := current_traceparent():
            fields["traceparent"] = trace
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields |= {"error": type(error).__name__, "traceback": format_traceback(error)}
        return json.dumps(fields, ensure_ascii=False, default=str)


def _message(record: logging.LogRecord) -> str:
    """Return the message; for asyncio its first line, because the others may hold values."""
    message = record.getMessage().strip()
    return message.partition("\n")[0] if record.name == "asyncio" else message


@asynccontextmanager
async def default_logging() -> AsyncIterator[None]:
    """Log JSON lines of `solar` loggers while an application runs, if logging is not set up."""
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
