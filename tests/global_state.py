"""The global state that all tests of a process share. A test that changes it must restore it.

pytest itself restores warning filters and standard streams; pytest-randomly restores the seeds of
`random` and `numpy.random`. Tasks end with the event loop of their test. Daemon threads are left
out: tqdm keeps one until the process ends.
"""

import gc
import logging
import os
import signal
import sys
import threading
from pathlib import Path


def global_state() -> dict[str, object]:
    """Return the global state by name, for a later comparison."""
    return {
        "environment": {
            name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"
        },
        "working directory": Path.cwd(),
        "import path": sys.path.copy(),
        "signal handlers": {one: signal.getsignal(one) for one in signal.valid_signals()},
        "threads": {one for one in threading.enumerate() if not one.daemon},
        "garbage collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0),
        "logging": _logging(),
    }


def _logging() -> dict[str, object]:
    """Return the levels and handlers that are set; a NullHandler does not count."""
    loggers = {"root": logging.getLogger(), **logging.root.manager.loggerDict}
    found = {
        name: (
            logger.level,
            [one for one in logger.handlers if not isinstance(one, logging.NullHandler)],
        )
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger)
    }
    return {name: state for name, state in found.items() if state != (logging.NOTSET, [])}


def changes(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Describe each difference in one line."""
    return [
        f"{name}: expected {before[name]}, got {after[name]}"
        for name in before
        if after[name] != before[name]
    ]
