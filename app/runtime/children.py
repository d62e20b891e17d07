"""Processes that a process of ours starts, keeps alive and ends."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from time import monotonic

from app.config import ENV_FILE, VARIABLES, Settings
from app.errors import SolarError
from app.observability import multiprocess
from app.storage.embedded import server

log = logging.getLogger("solar")

PYTHON = (sys.executable, "-P", "-m")  # -P: import no `app` from the working directory
LEARNER = (*PYTHON, "app", "learn")
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
        named = {**environ, multiprocess.PROCESS: self.name}
        self._process = server.tied(self._command, environ=named, inherited=self._inherited)

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


def end_all(children: list[Child]) -> None:
    """End children: all are asked first, so that they end at the same time."""
    for child in children:
        child.stop()
    deadline = monotonic() + CHILD_DRAIN_SECONDS
    for child in children:
        child.wait(deadline)


def child_environ(settings: Settings, url: str, **more: str) -> dict[str, str]:
    """What a child is told: all our settings, so it needs no env file, the store, and more."""
    told = {variable: str(getattr(settings, name)) for variable, name in VARIABLES.items()}
    inherited = {name: value for name, value in os.environ.items() if name != ENV_FILE}
    return {**inherited, **told, "SOLAR_REDIS_URL": url, **more}
