"""The only place that plugs things together: the store, and what a worker serves with."""

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
DURABILITY_SECONDS = 1.0  # seconds that a store gets to say how safe it is, before the next try


class StoreLocator:
    """Where the store is: the one that is named, the one that runs here already, or a new one.

    A server of our own that has ended is started again the next time it is asked for.
    """

    def __init__(self, settings: Settings, *, thread_lives: bool = False) -> None:
        """`thread_lives`: as for `EmbeddedServer.start`."""
        self._settings, self._thread_lives = settings, thread_lives
        self._server: EmbeddedServer | None = None

    def url(self) -> str:
        """Where the store is now."""
        given, directory = self._settings.redis_url, self._settings.data_dir
        if given:
            return given
        if self._settings.durability == "replicated":
            raise SolarError(
                "SOLAR_DURABILITY is replicated, but an embedded server has no replica"
            )
        if self._server is not None and self._server.alive():
            return self._server.url
        if self._server is not None:
            log.warning("the embedded store has ended; it is started again")
        self.close()  # what is left of one that ended
        found = server.find(directory)
        if found is None:
            self._server = EmbeddedServer.start(
                directory, memory=self._settings.memory, fsync=self._fsync(),
                thread_lives=self._thread_lives,
            )  # fmt: skip
            found = self._server.url
        return found

    def _fsync(self) -> str:
        return "everysec" if self._settings.durability == "local" else "always"

    def close(self) -> None:
        """Stop the server, if it is ours."""
        if self._server is not None:
            self._server.stop()
            self._server = None


@contextmanager
def store_url(settings: Settings) -> Iterator[str]:
    """Where the store is, for as long as one command takes."""
    locator = StoreLocator(settings)
    try:
        yield locator.url()
    finally:
        locator.close()


def is_safe(settings: Settings, url: str) -> bool:
    """Whether the store is as safe as was asked for; NotDurable if not, False if it is not there.

    Without a level nothing is asked; the learner will say what is wrong.
    """
    if not settings.durability:
        return True

    async def ask() -> None:
        store = Store.open(url, settings.durability)
        try:
            async with asyncio.timeout(DURABILITY_SECONDS):
                for complaint in await store.servers.complaints():
                    log.warning("%s", complaint)
        finally:
            await store.close()

    try:
        asyncio.run(ask())
    except (Unavailable, TimeoutError):
        return False
    return True


@asynccontextmanager
async def open_service(settings: Settings, learner_metrics: str = "") -> AsyncIterator[Service]:
    """Everything that a worker serves with; `learner_metrics` is as for `Metrics`."""
    store = Store.open(settings.redis_url, settings.durability)
    metrics = Metrics(learner_metrics=learner_metrics)
    weight_cache = WeightCache(store, metrics.served)
    kept = settings.impression_seconds
    impression_writer = ImpressionWriter(store, kept, settings.remember_seconds)
    appender = Appender(store, settings.backlog, kept, metrics.rolled_back)
    quota = SourceQuota(settings.source_share)
    job_runner = JobRunner(store, settings, metrics.trained)
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
