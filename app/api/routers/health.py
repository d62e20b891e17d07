"""`/healthz`, `/readyz` and `/metrics`: without a key, and the same for every process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from app.api import schemas
from app.api.errors import Problem
from app.api.routing import Answer
from app.domain.facts import ModelStatus
from app.errors import SolarError
from app.observability.metrics import METRICS_MEDIA_TYPE, Metrics, StoreHealth
from app.serving.weight_cache import WeightCache
from app.storage.store import Store

#: How long the store may take to say how the models stand.
STORE_SECONDS = 1.0


class HealthEndpoints:
    """What is said of a process."""

    def __init__(
        self,
        store: Store,
        weight_cache: WeightCache,
        metrics: Metrics,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store, self._weight_cache, self._metrics = store, weight_cache, metrics
        self._ready = ready
        self.paths = {"/healthz": self.healthz, "/readyz": self.readyz, "/metrics": self.metrics}

    async def healthz(self) -> Answer:
        """The process lives."""
        return Answer(200, schemas.encode({"status": "alive"}))

    async def readyz(self) -> Answer:
        """It can do its work: it has seen the store once, and no model is damaged."""
        if not self._weight_cache.started:
            raise Problem(503, "the store has not been reached yet")
        if not self._ready():
            raise Problem(503, "the kernels are still being compiled")
        if self._weight_cache.damaged:
            raise Problem(503, f"{len(self._weight_cache.damaged)} models are damaged")
        said = {"status": "ready", "degraded": not self._weight_cache.reachable}
        return Answer(200, schemas.encode(said))

    async def metrics(self) -> Answer:
        """For Prometheus; with the store gone, what was last known."""
        models, statuses = list(self._weight_cache.serving.values()), dict[str, ModelStatus]()
        if self._weight_cache.reachable:
            with suppress(SolarError, TimeoutError):
                async with asyncio.timeout(STORE_SECONDS):
                    statuses = await self._store.models.statuses([model.name for model in models])
        server = StoreHealth(self._weight_cache.reachable, self._weight_cache.memory_share)
        page = self._metrics.page(models, statuses, server)
        return Answer(200, page, METRICS_MEDIA_TYPE)
