"""Run the `solar` command in the process of the tests."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.__main__ import main
from app.observability.logging import VERBOSE_LOGGERS


@dataclass
class Solar:
    """A command in this process; returns the exit code, the output and the errors."""

    capsys: pytest.CaptureFixture[str]
    command: str

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        code = solar(self.command, *map(str, arguments))
        output = self.capsys.readouterr()
        return code, output.out, output.err


def solar(*arguments: str) -> int:
    """Run `solar ...`, restore the global state, and return the exit code."""
    with logging_put_back():
        try:
            return main(arguments)
        finally:
            gc.unfreeze()


@contextmanager
def logging_put_back() -> Iterator[None]:
    """Restore the settings of `configure_logging` after the block."""
    root = logging.getLogger()
    loggers = (root, *map(logging.getLogger, VERBOSE_LOGGERS))
    handlers, levels = root.handlers.copy(), [logger.level for logger in loggers]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
