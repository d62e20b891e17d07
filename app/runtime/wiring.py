"""The only place that plugs things together: the store, and what a worker serves with."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from app.api.dependencies import Service, Shares
from app.api.routers.health import Ops
from app.api.routing import Front
from app.config import Environment
from app.errors import SolarError, Unavailable
from app.ingest.appender import Poster
from app.observability.metrics import Telemetry
from app.serving.impression_writer import Rememberer
from app.serving.weight_cache import Ranker
from app.storage.embedded import server
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from app.training.job_runner import Workshop

log = logging.getLogger("solar")
ASKED = 1.0  # seconds that a store gets to say how safe it is, before the next try


class Cellar:
    """Where the store is: the one that is named, the one that runs here already, or a new one.

    A server of our own that has ended is started again the next time it is asked for.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._server: EmbeddedServer | None = None

    def url(self) -> str:
        """Where the store is now."""
        given, directory = self._environment.redis_url, self._environment.data_dir
        if given:
            return given
        if self._environment.durability == "replicated":
            raise SolarError(
                "SOLAR_DURABILITY is replicated, but an embedded server has no replica"
            )
        if self._server is not None and self._server.alive():
            return self._server.url
        self.close()  # what is left of one that ended
        found = server.find(directory)
        if found is None:
            self._server = EmbeddedServer.start(
                directory, memory=self._environment.memory, fsync=self._fsync()
            )
            found = self._server.url
        return found

    def _fsync(self) -> str:
        return "everysec" if self._environment.durability == "local" else "always"

    def close(self) -> None:
        """Stop the server, if it is ours."""
        if self._server is not None:
            self._server.stop()
            self._server = None


@contextmanager
def store_url(environment: Environment) -> Iterator[str]:
    """Where the store is, for as long as one command takes."""
    cellar = Cellar(environment)
    try:
        yield cellar.url()
    finally:
        cellar.close()


def is_safe(environment: Environment, url: str) -> bool:
    """Whether the store is as safe as was asked for; NotDurable if not, False if it is not there.

    Without a level nothing is asked; the learner will say what is wrong.
    """
    if not environment.durability:
        return True

    async def ask() -> None:
        store = Store.open(url, environment.durability)
        try:
            async with asyncio.timeout(ASKED):
                for complaint in await store.complaints():
                    log.warning("%s", complaint)
        finally:
            await store.close()

    try:
        asyncio.run(ask())
    except (Unavailable, TimeoutError):
        return False
    return True


@asynccontextmanager
async def service(environment: Environment) -> AsyncIterator[Front]:
    """Everything that a worker serves with."""
    store, telemetry = Store.open(environment.redis_url, environment.durability), Telemetry()
    ranker = Ranker(store, telemetry.served)
    rememberer = Rememberer(store, environment.impression_seconds, environment.remember_seconds)
    poster = Poster(store, environment.backlog, environment.impression_seconds, telemetry.returned)
    shares = Shares(environment.source_share)
    workshop = Workshop(store, environment, telemetry.trained)
    plugged = Service(store, ranker, rememberer, environment, shares, telemetry, poster, workshop)
    await ranker.start()
    try:
        yield Front(environment, telemetry, Ops(store, ranker, telemetry), plugged)
    finally:
        await workshop.close()
        await rememberer.close()
        await ranker.close()
        await store.close()
