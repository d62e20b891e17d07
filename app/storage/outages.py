"""Log lines about an unreachable store: when it fails, once a minute, and when it is back."""

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic

log = logging.getLogger("solar.storage")

#: Seconds between two log lines about the same outage.
REPEAT_SECONDS = 60.0
#: The most lines in that time, if the store fails and returns again and again.
MOST_LINES = 4


class Outages:
    """Collects failed calls of the tasks of one process into one outage.

    An outage starts with the first task that fails and ends when every failed task has succeeded.
    So a Cluster that is reachable in part, or a thousand learners, do not flood the log.
    """

    def __init__(self, store: str, clock: Callable[[], float] = monotonic) -> None:
        """`store` is the store's name in log lines, without credentials."""
        self._store, self._clock = store, clock
        self._failing: set[str] = set()
        self._since = 0.0
        self._reported = False  # the start of this outage is in the log
        self._lines: deque[float] = deque(maxlen=MOST_LINES)

    def failed(self, task: str, reason: object) -> None:
        """Record a failed call of a task; `reason` is the message to log."""
        now = self._clock()
        if not self._failing:
            self._since, self._reported = now, False
        self._failing.add(task)
        if not self._reported and self._may_log(now):
            self._reported = True
            log.warning("%s", reason)
        elif self._reported and now - self._lines[-1] >= REPEAT_SECONDS:
            self._lines.append(now)
            log.warning("%s; the outage has lasted %.0f s", reason, now - self._since)

    def succeeded(self, task: str) -> None:
        """Record that a task has reached the store, or has ended."""
        if task in self._failing:
            self._failing.remove(task)
            now = self._clock()
            if not self._failing and self._reported and self._may_log(now):
                log.info("%s is reachable again after %.1f s", self._store, now - self._since)

    def _may_log(self, now: float) -> bool:
        """Count a line, unless there were too many in the last minute."""
        full = len(self._lines) == MOST_LINES
        if full and now - self._lines[0] < REPEAT_SECONDS:
            return False
        self._lines.append(now)
        return True
