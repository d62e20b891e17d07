"""What happens to clients when the process forks or ends; the only global state is this registry.

A forked child drops the events and connections of its parent, which sends them itself. At the
end of the process all clients together get two seconds to send what is queued.
"""

import atexit
import os
import time
from typing import Protocol
from weakref import WeakSet

EXIT_SECONDS = 2.0


class InProcess(Protocol):
    """What this registry calls."""

    def after_fork(self) -> None:
        """Forget events, connections, threads and locks of the parent."""

    def at_exit(self, seconds: float) -> None:
        """Send what is queued within the seconds."""


_registered: WeakSet[InProcess] = WeakSet()


def register(one: InProcess) -> None:
    """Call it after a fork in the child, and at the end of the process, while it exists."""
    _registered.add(one)


def _after_fork() -> None:
    for one in list(_registered):
        one.after_fork()


def _at_exit() -> None:
    until = time.monotonic() + EXIT_SECONDS
    for one in list(_registered):
        one.at_exit(max(0.0, until - time.monotonic()))


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)
