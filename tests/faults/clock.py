"""A clock that a test can step: a preloaded library shifts CLOCK_REALTIME of a process.

The shift is eight bytes in a file that all processes map, so a step takes effect at once in all of
them. All other clocks keep their time.
"""

import os
import struct
import subprocess
import time
from pathlib import Path

from tests.faults.power import COMPILER
from tests.fleets import Node

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;  /* milliseconds */

__attribute__((constructor)) static void map_shift(void) {
    const char *path = getenv("SOLAR_DEV_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) ahead = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + *ahead % 1000 * 1000000;
        now->tv_sec += *ahead / 1000 + (ns >= 1000000000) - (ns < 0);
        now->tv_nsec = (ns + 1000000000) % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0) return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME_COARSE, &found);
    if (into) *into = found.tv_sec;
    return found.tv_sec;
}
"""

#: Seconds between two readings of the same clock; steps are larger.
CLOCK_TOLERANCE = 10.0


class SteppedClock:
    """The wall clock of all processes that run with `environ`."""

    def __init__(self, directory: Path) -> None:
        assert COMPILER is not None
        self._library, self._shift = directory / "clock.so", directory / "clock.shift"
        source = directory / "clock.c"
        source.write_text(SOURCE)
        self.step(0.0)
        subprocess.run(
            [COMPILER, "-shared", "-fPIC", "-O1", "-o", self._library, source], check=True
        )

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables of a process that uses this clock."""
        return {"LD_PRELOAD": str(self._library), "SOLAR_DEV_CLOCK": str(self._shift)}

    def step(self, ahead: float) -> None:
        """Set the clock to `ahead` seconds after the right time."""
        self.ahead = ahead
        file = os.open(self._shift, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(file, struct.pack("=q", int(ahead * 1000)), 0)
        finally:
            os.close(file)


class ClockedNode(Node):
    """A server that uses a stepped clock."""

    def __init__(self, directory: Path, clock: SteppedClock, **settings: str) -> None:
        super().__init__(directory, None, **settings)
        self._environ, self._clock = clock.environ, clock

    def has_read_clock(self) -> bool:
        """Whether it counts with the present time: it keeps the time for some commands."""
        return abs(int(self.client.time()[0]) - time.time() - self._clock.ahead) < CLOCK_TOLERANCE

    def command(self) -> list[str]:
        words = [f"{name}={value}" for name, value in self._environ.items()]
        return ["env", *words, *super().command()]
