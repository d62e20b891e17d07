"""`solar serve`: store, learner and workers as processes, each started again if it ends.

The supervisor itself serves nothing and learns nothing, so nothing that happens to a request can
end it. Whatever ends it, kill -9 included, ends them all: the children are tied to it.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import fields
from time import monotonic

from app.config import Settings
from app.errors import SolarError
from app.runtime.wiring import StoreLocator, is_safe
from app.runtime.worker import listening as open_socket
from app.storage.embedded import server

log = logging.getLogger("solar")

WATCH = 0.1  # seconds between two looks at the children
CHILD_DRAIN_SECONDS = 15.0  # seconds that a child gets to end
QUICK = 2.0  # a child that ends sooner did not really start,
MOST_QUICK_ENDS = 5  # and after so many such starts in a row we give up


class Child:
    """A process of ours that is started again if it ends."""

    def __init__(self, name: str, command: list[str], inherited: tuple[int, ...] = ()) -> None:
        self.name, self._command, self._inherited = name, command, inherited
        self._process: subprocess.Popen[bytes] | None = None
        self._started, self._quick = 0.0, 0

    def keep(self, environ: Mapping[str, str]) -> None:
        """Start it if it does not run; SolarError if that is in vain."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            self._quick = self._quick + 1 if monotonic() - self._started < QUICK else 0
            log.warning("%s ended with %s", self.name, self._process.returncode)
            self._let_go()
            if self._quick >= MOST_QUICK_ENDS:
                raise SolarError(
                    f"{self.name}: it ended {MOST_QUICK_ENDS} times right after its start"
                )
        self._started = monotonic()
        self._process = server.tied(self._command, environ=environ, inherited=self._inherited)

    def stop(self) -> None:
        """Ask it to end."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, deadline: float) -> None:
        """Wait until it has ended; kill it if that takes too long."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("%s did not end in time", self.name)
            self._process.kill()
            self._process.wait()
        self._let_go()

    def _let_go(self) -> None:
        """Close the pipe of a process that has ended."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def run_supervisor(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stop.set())
    locator = StoreLocator(settings)
    listening = open_socket(settings.host, settings.port)
    try:
        with tempfile.TemporaryDirectory(prefix="solar-metrics-") as counted:
            _supervise(settings, locator, listening, counted, stop)
    finally:
        listening.close()
        locator.close()


def _supervise(
    settings: Settings,
    locator: StoreLocator,
    listening: socket.socket,
    counted: str,
    stop: threading.Event,
) -> None:
    python = [sys.executable, "-P", "-m"]  # -P: import no `app` from the working directory
    number = listening.fileno()
    workers = [
        Child(f"worker {at}", [*python, "app.runtime.worker", str(number)], (number,))
        for at in range(settings.workers)
    ]
    learners = [Child("learner", [*python, "app", "learn"])] if settings.learner else []
    url = locator.url()
    safe = is_safe(settings, url)
    log.info("serving on http://%s:%d", settings.host, listening.getsockname()[1])
    try:
        while not stop.is_set():
            for child in (*workers, *learners):
                child.keep(_environ(settings, url, counted))
            stop.wait(WATCH)
            safe = safe or is_safe(settings, url)
            if not stop.is_set() and (now := locator.url()) != url:
                url = now
                _end(workers + learners)
    finally:
        listening.close()  # nobody new; who is in is answered
        _end(workers)
        _end(learners)


def _end(children: list[Child]) -> None:
    for child in children:
        child.stop()
    deadline = monotonic() + CHILD_DRAIN_SECONDS
    for child in children:
        child.wait(deadline)


def _environ(settings: Settings, url: str, counted: str) -> dict[str, str]:
    """What a child is told: all our settings, and where the store is."""
    names = [one.name for one in fields(Settings)]
    told = {f"SOLAR_{name.upper()}": str(getattr(settings, name)) for name in names}
    told |= {"SOLAR_REDIS_URL": url, "PROMETHEUS_MULTIPROC_DIR": counted}
    return {**os.environ, **told}
