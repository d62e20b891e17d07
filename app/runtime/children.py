"""Child processes: start, restart after a pause, and stop."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic

from app.config import ENV_FILE, VARIABLES, Settings
from app.errors import SolarError
from app.observability import multiprocess
from app.storage.embedded import server

log = logging.getLogger("solar")

PYTHON = (sys.executable, "-P", "-m")  # -P: import no `app` from the working directory
LEARNER = (*PYTHON, "app", "learn")
LEARNER_NICE = 5  # requests go first where cores are few
CHILD_CHECK_SECONDS = 0.1  # seconds between two checks of the children
CHILD_DRAIN_SECONDS = 15.0  # seconds from SIGTERM to SIGKILL
FIRST_RESTART_PAUSE = 0.1  # seconds from the end of a process to its next start; it doubles
LONGEST_RESTART_PAUSE = 5.0
STABLE_SECONDS = 30.0  # a process that lived this long restarts after the first pause
MAX_FAILED_STARTS = 5  # of a process before the service was ever ready, then the service stops


class Backoff:
    """The pause between two starts: it doubles, until a start has lasted for STABLE_SECONDS."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._started = self._next = self._pause = 0.0
        self.failures = 0

    def due(self) -> bool:
        """Whether the pause is over."""
        return self._clock() >= self._next

    def started(self) -> None:
        """Note a start."""
        self._started = self._clock()

    def ended(self) -> float:
        """Note the end of a process, or a failed start; return the pause in seconds."""
        now = self._clock()
        stable = self._pause == 0.0 or now - self._started >= STABLE_SECONDS
        self._pause = FIRST_RESTART_PAUSE if stable else min(2 * self._pause, LONGEST_RESTART_PAUSE)
        self._next = now + self._pause
        self.failures += 1
        return self._pause


class Child:
    """A child process that is restarted when it ends."""

    def __init__(
        self, name: str, command: list[str], inherited: tuple[int, ...] = (), nice: int = 0
    ) -> None:
        self.name, self._command, self._inherited, self._nice = name, command, inherited, nice
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff()
        self._ready: Path | None = None  # the file by which the process reports that it is ready
        self.up = self.was_up = False

    def status(self) -> multiprocess.ProcessStatus:
        """Return whether it is up, and how often it has ended or could not be started."""
        return multiprocess.ProcessStatus(self.up, self._backoff.failures)

    def keep(self, environ: Mapping[str, str]) -> None:
        """Note whether it is up; start it if it does not run and its pause is over."""
        if self._process is not None:
            self.up = self._has_reported()
            self.was_up = self.was_up or self.up
            if self._process.poll() is None:
                return
            pause = self._backoff.ended()
            log.warning(
                "%s ended with exit code %s; next start in %g s",
                self.name, self._process.returncode, pause,
            )  # fmt: skip
            self._close_pipe()
            self._process, self.up = None, False
        if self._backoff.due():
            self._start({**environ, multiprocess.PROCESS: self.name})

    def _start(self, environ: Mapping[str, str]) -> None:
        self._backoff.started()
        self._ready = multiprocess.ready_file(environ)
        try:
            if self._ready is not None:
                self._ready.unlink(missing_ok=True)
            self._process = server.tied(
                self._command, environ=environ, inherited=self._inherited, nice=self._nice
            )
        except OSError as error:  # too many processes or open files
            pause = self._backoff.ended()
            reason = error.strerror
            log.warning("cannot start %s: %s; next attempt in %g s", self.name, reason, pause)

    def _has_reported(self) -> bool:
        return self.up or (self._ready is not None and self._ready.is_file())

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


def learners(settings: Settings) -> list[Child]:
    """Return the learner of a service; none if the settings say that it runs elsewhere."""
    return [Child("learner", list(LEARNER), nice=LEARNER_NICE)] if settings.learner else []


def check_first_start(workers: Iterable[Child]) -> None:
    """Raise SolarError if one has failed MAX_FAILED_STARTS times and none was ever up."""
    failed = next((one for one in workers if one.status().restarts >= MAX_FAILED_STARTS), None)
    if failed is not None and not any(one.was_up for one in workers):
        raise SolarError(
            f"{failed.name}: ended {MAX_FAILED_STARTS} times before any worker was ready; "
            "see its log lines above"
        )


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
