"""Memory, descriptors and threads of processes, and the size of a directory."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ESTABLISHED = "01"
PROC = Path("/proc")


class Sample(NamedTuple):
    """A process at a moment, in seconds since the start; `rss` is in bytes.

    `descriptors` leaves out connections of HTTP clients: they choose the worker.
    """

    at: float
    role: str
    pid: int
    rss: int
    descriptors: int
    threads: int


def read_sample(at: float, role: str, pid: int, clients: set[str]) -> Sample | None:
    """Read a process; None if it has ended. `clients` are the sockets of HTTP clients."""
    with suppress(OSError, KeyError):
        lines = (PROC / str(pid) / "status").read_text().splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        rss, threads = int(fields["VmRSS"].split()[0]) * 1024, int(fields["Threads"])
        return Sample(at, role, pid, rss, _descriptors(pid, clients), threads)
    return None


def _descriptors(pid: int, clients: set[str]) -> int:
    folder, count = PROC / str(pid) / "fd", 0
    for name in os.listdir(folder):  # noqa: PTH208  # names only, every few seconds
        with suppress(OSError):
            count += os.readlink(folder / name) not in clients  # noqa: PTH115  # as text
    return count


def client_sockets(port: int) -> set[str]:
    """Return the sockets of connections to a TCP port, as /proc names them."""
    local = f":{port:04X}"
    rows = (line.split() for line in (PROC / "net/tcp").read_text().splitlines()[1:])
    return {f"socket:[{row[9]}]" for row in rows
            if row[1].endswith(local) and row[3] == ESTABLISHED}  # fmt: skip


def directory_bytes(directory: Path) -> int:
    """Return the size of all files in a directory."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
    return total
