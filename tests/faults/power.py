"""A server whose disk forgets, at a power cut, what was not synced to it.

A library of a few lines in front of libc writes down how long a file was when its last `fdatasync`
began that has ended: so much of it is on the disk for certain. At the cut the server is killed and
its files end there, but for half a command, as a disk may have got a part of the next page.
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
HALF = b"*3\r\n$3\r\nSET\r\n$5\r\nso"
COMPILER = shutil.which("cc")


def shim(directory: Path) -> Path:
    """The library, compiled."""
    assert COMPILER is not None
    source, made = directory / "synced.c", directory / "synced.so"
    source.write_text(SOURCE)
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


class Mains(Node):
    """A node that can lose its power."""

    def __init__(self, directory: Path, library: Path, **settings: str) -> None:
        super().__init__(directory, None, **settings)
        self._library = library

    def command(self) -> list[str]:
        return ["env", f"LD_PRELOAD={self._library}", *super().command()]

    def unsynced(self) -> int:
        """How many bytes a power cut would take now."""
        return sum(file.stat().st_size - _synced(file) for file in self._logs())

    def cut_power(self) -> int:
        """Kill it and forget what was not synced; how many bytes that was."""
        self.kill()
        gone = self.unsynced()
        for file in self._logs():
            synced = _synced(file)
            with file.open("r+b") as opened:
                opened.truncate(synced)
                opened.seek(synced)
                opened.write(HALF)
            _note(file).write_text(f"{synced:020d}")
        return gone

    def _logs(self) -> list[Path]:
        return [*(self.directory / "appendonlydir").glob("*.incr.aof")]


def _note(file: Path) -> Path:
    return file.with_name(f"{file.name}.synced")


def _synced(file: Path) -> int:
    return int(_note(file).read_text()) if _note(file).exists() else 0
