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
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from app.config import Settings
from app.errors import SolarError, Unavailable
from app.observability import multiprocess
from app.runtime.children import LEARNER, WATCH, Child, child_environ, end_all
from app.runtime.wiring import StoreLocator, check_durability

log = logging.getLogger("solar")

SEVERAL = (
    "--workers and --reload need SOLAR_REDIS_URL; without a store of your own use "
    "`solar serve --workers N`"
)


@asynccontextmanager
async def store_and_learner(settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """The URL of the store, and where a learner beside it counts, while the application runs."""
    if not settings.redis_url and multiprocessing.parent_process() is not None:
        raise SolarError(SEVERAL)
    multiprocess.prepare_directory()
    locator = StoreLocator(settings)
    learners = [Child("learner", list(LEARNER))] if settings.learner else []
    with ExitStack() as stack:
        stack.callback(locator.close)
        url, beside, told = locator.url(), "", {}
        if learners and multiprocess.DIRECTORY not in os.environ:
            beside = stack.enter_context(multiprocess.new_directory())
            told = {multiprocess.DIRECTORY: beside}
        environ = child_environ(settings, url, **told)
        watching = asyncio.create_task(_watch(settings, locator, url, learners, environ))
        try:
            yield url, beside
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await asyncio.to_thread(end_all, learners)


async def _watch(
    settings: Settings,
    locator: StoreLocator,
    url: str,
    learners: list[Child],
    environ: dict[str, str],
) -> None:
    """Keep store and learner alive; end this process if that is in vain.

    With a store that is named and no learner there is nothing to keep, once the store was checked;
    `solar serve` has checked it for its workers.
    """
    turn = Turn()
    checked = not settings.durability or multiprocess.PROCESS in os.environ
    try:
        while learners or not settings.redis_url or not checked:
            _keep_store(locator, url)
            for learner in learners if turn.taken() else ():
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
        shared = os.environ.get(multiprocess.DIRECTORY)
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
