"""`solar serve` on a data directory that is kept, and its processes by role."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from app.observability.multiprocess import PROCESS
from app.storage.embedded.server import tied
from tests.fleets import free_ports

#: Seconds for a graceful end.
STOP_SECONDS = 60.0
#: Words of a command line, and the role of the process.
PARTS = {
    "app.runtime.worker": "worker", "app learn": "learner", "app.runtime.trial_process": "trial",
    "app.training": "training", "valkey-server": "store", "redis-server": "store",
}  # fmt: skip


class SoakService:
    """A service that is killed and started again; its log goes on in one file."""

    def __init__(self, data: Path, log: Path, workers: int, environ: Mapping[str, str]) -> None:
        self.data, self.log, self.workers = data, log, workers
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The supervisor; 0 if there is none."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start it from the main thread; it is not ready yet. It ends with this process."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SOLAR_")}
        settings = {"SOLAR_DATA_DIR": str(self.data), "SOLAR_WORKERS": str(self.workers)}
        command = [sys.executable, "-m", "app", "serve", "--port", str(self.port)]
        with self.log.open("ab") as output:
            self._process = tied(
                command, environ={**own, **settings, **self._environ}, output=output
            )

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_SECONDS)
        self._drop()
        return code

    def kill(self) -> None:
        """Send SIGKILL to the supervisor; its children end with it."""
        if self._process is not None:
            children = self.processes()
            self._process.kill()
            self._process.wait()
            self._drop()
            deadline = time.monotonic() + STOP_SECONDS
            while any(Path(f"/proc/{pid}").exists() for pid in children):
                assert time.monotonic() < deadline, "children outlive the supervisor"
                time.sleep(0.01)

    def _drop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def ended(self) -> int | None:
        """Return the exit code of a supervisor that has ended by itself."""
        return self._process.poll() if self._process else None

    def processes(self) -> dict[int, str]:
        """Return the role of each process by its id, such as `worker 0`."""
        if self._process is None:
            return {}
        found, left = {self.pid: "supervisor"}, [self.pid]
        while left:
            for child in children_of(left.pop()):
                role = _role(child)
                if role:
                    found[child] = role
                    left += [child] if role.startswith("worker") else []
        return found

    def pids_of(self, role: str) -> list[int]:
        """Return the processes of a role."""
        return [pid for pid, name in self.processes().items() if name == role]

    def pid_of(self, role: str) -> int | None:
        """Return the process of a role, if there is exactly one."""
        found = self.pids_of(role)
        return found[0] if len(found) == 1 else None

    def roles(self) -> set[str]:
        """Return the roles of a complete service."""
        return complete_roles(self.workers)

    def is_complete(self) -> bool:
        """Whether a process of each role runs."""
        return self.roles() <= set(self.processes().values())


def complete_roles(workers: int) -> set[str]:
    """Return the roles of a complete service."""
    return {"supervisor", "learner", "store", *(f"worker {at}" for at in range(workers))}


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def _role(pid: int) -> str:
    """Return the role of a process; empty for one that has ended or is about to become another."""
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        if "launcher.py" in command:
            return ""
        role = next((role for words, role in PARTS.items() if words in command), "")
        if role == "worker":
            environ = Path(f"/proc/{pid}/environ").read_bytes().decode()
            named = re.search(rf"(?:^|\0){PROCESS}=([^\0]*)", environ)
            return named[1] if named else ""
        return role
    return ""
