"""Child processes: start, restart and stop."""

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
CHILD_CHECK_SECONDS = 0.1  # seconds between two checks of the children
CHILD_DRAIN_SECONDS = 15.0  # seconds from SIGTERM to SIGKILL
MIN_LIFETIME = 2.0  # seconds; a child that ends sooner has failed to start
MAX_FAILED_STARTS = 5  # in a row, then the service stops


class Child:
    """A child process that is restarted when it ends."""

    def __init__(self, name: str, command: list[str], inherited: tuple[int, ...] = ()) -> None:
        self.name, self._command, self._inherited = name, command, inherited
        self._process: subprocess.Popen[bytes] | None = None
        self._started, self._failed_starts = 0.0, 0

    def keep(self, environ: Mapping[str, str]) -> None:
        """Start it if it does not run; SolarError after MAX_FAILED_STARTS failed starts."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            early = monotonic() - self._started < MIN_LIFETIME
            self._failed_starts = self._failed_starts + 1 if early else 0
            log.warning("%s ended with exit code %s", self.name, self._process.returncode)
            self._close_pipe()
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise SolarError(
                    f"{self.name}: ended {MAX_FAILED_STARTS} times within {MIN_LIFETIME:g} s of "
                    "its start; see its log lines above"
                )
        self._started = monotonic()
        named = {**environ, multiprocess.PROCESS: self.name}
        self._process = server.tied(self._command, environ=named, inherited=self._inherited)

    def stop(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, deadline: float) -> None:
        """Wait until it has ended; kill it at the deadline."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("%s did not end within %g s; killing it", self.name, CHILD_DRAIN_SECONDS)
            self._process.kill()
            self._process.wait()
        self._close_pipe()

    def _close_pipe(self) -> None:
        """Close the stdin pipe of a process that has ended."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def end_all(children: list[Child]) -> None:
    """Stop children in parallel: signal all, then wait."""
    for child in children:
        child.stop()
    deadline = monotonic() + CHILD_DRAIN_SECONDS
    for child in children:
        child.wait(deadline)


def child_environ(settings: Settings, url: str, **more: str) -> dict[str, str]:
    """Return the environment of a child: all settings, the store's URL, and `more`; no env file."""
    given = {variable: getattr(settings, name) for variable, name in VARIABLES.items()}
    values = {variable: "" if one is None else str(one) for variable, one in given.items()}
    inherited = {name: value for name, value in os.environ.items() if name != ENV_FILE}
    return {**inherited, **values, "SOLAR_REDIS_URL": url, **more}
