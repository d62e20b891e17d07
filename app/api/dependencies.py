"""What all routes work with."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import numpy as np

from app.api.errors import Problem
from app.config import Settings
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig, check_config, new_model_config
from app.errors import ModelExists, NoSuchModel
from app.ingest.appender import Appender
from app.observability.metrics import Metrics
from app.ranking.limits import MOST_FEATURES_SERVED
from app.serving.impression_writer import ImpressionWriter
from app.serving.weight_cache import ServedModel, WeightCache
from app.storage.store import Store
from app.training.job_runner import JobRunner

DEFAULT = "default"


class SourceQuota:
    """How much of the feedback of the last minute or two came from whom."""

    LEAST = 100  # below so many events nobody is refused

    def __init__(self, most: float, clock: Callable[[], float] = monotonic) -> None:
        self._most, self._clock = most, clock
        self._minute = 0
        self._now: Counter[str] = Counter()
        self._before: Counter[str] = Counter()

    def take(self, source: str, count: int) -> bool:
        """Whether so many more events of a source fit into its share; if so they are counted."""
        if self._most >= 1.0:
            return True
        self._turn()
        total = self._now.total() + self._before.total() + count
        mine = self._now[source] + self._before[source] + count
        if total > self.LEAST and mine > self._most * total:
            return False
        self._now[source] += count
        return True

    def _turn(self) -> None:
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._before = self._now if minute == self._minute + 1 else Counter()
            self._now, self._minute = Counter(), minute


@dataclass(slots=True)
class Service:
    """The store, the weights in memory, and the knobs."""

    store: Store
    weight_cache: WeightCache
    impression_writer: ImpressionWriter
    settings: Settings
    shares: SourceQuota
    metrics: Metrics
    appender: Appender
    job_runner: JobRunner

    async def serving(self, model: str) -> ServedModel:
        """What is served of a model; of a `default` that is still to be made: epoch 0, no more."""
        found = self.weight_cache.serving.get(model)
        if found is not None:
            return found
        try:
            return await self.weight_cache.look(model)
        except NoSuchModel:
            if model != DEFAULT or not self.settings.default_features:
                raise
        settings = new_model_config(default_features(self.settings))
        weights = np.zeros(settings.n)
        return ServedModel(DEFAULT, 0, 0, settings, weights, weights, 0.0)

    async def made(self, serving: ServedModel) -> ServedModel:
        """The same, once it is needed: `default` is made at its first use that is not refused."""
        if serving.epoch:
            return serving
        await self._create_default()
        return await self.weight_cache.look(serving.name)

    async def _create_default(self) -> None:
        try:
            await self.create(DEFAULT, new_model_config(default_features(self.settings)))
        except ModelExists:
            return

    async def create(self, model: str, settings: ModelConfig) -> None:
        """A new model; ModelExists if there is one of this name."""
        if len(settings.given) > MOST_FEATURES_SERVED:
            raise Problem(422, f"features: expected at most {MOST_FEATURES_SERVED}")
        await self.store.models.create(
            model, initial_state(check_config(settings), seed=os.urandom(16))
        )


def default_features(settings: Settings) -> tuple[str, ...]:
    """The features of the default model: their names, or `f1` … `fn`."""
    text = settings.default_features.strip()
    if text.isdigit():
        return numbered(int(text))
    return tuple(name.strip() for name in text.split(","))


def numbered(count: int) -> tuple[str, ...]:
    """Names for features that have none.

    >>> numbered(3)
    ('f1', 'f2', 'f3')
    """
    return tuple(f"f{k}" for k in range(1, count + 1))
