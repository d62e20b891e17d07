"""Launcher of the embedded server and other children; it makes them end with their parent.

    launcher.py GUARD PARENT LOCK NICE COMMAND …     (LOCK is -1 if there is none)

Standard library only.

GUARD `kernel` sets the parent-death signal, which survives exec; getppid detects a parent that died
before. GUARD `pipe` forks a watcher. It waits for the end of stdin (the parent ended: kill the
server) or of a pipe that only the server holds (the server ended: do nothing). The watcher's parent
is the server, so getppid guards against a reused pid. The signal is SIGKILL, because a busy script
delays SIGTERM; with fsync `always`, acknowledged writes are on disk.
"""

import ctypes
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1


def tie_by_kernel(parent: int) -> None:
    """Let the kernel end this process, also after exec, with the parent."""
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL)) != 0:
        sys.exit("launcher: the kernel refused the parent-death signal")
    if os.getppid() != parent:
        sys.exit("launcher: the parent process has already ended")


def tie_by_pipe(lock: int) -> None:
    """Fork a watcher that ends this process, also after exec, with the parent."""
    server = os.getpid()
    read_end, write_end = os.pipe()
    if os.fork() != 0:
        os.set_inheritable(write_end, True)
        return
    os.close(write_end)
    if lock >= 0:
        os.close(lock)
    ended, _, _ = select.select([sys.stdin, read_end], [], [])
    if read_end not in ended and os.getppid() == server:
        os.kill(server, signal.SIGKILL)
    os._exit(0)


def lower_priority(nice: int) -> None:
    """Lower the CPU priority of this process and of its session.

    Linux divides CPU time among sessions first (autogroup) where no control group does: `nice`
    alone then changes nothing, as each of these processes has a session of its own.
    """
    os.nice(nice)
    try:
        with open("/proc/self/autogroup", "w") as group:  # noqa: PTH123  # pathlib takes 5 ms
            group.write(str(nice))
    except OSError:  # the kernel has no such groups
        pass


def main() -> None:
    """Set priority and guard, then exec the command."""
    guard, parent, lock, nice, *command = sys.argv[1:]
    if int(nice):
        lower_priority(int(nice))
    if guard == "kernel":
        tie_by_kernel(int(parent))
    else:
        tie_by_pipe(int(lock))
    try:
        os.execv(command[0], command)  # noqa: S606  # the embedded server
    except OSError as error:
        sys.exit(f"launcher: cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
