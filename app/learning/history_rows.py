"""The rows that the commits of a session add to the model's history: one point in 10 seconds."""

import asyncio

from app.domain.facts import PointDropped
from app.domain.model import ModelState
from app.learning.options import LearnerOptions, ReportFact
from app.storage.history import pack_point, pack_weights
from app.storage.states import NO_ROWS, HistoryRows
from app.storage.store import Store

#: Intervals of points and of weights in ms, the same as in the commit script.
POINT_INTERVAL, WEIGHTS_INTERVAL = 10_000, 3_600_000


class RowSchedule:
    """Decides which rows are due with a commit, if the budget of the histories admits the model."""

    def __init__(
        self, store: Store, model: str, options: LearnerOptions, report: ReportFact
    ) -> None:
        self._budget, self._model = store.history_budget, model
        self._options, self._report = options, report
        self._point = self._weights = -1  # interval of the last row; the script knows earlier ones
        self._renewing: asyncio.Task[None] | None = None

    def renew(self) -> None:
        """Check the budget in a task of its own, if that is due."""
        if self._budget.is_stale(self._model) and not self.tasks():
            self._renewing = asyncio.create_task(self._budget.renew(self._model))

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the task that checks the budget, if one does."""
        return [one for one in (self._renewing,) if one is not None and not one.done()]

    def rows(self, state: ModelState) -> HistoryRows:
        """Return the rows that are due with a commit of this state."""
        now = int(self._options.wall_clock() * 1000)
        if now // POINT_INTERVAL == self._point:
            return NO_ROWS
        self.renew()
        if self._budget.admits(self._model):
            self._point = now // POINT_INTERVAL
            point, weights = pack_point(state.seq, state.sums), self._due_weights(now, state)
            return HistoryRows(now, point, weights)
        if self._budget.refuses(self._model):
            self._point = now // POINT_INTERVAL
            self._report(PointDropped(self._model))
        return NO_ROWS

    def _due_weights(self, now: int, state: ModelState) -> bytes:
        if now // WEIGHTS_INTERVAL == self._weights:
            return b""
        self._weights = now // WEIGHTS_INTERVAL
        return pack_weights(state.seq, state.model)
