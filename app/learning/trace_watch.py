"""Watches the trace of Σ: a fall by half within 100 records is unusual and is reported.

Pairs with large weights or features make a model certain within a few records; then it learns
little more. The watch holds one trace for every 10 records. Its window starts again with a session,
when the settings or the model are replaced, and after each report.
"""

import logging
from collections import deque

from app.domain.facts import TraceHalved
from app.domain.model_config import ModelConfig
from app.domain.reducer import Reducer

log = logging.getLogger("solar.learner")

WINDOW = 100  # records
EVERY = 10  # records between two traces


class TraceWatch:
    """The traces of a reducer at its last records."""

    def __init__(self, model: str, reducer: Reducer) -> None:
        self._model, self._reducer = model, reducer
        self._found: list[TraceHalved] = []
        self._restart()

    def _restart(self) -> None:
        self._config: ModelConfig = self._reducer.config
        self._traces = deque([self._reducer.trace], WINDOW // EVERY)

    def watch(self) -> None:
        """Look at the trace; call this after each record."""
        if self._reducer.config is not self._config:  # replaced, or retuned
            self._restart()
        elif self._reducer.seq % EVERY == 0:
            self._look()

    def _look(self) -> None:
        trace = self._reducer.trace
        if trace < self._traces[0] / 2.0:  # the oldest: a trace never grows
            self._found.append(TraceHalved(self._model, self._reducer.seq))
            self._restart()
        else:
            self._traces.append(trace)

    def found(self) -> list[TraceHalved]:
        """Return, and log, what was found since the last call."""
        found, self._found = self._found, []
        for fact in found:
            message = (
                "model %s: the trace of the covariance fell by half within %d records, up to %d"
            )
            log.warning(message, fact.model, WINDOW, fact.seq)
        return found
