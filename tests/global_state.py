"""What all tests of a process share. A test that changes it must put it back.

Not here, as pytest takes care of it around every test: warning filters, standard streams, and (by
pytest-randomly) the seeds of `random` and `numpy.random`. Tasks end with the loop of their test.
Nor are daemon threads: tqdm keeps one for the life of a process.
"""

import gc
import logging
import os
import signal
import sys
import threading
from pathlib import Path


def global_state() -> dict[str, object]:
    """Everything by name, to be compared with what it is later."""
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
    """The levels and handlers that somebody has set; a handler that does nothing is none."""
    loggers = {"root": logging.getLogger(), **logging.root.manager.loggerDict}
    found = {
        name: (
            logger.level,
            [one for one in logger.handlers if not isinstance(one, logging.NullHandler)],
        )
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger)
    }
    return {name: said for name, said in found.items() if said != (logging.NOTSET, [])}


def changes(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """What is not as it was, one sentence each."""
    return [
        f"{name}: expected {before[name]}, got {after[name]}"
        for name in before
        if after[name] != before[name]
    ]
