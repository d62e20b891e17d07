"""A server whose disk loses unsynced data at a power cut.

A preloaded library records the length of a file at the start of its last completed `fdatasync`:
these bytes are on disk. A cut kills the server, truncates its files to that length and appends half
a command, because a disk may have written a part of the next page.
"""

import shutil
import subprocess
from pathlib import Path

from tests.fleets import Node

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int noted(int fd, long call) {
    struct stat before;
    char link[64], path[PATH_MAX], text[32];
    int known = fstat(fd, &before) == 0;
    int result = syscall(call, fd);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 16);
    if (result != 0 || !known || size <= 0) return result;
    snprintf(path + size, 16, ".synced");
    int note = open(path, O_WRONLY | O_CREAT, 0600);
    int length = snprintf(text, sizeof text, "%020lld", (long long)before.st_size);
    if (note >= 0 && pwrite(note, text, length, 0) == length) close(note);
    return result;
}

int fdatasync(int fd) { return noted(fd, SYS_fdatasync); }
int fsync(int fd) { return noted(fd, SYS_fsync); }
"""
PARTIAL_COMMAND = b"*3\r\n$3\r\nSET\r\n$5\r\nso"
COMPILER = shutil.which("cc")


def shim(directory: Path, code: str = SOURCE) -> Path:
    """Compile a library to preload."""
    assert COMPILER is not None
    source, made = directory / "synced.c", directory / "synced.so"
    source.write_text(code)
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


class PowerCutNode(Node):
    """A node with simulated power cuts."""

    def __init__(self, directory: Path, library: Path, **settings: str) -> None:
        super().__init__(directory, None, **settings)
        self._library = library

    def command(self) -> list[str]:
        return ["env", f"LD_PRELOAD={self._library}", *super().command()]

    def unsynced(self) -> int:
        """Return the bytes that a power cut would lose now."""
        return sum(file.stat().st_size - _synced(file) for file in self._logs())

    def cut_power(self) -> int:
        """Kill it and drop unsynced data; return the number of lost bytes."""
        self.kill()
        lost = self.unsynced()
        for file in self._logs():
            synced = _synced(file)
            with file.open("r+b") as opened:
                opened.truncate(synced)
                opened.seek(synced)
                opened.write(PARTIAL_COMMAND)
            _note(file).write_text(f"{synced:020d}")
        return lost

    def _logs(self) -> list[Path]:
        return [*(self.directory / "appendonlydir").glob("*.incr.aof")]


def _note(file: Path) -> Path:
    return file.with_name(f"{file.name}.synced")


def _synced(file: Path) -> int:
    return int(_note(file).read_text()) if _note(file).exists() else 0
