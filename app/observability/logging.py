"""Structured logs: one JSON object a line, on standard error. No bodies, no keys, no values."""

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from app.observability.tracebacks import format_traceback
from app.observability.tracing import current_traceparent

#: What every record has, and uvicorn's message in colours.
_PLAIN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}


#: Loggers of libraries that are verbose at INFO: httpx logs every request.
VERBOSE_LOGGERS = ("httpx", "matplotlib", "uvicorn.error")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON, with whatever `extra` it came with."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, who says it, what, in which trace, the rest, and the traceback."""
        moment = datetime.fromtimestamp(record.created, UTC)
        said = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **{name: value for name, value in vars(record).items() if name not in _PLAIN},
        }
        if trace := current_traceparent():
            said["traceparent"] = trace
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            said |= {"error": type(error).__name__, "traceback": format_traceback(error)}
        return json.dumps(said, ensure_ascii=False, default=str)


def _message(record: logging.LogRecord) -> str:
    """What it says; of asyncio the first line, as the others repeat an error's message."""
    message = record.getMessage().strip()
    return message.partition("\n")[0] if record.name == "asyncio" else message


@asynccontextmanager
async def default_logging() -> AsyncIterator[None]:
    """JSON lines from our own loggers while an application runs, if nobody has configured any."""
    ours = logging.getLogger("solar")
    if ours.hasHandlers():
        yield
        return
    handler, level = _handler(), ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(level)
        ours.removeHandler(handler)


def _handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    return handler


def configure_logging() -> None:
    """From now on, for this process."""
    logging.basicConfig(level=logging.INFO, handlers=[_handler()], force=True)
    for name in VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
