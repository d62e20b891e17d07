"""A Redis started like in `k8s/overlays/single`, with its script, settings and users."""

import contextlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import redis

from app.storage.embedded.server import server_binary
from tests.servers import until

SINGLE = Path(__file__).parents[1] / "k8s" / "overlays" / "single"
#: Redis before 7.2 does not start with it.
NEWER = "+client|setinfo "
PASSWORD, OPERATORS = "a1" * 32, "b2" * 32


@dataclass(frozen=True, slots=True)
class Single:
    """The URLs for the service and for the operator, and the data directory."""

    url: str
    operator: str
    data: Path


@contextlib.contextmanager
def single(data: Path | None = None) -> Iterator[Single]:
    """Run the server in temporary directories instead of the pod's, with `data` as its volume."""
    with tempfile.TemporaryDirectory(prefix="solar-test-") as directory:
        root = Path(directory)
        places = {"/etc/solar-redis": root / "etc", "/run/solar-redis": root / "run"}
        places["/data"] = data or root / "data"
        for place in (*places.values(), root / "bin"):
            place.mkdir(exist_ok=True)
        port = _free_port()
        for file in ("redis.conf", "solar.acl", "start.sh"):
            text = (SINGLE / file).read_text().replace("port 6379", f"port {port}")
            for known, replaced in places.items():
                text = text.replace(known, str(replaced))
            (root / "etc" / file).write_text(text if _is_new() else text.replace(NEWER, ""))
        (root / "bin" / "valkey-server").symlink_to(server_binary())
        passwords = {"SOLAR_PASSWORD": PASSWORD, "OPERATOR_PASSWORD": OPERATORS}
        path = f"{root / 'bin'}:{os.environ['PATH']}"
        process = subprocess.Popen(
            ["/bin/sh", str(root / "etc" / "start.sh")],
            env={**os.environ, **passwords, "PATH": path},
            stdout=subprocess.DEVNULL,
        )
        address = f"127.0.0.1:{port}/0"
        at = Single(
            f"redis://solar:{PASSWORD}@{address}",
            f"redis://operator:{OPERATORS}@{address}",
            places["/data"],
        )
        try:
            until(lambda: process.poll() is None and _answers(at.operator))
            yield at
        finally:
            process.terminate()
            process.wait()


def _is_new() -> bool:
    said = subprocess.run([server_binary(), "--version"], capture_output=True, check=True)
    return b" v=7.0." not in said.stdout


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with contextlib.closing(redis.Redis.from_url(url)) as connection:
            return bool(connection.ping())
    except redis.RedisError:
        return False
