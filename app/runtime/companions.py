"""The store and the learner of an application under plain uvicorn: `uvicorn app.main:app`.

`solar serve` has a supervisor for them. Here a thread of the application starts, restarts and stops
them, so requests never wait for that. The kernel ends both when this thread ends.
"""

import asyncio
import fcntl
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from app.config import Settings
from app.errors import SolarError
from app.observability import multiprocess
from app.runtime.children import CHILD_CHECK_SECONDS, child_environ, end_all, learners
from app.runtime.wiring import StoreLocator, is_durable

log = logging.getLogger("solar")

WORKERS_WITHOUT_STORE = (
    "--workers and --reload need SOLAR_REDIS_URL; to use the embedded store run "
    "`solar serve --workers N`"
)


class Started(NamedTuple):
    """The store's URL, and the directory of learner metrics and status (empty: the shared one)."""

    url: str
    learner_metrics: str


@asynccontextmanager
async def store_and_learner(settings: Settings) -> AsyncIterator[Started]:
    """Run a store and a learner while the application runs."""
    if not settings.redis_url and multiprocessing.parent_process() is not None:
        raise SolarError(WORKERS_WITHOUT_STORE)
    multiprocess.prepare_directory()
    keeper = Keeper(settings)
    keeper.start()
    try:
        yield await asyncio.wrap_future(keeper.started)
    finally:
        keeper.stop.set()
        await asyncio.to_thread(keeper.join)


class Keeper(threading.Thread):
    """A thread that restarts store and learner until `stop`.

    It ends the process only if the store lacks the configured durability.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="solar-companions", daemon=True)
        self._settings = settings
        self._learners = learners(settings)
        self.started: Future[Started] = Future()
        self.stop = threading.Event()

    def run(self) -> None:
        """Start, watch and stop the processes."""
        try:
            with ExitStack() as stack:
                self._keep(stack)
        except BaseException as error:  # the application waits for `started`
            if self.stop.is_set():  # the application no longer waits
                return
            if not self.started.done():
                self.started.set_exception(error)
                return
            known = isinstance(error, SolarError)
            why = str(error) if known else "internal error"
            log.error(  # noqa: TRY400  # a known error needs no traceback
                "stopping the service: %s", why, exc_info=None if known else error
            )
            os.kill(os.getpid(), signal.SIGTERM)

    def _keep(self, stack: ExitStack) -> None:
        locator = StoreLocator(self._settings, thread_outlives_server=True)
        stack.callback(locator.close)
        url = locator.url(self.stop.is_set)
        durable = self.stop.is_set() or self._is_durable(url)
        watches = bool(self._learners) or not self._settings.redis_url
        shared, separate = os.environ.get(multiprocess.DIRECTORY, ""), ""
        if watches and not shared:
            separate = stack.enter_context(multiprocess.new_directory())
        directory = shared or separate
        lock = LearnerLock()
        stack.callback(lock.release)
        stack.callback(end_all, self._learners)
        environ = child_environ(self._settings, url, **{multiprocess.DIRECTORY: directory})
        status = multiprocess.StatusFile(directory)
        while not self.stop.is_set():
            locator.keep()
            if watches and lock.taken():
                for learner in self._learners:
                    learner.keep(environ)
                status.write(locator.status() | {one.name: one.status() for one in self._learners})
            if not self.started.done():
                self.started.set_result(Started(url, separate))
            durable = durable or self._is_durable(url)
            self.stop.wait(CHILD_CHECK_SECONDS if watches or not durable else None)

    def _is_durable(self, url: str) -> bool:
        """Whether the store has the configured durability; `solar serve` checks for its workers."""
        return multiprocess.PROCESS in os.environ or is_durable(self._settings, url)


class LearnerLock:
    """A lock that selects the uvicorn worker that runs the learner.

    The lock file is in the metrics directory, which all workers of one parent share. A process that
    is not such a worker always holds the lock.
    """

    def __init__(self) -> None:
        self._lock = -1
        shared = os.environ.get(multiprocess.DIRECTORY)
        if shared and multiprocessing.parent_process() is not None:
            self._lock = os.open(Path(shared) / "learner.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._held = self._lock < 0

    def taken(self) -> bool:
        """Take the lock if it is free; return whether this process holds it."""
        if not self._held:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self._held = True
        return True

    def release(self) -> None:
        """Release the lock to another worker."""
        if self._lock >= 0:
            os.close(self._lock)
