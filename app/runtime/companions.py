"""The store and the learner of an application that plain uvicorn runs: `uvicorn app.main:app`.

`solar serve` has a supervisor for them. Here a thread of the application starts them, keeps them
alive and ends them, so that requests never wait for that. The kernel ends both when this thread
ends, however that happens.
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
from app.runtime.children import LEARNER, WATCH, Child, child_environ, end_all
from app.runtime.wiring import StoreLocator, is_safe

log = logging.getLogger("solar")

RETRY = 1.0  # seconds until a process that could not be started is tried again
SEVERAL = (
    "--workers and --reload need SOLAR_REDIS_URL; without a store of your own use "
    "`solar serve --workers N`"
)


class Started(NamedTuple):
    """The URL of the store, and the directory of the learner's metrics ("": in the common one)."""

    url: str
    learner_metrics: str


@asynccontextmanager
async def store_and_learner(settings: Settings) -> AsyncIterator[Started]:
    """A store and a learner for as long as the application runs."""
    if not settings.redis_url and multiprocessing.parent_process() is not None:
        raise SolarError(SEVERAL)
    multiprocess.prepare_directory()
    keeper = Keeper(settings)
    keeper.start()
    try:
        yield await asyncio.wrap_future(keeper.started)
    finally:
        keeper.stop.set()
        await asyncio.to_thread(keeper.join)


class Keeper(threading.Thread):
    """Keeps store and learner alive until told to stop; ends this process if that is in vain."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="solar-companions", daemon=True)
        self._settings = settings
        self._learners = [Child("learner", list(LEARNER))] if settings.learner else []
        self.started: Future[Started] = Future()
        self.stop = threading.Event()

    def run(self) -> None:
        """Start, keep, end."""
        try:
            with ExitStack() as stack:
                self._keep(stack)
        except BaseException as error:  # whoever waits for the start must know
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
        locator = StoreLocator(self._settings, thread_lives=True)
        stack.callback(locator.close)
        url, learner_metrics, told = locator.url(), "", {}
        if self._learners and multiprocess.DIRECTORY not in os.environ:
            learner_metrics = stack.enter_context(multiprocess.new_directory())
            told = {multiprocess.DIRECTORY: learner_metrics}
        environ = child_environ(self._settings, url, **told)
        lock = LearnerLock()
        stack.callback(lock.release)
        safe = self._is_safe(url)
        stack.callback(end_all, self._learners)
        for learner in self._learners if lock.taken() else ():
            learner.keep(environ)
        self.started.set_result(Started(url, learner_metrics))
        if safe and self._settings.redis_url and not self._learners:  # nothing to keep alive
            self.stop.wait()
        while not self.stop.wait(WATCH):
            try:
                if locator.url() != url:  # it was started again
                    raise SolarError("the embedded store started again on another socket")
                for learner in self._learners if lock.taken() else ():
                    learner.keep(environ)
            except OSError as error:  # too many processes or open files: later
                log.warning("cannot start a process: %s", error.strerror)
                self.stop.wait(RETRY)
            safe = safe or self._is_safe(url)

    def _is_safe(self, url: str) -> bool:
        """Whether the store is as safe as was asked for; `solar serve` checks for its workers."""
        return multiprocess.PROCESS in os.environ or is_safe(self._settings, url)


class LearnerLock:
    """Which of uvicorn's workers runs the learner: whoever has the lock, until it ends.

    It lies in the directory of metrics, which all workers of one parent share. A process that is
    no such worker has it anyway.
    """

    def __init__(self) -> None:
        self._lock = -1
        shared = os.environ.get(multiprocess.DIRECTORY)
        if shared and multiprocessing.parent_process() is not None:
            self._lock = os.open(Path(shared) / "learner.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._ours = self._lock < 0

    def taken(self) -> bool:
        """Whether it is ours; taken if it is free."""
        if not self._ours:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self._ours = True
        return True

    def release(self) -> None:
        """Let another worker have it."""
        if self._lock >= 0:
            os.close(self._lock)
