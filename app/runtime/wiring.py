"""The composition root: the store, and the parts of a worker."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from app.api.dependencies import Service
from app.config import Settings
from app.errors import SolarError, Unavailable
from app.ingest.appender import Appender, SourceQuota
from app.observability.metrics import Metrics
from app.serving.impression_writer import ImpressionWriter
from app.serving.weight_cache import WeightCache
from app.storage.embedded import server
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from app.training.job_runner import JobRunner

log = logging.getLogger("solar")
DURABILITY_SECONDS = 1.0  # timeout of one durability check


class StoreLocator:
    """Finds the store: the configured one, a running embedded one, or a new embedded one.

    `url` restarts an embedded server that has ended.
    """

    def __init__(self, settings: Settings, *, thread_outlives_server: bool = False) -> None:
        """`thread_outlives_server`: as for `EmbeddedServer.start`."""
        self._settings, self._thread_outlives_server = settings, thread_outlives_server
        self._server: EmbeddedServer | None = None

    def url(self) -> str:
        """Return the store's URL."""
        given, directory = self._settings.redis_url, self._settings.data_dir
        if given:
            return given
        if self._settings.durability == "replicated":
            raise SolarError(
                "SOLAR_DURABILITY: the embedded server has no replica; expected local or fsync, "
                "or SOLAR_REDIS_URL of a server with a replica, got replicated"
            )
        if self._server is not None and self._server.alive():
            return self._server.url
        if self._server is not None:
            log.warning("the embedded store has ended; restarting it")
        self.close()  # releases what the ended server left
        found = server.find(directory)
        if found is None:
            self._server = EmbeddedServer.start(
                directory, memory=self._settings.memory, fsync=self._fsync(),
                thread_outlives_server=self._thread_outlives_server,
            )  # fmt: skip
            found = self._server.url
        return found

    def _fsync(self) -> str:
        return "everysec" if self._settings.durability == "local" else "always"

    def close(self) -> None:
        """Stop the server if this process started it."""
        if self._server is not None:
            self._server.stop()
            self._server = None


@contextmanager
def store_url(settings: Settings) -> Iterator[str]:
    """Provide the store's URL for one command."""
    locator = StoreLocator(settings)
    try:
        yield locator.url()
    finally:
        locator.close()


def is_durable(settings: Settings, url: str) -> bool:
    """Whether the store has the configured durability: NotDurable if not, False if unreachable.

    Without a level nothing is checked here; the learner logs weak settings.
    """
    if not settings.durability:
        return True

    async def check() -> None:
        store = Store.open(url, settings.durability)
        try:
            async with asyncio.timeout(DURABILITY_SECONDS):
                for warning in await store.servers.complaints():
                    log.warning("%s", warning)
        finally:
            await store.close()

    try:
        asyncio.run(check())
    except (Unavailable, TimeoutError):
        return False
    return True


@asynccontextmanager
async def open_service(settings: Settings, learner_metrics: str = "") -> AsyncIterator[Service]:
    """Open all parts of a worker; `learner_metrics` as for `Metrics`."""
    store = Store.open(settings.redis_url, settings.durability)
    metrics = Metrics(learner_metrics=learner_metrics)
    weight_cache = WeightCache(store, metrics.served)
    kept = settings.impression_seconds
    impression_writer = ImpressionWriter(store, kept, settings.remember_seconds)
    appender = Appender(store, settings.backlog, kept, metrics.rolled_back)
    quota = SourceQuota(settings.source_share)
    job_runner = JobRunner(store, settings, metrics.trained)
    await job_runner.sweep()
    await weight_cache.start()
    try:
        yield Service(
            store, weight_cache, impression_writer, settings, quota, metrics, appender, job_runner
        )
    finally:
        await job_runner.close()
        await impression_writer.close()
        await weight_cache.close()
        await store.close()
