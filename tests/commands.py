"""The command line, run in the process of the tests."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app.__main__ import main
from app.observability.logging import VERBOSE_LOGGERS


def solar(*arguments: str) -> int:
    """`solar ...`: its exit code. What it sets for a process of its own is put back."""
    with logging_put_back():
        try:
            return main(arguments)
        finally:
            gc.unfreeze()


@contextmanager
def logging_put_back() -> Iterator[None]:
    """What `configure_logging` sets is in the end as it was."""
    root = logging.getLogger()
    loggers = (root, *map(logging.getLogger, VERBOSE_LOGGERS))
    handlers, levels = root.handlers.copy(), [logger.level for logger in loggers]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
