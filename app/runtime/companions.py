"""The store and the learner of an application that plain uvicorn runs: `uvicorn app.main:app`.

`solar serve` has a supervisor for them. Here the application itself starts them with its lifespan,
keeps them alive and ends them.
"""

import asyncio
import fcntl
import logging
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from app.config import Settings
from app.errors import SolarError, Unavailable
from app.runtime.children import LEARNER, WATCH, Child, child_environ, end_all
from app.runtime.wiring import StoreLocator, check_durability

log = logging.getLogger("solar")

SEVERAL = (
    "--workers and --reload need SOLAR_REDIS_URL; without a store of your own use "
    "`solar serve --workers N`"
)


@asynccontextmanager
async def store_and_learner(settings: Settings) -> AsyncIterator[str]:
    """The URL of the store, with a learner beside it, for as long as the application runs."""
    if not settings.redis_url and multiprocessing.parent_process() is not None:
        raise SolarError(SEVERAL)
    locator = StoreLocator(settings)
    learner = Child("learner", list(LEARNER)) if settings.learner else None
    try:
        url = locator.url()
        watching = asyncio.create_task(_watch(settings, locator, url, learner))
        try:
            yield url
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            if learner is not None:
                await asyncio.to_thread(end_all, [learner])
    finally:
        locator.close()


async def _watch(
    settings: Settings, locator: StoreLocator, url: str, learner: Child | None
) -> None:
    """Keep store and learner alive; end this process if that is in vain."""
    environ, turn, checked = child_environ(settings, url), Turn(), not settings.durability
    try:
        while True:
            _keep_store(locator, url)
            if learner is not None and turn.taken():
                learner.keep(environ)
            if not checked:
                with suppress(Unavailable, TimeoutError):
                    await check_durability(settings, url)
                    checked = True
            await asyncio.sleep(WATCH)
    except SolarError as error:
        log.error("%s", error)  # noqa: TRY400  # one line says it
        signal.raise_signal(signal.SIGTERM)
    finally:
        turn.close()


def _keep_store(locator: StoreLocator, url: str) -> None:
    """Start an embedded store again that has ended; this blocks until it has loaded its data."""
    if locator.url() != url:
        raise SolarError("the embedded store started again on another socket")


class Turn:
    """Whose turn it is to run the learner: of several workers one has it, until it ends."""

    def __init__(self) -> None:
        self._lock = -1
        shared = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if shared and multiprocessing.parent_process() is not None:
            self._lock = os.open(Path(shared) / "learner.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._ours = self._lock < 0

    def taken(self) -> bool:
        """Whether it is ours; taken if it is free."""
        if not self._ours:
            with suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._ours = True
        return self._ours

    def close(self) -> None:
        """Let another worker have it."""
        if self._lock >= 0:
            os.close(self._lock)
