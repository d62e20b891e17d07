"""Structured logs: one JSON object a line, on standard error. No bodies, no keys."""

import json
import logging
import sys
from datetime import UTC, datetime

_PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON, with whatever `extra` it came with."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, who says it, what, and the rest."""
        moment = datetime.fromtimestamp(record.created, UTC)
        said = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _PLAIN},
        }
        if record.exc_info and record.exc_info[0]:  # what it was, without its stack
            said["error"] = record.exc_info[0].__name__
        return json.dumps(said, ensure_ascii=False, default=str)


def configure_logging() -> None:
    """From now on, for this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
