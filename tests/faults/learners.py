"""Learner processes that tests start, kill and pause."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[2]
LEASE = 1.0
NONE: Mapping[str, float] = MappingProxyType({})

# A learner that keeps a version every 20 records, so that the log is trimmed. It releases a model
# without records, as one of thousands. argv: url, other options as JSON
EAGER = f"""
import asyncio, json, sys
from app.cli.learn import learn_until_stopped
from app.config import Settings
from app.learning.options import LearnerOptions
from app.storage.store import Store
options = LearnerOptions(lease={LEASE}, batch=16, version=20, versions=3, always=0, rest=0.3,
                         **json.loads(sys.argv[2]))
asyncio.run(learn_until_stopped(Store.open(sys.argv[1]), options, Settings()))
"""


class LearnerProcess:
    """`solar learn` on a store."""

    def __init__(
        self, url: str, log: Path, *, eager: bool = False, options: Mapping[str, float] = NONE
    ) -> None:
        eagerly = ["-c", EAGER, url, json.dumps(dict(options))]
        solar = eagerly if eager else ["-m", "app", "learn", "--redis-url", url]
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *solar],
                cwd=ROOT,
                env={**os.environ, "SOLAR_LEASE": str(LEASE)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill it with SIGKILL, also if it is paused."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._process.terminate()

    def runs(self) -> bool:
        return self._process.poll() is None

    def code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll()


class LearnerProcesses:
    """All learners of a test; they end with the test and must log no traceback."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all: list[LearnerProcess] = []
        self.kills = 0
        self.pauses = 0

    def start(self, url: str, *, eager: bool = False, **options: float) -> LearnerProcess:
        """Start a learner; options are those of an eager one."""
        log = self._directory / f"learner{len(self._all)}.log"
        self._all.append(LearnerProcess(url, log, eager=eager, options=options))
        return self._all[-1]

    def kill(self, learner: LearnerProcess) -> None:
        learner.kill()
        self.kills += 1

    def pause(self, learner: LearnerProcess) -> None:
        learner.pause()
        self.pauses += 1

    def kill_all(self) -> None:
        for learner in self._all:
            learner.kill()

    def tracebacks(self) -> list[str]:
        """Return the end of every log that holds a traceback."""
        logs = [log.read_text() for log in sorted(self._directory.glob("learner*.log"))]
        return [text[-3000:] for text in logs if "Traceback" in text]
