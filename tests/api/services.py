"""A complete service for a test, and its client.

`serving` runs `solar serve` as a user does: processes, sockets, a learner. `application` runs
`create_app` in this process without a learner, for tests of HTTP alone.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi.testclient import TestClient

from app.config import Settings
from app.main import create_app
from tests.servers import TIMEOUT, until

#: Model settings without exploration, prior and forgetting: classical clicks.
PLAIN = {"clicks": "click-skip-above", "prior": 0, "forgetting": 0}

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def application(url: str, *, server: str = "testserver", **settings: Any) -> Iterator[TestClient]:
    """Run the application on a store; yield a client, which gets an answer also after a bug."""
    long_timeouts = {"remember_seconds": 20.0, **settings}
    app = create_app(Settings(learner=False, **long_timeouts), url)
    with TestClient(app, f"http://{server}", raise_server_exceptions=False) as client:
        yield client


@dataclass
class Running:
    """A running service: its process, its URL, its data directory, its log file."""

    process: "subprocess.Popen[bytes]"
    url: str
    data: Path
    log: Path

    def client(self, **options: Any) -> httpx.Client:
        """Open a client of the service."""
        return httpx.Client(base_url=self.url, timeout=TIMEOUT, trust_env=False, **options)

    def logged(self) -> str:
        """Return the log so far."""
        return self.log.read_text()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(3 * TIMEOUT)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def serving(
    *flags: str,
    data: Path | None = None,
    environ: Mapping[str, str] | None = None,
    solar: Sequence[str] = (sys.executable, "-m", "app"),
    folder: Path = ROOT,
) -> Iterator[Running]:
    """Start a service on a free port with an embedded store; yield it once it is ready."""
    with contextlib.ExitStack() as stack:
        if data is None:
            data = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="solar-test-", ignore_cleanup_errors=True)
                )
            )
        log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="solar-log-"))) / "log"
        command = [*solar, "serve", "--port", "0", *flags]
        long_timeouts = {"SOLAR_REMEMBER_SECONDS": "20"}  # other tests may load the machine
        environ = {**_environ(), **long_timeouts, "SOLAR_DATA_DIR": str(data), **(environ or {})}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=folder, env=environ, stdout=output, stderr=output
            )
        try:
            running = Running(process, _address(process, log), data, log)
            with running.client() as client:
                until(lambda: _ready(client, process, log))
            yield running
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def uvicorn(*flags: str, data: Path, **environ: str) -> Iterator[Running]:
    """Start uvicorn on a free port; yield it before it is ready."""
    command = [sys.executable, "-m", "uvicorn", "app.main:app", "--port", "0", *flags]
    environment = {
        **_environ(),
        "SOLAR_DATA_DIR": str(data),
        "SOLAR_REMEMBER_SECONDS": "20",
        **environ,
    }
    with tempfile.TemporaryDirectory(prefix="solar-log-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield Running(process, "", data, log)
        finally:
            with contextlib.suppress(ProcessLookupError):  # its workers too, which outlive it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def uvicorn_ready(*flags: str, data: Path, **environ: str) -> Iterator[Running]:
    """Start uvicorn; yield it once it is ready."""
    with uvicorn(*flags, data=data, **environ) as running:

        def address() -> "re.Match[str] | None":
            assert running.process.poll() is None, running.logged()
            return re.search(r"running on (http://[0-9.:]+)", running.logged())

        until(address)
        found = address()
        assert found is not None
        running.url = found[1].replace("0.0.0.0", "127.0.0.1")  # noqa: S104  # not bound, replaced
        until(lambda: _answers(running))  # workers listen later than their parent reports
        yield running


def _answers(running: Running) -> bool:
    with running.client() as http:
        try:
            return http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SOLAR_")}


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    def match() -> "re.Match[str] | None":
        assert process.poll() is None, log.read_text()
        return re.search(r"serving on (http://[^\"]+)", log.read_text())

    until(match)
    found = match()
    assert found is not None
    return found[1]


def _ready(client: httpx.Client, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
