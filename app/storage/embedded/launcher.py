"""Becomes the embedded server (or another child), after tying it to the process that wants it.

    launcher.py GUARD PARENT LOCK COMMAND …     (LOCK is -1 if there is none)

Standard library only.

kernel: the parent-death signal, which survives exec; getppid sees a parent that died before it was
set. pipe: a forked watcher waits for the end of stdin (the parent is gone: kill) or of a pipe that
only the server holds (the server is gone: nothing to do); its parent is the server, so getppid
guards against a reused pid. SIGKILL, as a busy script puts off SIGTERM; what was acknowledged
under fsync always is on disk.
"""

import ctypes
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1


def tie_by_kernel(parent: int) -> None:
    """Let the kernel end this process, and what it becomes, with the parent."""
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL)) != 0:
        sys.exit("launcher: the kernel refused the parent-death signal")
    if os.getppid() != parent:
        sys.exit("launcher: the parent is gone already")


def tie_by_pipe(lock: int) -> None:
    """Leave a watcher behind that ends this process, and what it becomes, with the parent."""
    server = os.getpid()
    server_gone, server_lives = os.pipe()
    if os.fork() != 0:
        os.set_inheritable(server_lives, True)
        return
    os.close(server_lives)
    if lock >= 0:
        os.close(lock)
    ended, _, _ = select.select([sys.stdin, server_gone], [], [])
    if server_gone not in ended and os.getppid() == server:
        os.kill(server, signal.SIGKILL)
    os._exit(0)


def main() -> None:
    """Tie, then become the server."""
    guard, parent, lock, *command = sys.argv[1:]
    if guard == "kernel":
        tie_by_kernel(int(parent))
    else:
        tie_by_pipe(int(lock))
    try:
        os.execv(command[0], command)  # noqa: S606  # our own server
    except OSError as error:
        sys.exit(f"launcher: cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
