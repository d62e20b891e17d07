"""The composition root: the store, and the parts of a worker."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from app.api.auth import writing_keys
from app.api.beacon_limits import BeaconLimits
from app.api.dependencies import Service
from app.api.quotas import SourceQuota, StoreQuota, exchange_counts
from app.api.tokens import read_token_keys
from app.config import Settings
from app.errors import SolarError, Unavailable
from app.ingest.appender import Appender
from app.ingest.clicked_lists import ClickedLists
from app.observability.metrics import Metrics
from app.observability.multiprocess import ProcessStatus
from app.runtime.children import MAX_FAILED_STARTS, Backoff
from app.runtime.stopping import server_stops
from app.serving.impression_writer import ImpressionWriter
from app.serving.live import LiveFeeds
from app.serving.trial_runner import TrialRunner
from app.serving.weight_cache import WeightCache
from app.storage.batching import MemoryBudget
from app.storage.cancellation import end
from app.storage.embedded import server
from app.storage.embedded.data_directory import POLL_SECONDS
from app.storage.embedded.server import EmbeddedServer
from app.storage.embedded.stale_leases import remove_leases
from app.storage.store import Store
from app.training.job_runner import JobRunner

log = logging.getLogger("solar")
BEACON_WORKER = 100  # rate of beacons of a worker, in rates of one address
DURABILITY_SECONDS = 1.0  # timeout of one durability check


class StoreLocator:
    """Finds the store: the configured one, a running embedded one, or a new embedded one.

    `keep` restarts an embedded server that has ended. The URL stays the same. The process that
    starts a server removes the leases in its data.
    """

    def __init__(self, settings: Settings, *, thread_outlives_server: bool = False) -> None:
        """`thread_outlives_server`: as for `EmbeddedServer.start`."""
        self._settings, self._thread_outlives_server = settings, thread_outlives_server
        self._server: EmbeddedServer | None = None
        self._url, self._up, self._backoff = "", False, Backoff()
        self._first, self._has_leases = True, False

    def url(self, cancelled: Callable[[], bool] = lambda: False) -> str:
        """Return the store's URL, once an embedded server has loaded its data; empty if cancelled.

        A server that cannot start is an error. One that is killed while it loads is restarted.
        """
        given = self._settings.redis_url
        if given:
            return given
        if self._settings.durability == "replicated":
            raise SolarError(
                "SOLAR_DURABILITY: the embedded server has no replica; expected local or fsync, "
                "or SOLAR_REDIS_URL of a server with a replica, got replicated"
            )
        while not self._up and not cancelled():
            try:
                if self._backoff.due():
                    self._up = self._advance(server.UNLOCK_SECONDS)
            except SolarError as error:
                killed = self._server is not None and self._server.was_killed()
                if not killed or self._backoff.failures + 1 >= MAX_FAILED_STARTS:
                    raise
                self._note_end(error)
            time.sleep(POLL_SECONDS)
        return self._url if self._up else ""

    def keep(self) -> None:
        """Restart an embedded server that has ended; do not wait until it has loaded its data."""
        if self._settings.redis_url or not self._backoff.due():
            return
        try:
            self._up = self._advance(lock_timeout=0.0)
        except (SolarError, OSError) as error:
            self._note_end(error)

    def status(self) -> dict[str, ProcessStatus]:
        """Return the status of an embedded server, by process name."""
        if self._settings.redis_url:
            return {}
        return {"store": ProcessStatus(self._up, self._backoff.failures)}

    def _advance(self, lock_timeout: float) -> bool:
        """Start a server if none runs; return whether it has loaded its data."""
        directory, durability = self._settings.data_dir, self._settings.durability
        found = server.find(directory) if self._server is None else None  # of another process
        if found is None and self._server is None:
            self._backoff.started()
            self._has_leases = True
            self._server = EmbeddedServer.launch(
                directory,
                memory=self._settings.memory,
                fsync="everysec" if durability == "local" else "always",
                lock_timeout=lock_timeout,
                thread_outlives_server=self._thread_outlives_server,
            )
        url = self._server.url if self._server is not None else found or ""
        self._url = self._url or url
        if url != self._url:  # its directory in TMPDIR now belongs to another user
            raise SolarError(f"expected the embedded store at {self._url}, it is at {url}")
        return self._server is None or (self._server.loaded() and self._without_leases())

    def _without_leases(self) -> bool:
        """Remove the leases in the data of a new server; return False if the server has ended.

        After a restart the training processes of this service still run: their leases stay.
        """
        if self._has_leases and remove_leases(self._url, training=self._first):
            self._has_leases = self._first = False
        return not self._has_leases

    def _note_end(self, error: Exception) -> None:
        """Log the reason, and let the next start wait."""
        if self._server is not None:
            self._server.kill()
        self._server, self._up = None, False
        log.warning(
            "the embedded store has ended; next start in %g s: %s", self._backoff.ended(), error
        )

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
    memory = MemoryBudget(settings.inflight_bytes)
    impression_writer = ImpressionWriter(store, kept, settings.remember_seconds, memory)
    appender = Appender(
        store, settings.backlog, settings.dedupe_window, metrics.rolled_back,
        work_limit=int(settings.backlog_work),
    )  # fmt: skip
    source_quota = SourceQuota(settings.source_share) if settings.source_share < 1.0 else None
    store_quota = StoreQuota(kept) if writing_keys(settings.keys) > 1 else None
    clicked_lists = ClickedLists(store, settings.conversion_seconds, kept, metrics.clicked_list)
    job_runner = JobRunner(store, settings, metrics.trained)
    live = LiveFeeds(store, weight_cache, metrics.streams, server_stops)
    trial_runner = TrialRunner()
    await job_runner.sweep()
    await weight_cache.start()
    exchange = exchange_counts(store, store_quota, kept) if store_quota else None
    tasks = [asyncio.create_task(exchange)] if exchange else []
    tasks.append(asyncio.create_task(clicked_lists.exchange_repeatedly()))
    try:
        yield Service(
            store, weight_cache, impression_writer, settings, source_quota, store_quota, metrics,
            appender, job_runner, memory, live, trial_runner, clicked_lists,
            read_token_keys(settings.token_keys, settings.token_seconds),
            BeaconLimits(settings.beacon_rate, BEACON_WORKER * settings.beacon_rate),
        )  # fmt: skip
    finally:
        await end(tasks)
        await live.close()
        trial_runner.close()
        await job_runner.close()
        await impression_writer.close()
        await weight_cache.close()
        await store.close()
