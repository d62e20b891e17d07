"""How long the records of each model have waited while none was learnt."""

import logging
from collections.abc import Callable, Mapping
from time import monotonic

log = logging.getLogger("solar.serving")

#: Seconds without a learnt record after which a model is reported, and between two reports.
LAG_SECONDS = 60.0
#: Models that one report names.
NAMED_MODELS = 10

#: The epoch and the version of a model.
Version = tuple[int, int]


class LagTimer:
    """Times models with records that wait, from the last change of their version.

    The time stands still while the store cannot be checked: other metrics report that.
    """

    def __init__(self, limit: float = LAG_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._checked, self._last = 0.0, clock()  # seconds of successful checks; the last check
        self._since: dict[str, tuple[Version, float]] = {}
        self._next_report = limit

    @property
    def models(self) -> list[str]:
        """Models with records that wait."""
        return list(self._since)

    def note(self, model: str, version: Version, waiting: int) -> None:
        """Note the version of a model and how many records wait."""
        if waiting <= 0:
            self.forget(model)
        elif model not in self._since or self._since[model][0] != version:
            self._since[model] = (version, self._checked)

    def forget(self, model: str) -> None:
        """Stop timing a model."""
        self._since.pop(model, None)

    def checked(self, success: bool) -> None:
        """Count the time since the last check, unless this check has failed."""
        now = self._clock()
        self._checked += now - self._last if success else 0.0
        self._last = now

    def seconds(self, versions: Mapping[str, Version]) -> dict[str, float]:
        """Return for how long records of each model have waited at its present version."""
        return {
            model: self._checked - since
            for model, (version, since) in self._since.items()
            if versions.get(model) == version
        }

    def report(self, waiting: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """Log the models above the limit, at most once within the limit."""
        late = sorted(
            (model for model, lag in seconds.items() if lag >= self._limit),
            key=lambda model: (-seconds[model], model),
        )
        if not late or self._checked < self._next_report:
            return
        self._next_report = self._checked + self._limit
        for model in late[:NAMED_MODELS]:
            log.warning(
                "model %s: %d records wait and none was learnt for %.0f s; "
                "check that a learner runs, and read its log",
                model, waiting[model], seconds[model],
            )  # fmt: skip
        if len(late) > NAMED_MODELS:
            log.warning("%d more models learn nothing", len(late) - NAMED_MODELS)
