"""Log lines about an unreachable store: when it fails, once a minute, and when it is back."""

import logging
from collections.abc import Callable
from time import monotonic

log = logging.getLogger("solar.storage")

#: Seconds between two log lines about the same outage.
REPEAT_SECONDS = 60.0


class Outages:
    """Collects failed calls of the tasks of one process into one outage.

    An outage starts with the first task that fails and ends when every failed task has succeeded.
    So a Cluster that is reachable in part, or a thousand learners, do not flood the log.
    """

    def __init__(self, store: str, clock: Callable[[], float] = monotonic) -> None:
        """`store` is the store's name in log lines, without credentials."""
        self._store, self._clock = store, clock
        self._failing: set[str] = set()
        self._since = self._next = 0.0

    def failed(self, task: str, reason: object) -> None:
        """Record a failed call of a task; `reason` is the message to log."""
        now = self._clock()
        if not self._failing:
            log.warning("%s", reason)
            self._since, self._next = now, now + REPEAT_SECONDS
        elif now >= self._next:
            log.warning("%s; the outage has lasted %.0f s", reason, now - self._since)
            self._next = now + REPEAT_SECONDS
        self._failing.add(task)

    def succeeded(self, task: str) -> None:
        """Record that a task has reached the store, or has ended."""
        if task in self._failing:
            self._failing.remove(task)
            if not self._failing:
                duration = self._clock() - self._since
                log.info("%s is reachable again after %.1f s", self._store, duration)
