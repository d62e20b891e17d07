"""A disk that becomes full: a preloaded library limits what is written below a directory.

The bytes that may still be written are in a file that all processes map, so a limit takes effect at
once in all of them. The write that exceeds it is cut short, the next one fails with ENOSPC, and the
file system reports that little is free.
"""

import os
import struct
import subprocess
from pathlib import Path

from tests.faults.power import COMPILER

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int64_t *left;  /* bytes; negative: no limit */
static const char *below;

__attribute__((constructor)) static void map_left(void) {
    const char *path = getenv("SOLAR_DEV_DISK");
    below = getenv("SOLAR_DEV_DISK_BELOW");
    int file = path && below ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(0, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) left = found;
    close(file);
}

static int limited(int fd) {
    struct stat about;
    char link[64], path[PATH_MAX];
    if (!left || __atomic_load_n(left, __ATOMIC_SEQ_CST) < 0) return 0;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return strncmp(path, below, strlen(below)) == 0;
}

/* Take up to `size` bytes of those that are left. */
static int64_t take(size_t size) {
    int64_t have = __atomic_load_n(left, __ATOMIC_SEQ_CST), taken;
    do {
        if (have < 0) return size;
        taken = have < (int64_t)size ? have : (int64_t)size;
    } while (!__atomic_compare_exchange_n(
        left, &have, have - taken, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return taken;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    int64_t taken = size && limited(fd) ? take(size) : (int64_t)size;
    if (size && !taken) { errno = ENOSPC; return -1; }
    return syscall(SYS_write, fd, bytes, taken);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    int64_t taken = size && limited(fd) ? take(size) : (int64_t)size;
    if (size && !taken) { errno = ENOSPC; return -1; }
    return syscall(SYS_pwrite64, fd, bytes, taken, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t at) {
    return pwrite(fd, bytes, size, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (count > 0 && limited(fd)) return write(fd, parts[0].iov_base, parts[0].iov_len);
    return syscall(SYS_writev, fd, parts, count);
}

int statvfs(const char *path, struct statvfs *about) {
    static int (*real)(const char *, struct statvfs *);
    if (!real) real = (int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs");
    int result = real(path, about);
    int64_t have = left ? __atomic_load_n(left, __ATOMIC_SEQ_CST) : -1;
    if (result == 0 && have >= 0) about->f_bavail = about->f_bfree = have / about->f_frsize;
    return result;
}
int statvfs64(const char *path, struct statvfs64 *about) {
    return statvfs(path, (struct statvfs *)about);  /* the same on 64 bits */
}
"""


class LimitedDisk:
    """The disk below a directory, for all processes that run with `environ`."""

    def __init__(self, place: Path, below: Path) -> None:
        assert COMPILER is not None
        self._library, self._left, self._below = place / "disk.so", place / "disk.left", below
        source = place / "disk.c"
        source.write_text(SOURCE)
        self.limit(None)
        subprocess.run(
            [COMPILER, "-shared", "-fPIC", "-O1", "-o", self._library, source, "-ldl"], check=True
        )

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables of a process that writes to this disk."""
        return {
            "LD_PRELOAD": str(self._library),
            "SOLAR_DEV_DISK": str(self._left),
            "SOLAR_DEV_DISK_BELOW": f"{self._below.resolve()}/",
        }

    def limit(self, left: int | None) -> None:
        """Set how many bytes may still be written; None: no limit."""
        file = os.open(self._left, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(file, struct.pack("=q", -1 if left is None else left), 0)
        finally:
            os.close(file)
