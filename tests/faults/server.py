"""A server that tests kill and restart on the same data."""

import contextlib
import signal
import socket
import subprocess
import time
from pathlib import Path

from app.storage.embedded.server import server_binary


class Server:
    """A valkey-server on a unix socket, AOF on, fsync always."""

    def __init__(self, directory: Path, memory: int = 0) -> None:
        directory.mkdir()
        self.kills = 0
        self._directory, self._memory = directory, memory
        self.socket = directory / "s"
        self.url = f"unix://{self.socket}"
        self.start()

    def start(self) -> None:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "dir": str(self._directory),
            "logfile": str(self._directory / "log"),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory": str(self._memory),
            "maxmemory-policy": "noeviction",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([server_binary(), *words], start_new_session=True)
        self._wait()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.kills += 1

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _wait(self, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.005)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.settimeout(1.0)
            connection.connect(str(self.socket))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False
