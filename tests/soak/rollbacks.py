"""Losses that the service found: the metric of rollbacks of the store stays as it is.

The store of a run acknowledges what it has written to a file, and processes are killed, not the
machine: no fault of a plan may lose a record that was served.
"""

import re

from tests.soak.announcements import Announcements
from tests.soak.calls import Calls

SERIES = re.compile(r"^solar_store_rollbacks_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


def counted(metrics: str) -> float:
    """Return the rollbacks of all models.

    >>> counted('solar_store_rollbacks_total{model="m"} 2.0\\nsolar_x_total 3.0\\n')
    2.0
    """
    return sum(map(float, SERIES.findall(metrics)))


class Rollbacks:
    """Reads the metric now and then; a restart of the service begins at 0 again."""

    def __init__(self, calls: Calls, announcements: Announcements) -> None:
        self._calls, self._announcements = calls, announcements
        self._last = 0.0

    async def look(self, after: str) -> None:
        """Note an increase since the last look."""
        answer = await self._calls.call("GET", "/metrics")
        if answer.status == 200:
            self.note(answer.body, after)

    def note(self, metrics: str, after: str) -> None:
        """Note an increase since the last metrics."""
        now = counted(metrics)
        if now > self._last:
            more, at = now - self._last, self._announcements.now()
            self._calls.problems.add(
                f"the store lost records of a model: {more:g} rollbacks, after {after}, {at:.0f} s"
            )
        self._last = now
