"""Child processes that train; each ends with its parent, even after kill -9."""

import os
import socket
import subprocess
import sys

from app.storage.embedded.server import tied

#: One thread per training process: the other cores serve requests, or train other models.
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def start_child(
    module: str, *arguments: str, nice: int = 0
) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Start `python -m MODULE DESCRIPTOR ARGUMENTS`; return it and the other end of its socket.

    A socket, not a pipe: uvloop closes the descriptor of a pipe twice, and another file may have it
    by then.
    """
    parent, child = socket.socketpair()
    number = child.fileno()
    python = [sys.executable, "-P", "-m"]  # -P: import no `app` from the working directory
    command = [*python, module, str(number), *arguments]
    with child:
        try:
            environ = {**os.environ, **THREADS}
            process = tied(command, environ=environ, inherited=(number,), nice=nice)
        except OSError:
            parent.close()
            raise
    return process, parent


def exit_code(process: "subprocess.Popen[bytes]", timeout: float) -> int:
    """Wait for a process, kill it after the timeout, and return its exit code."""
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    return process.wait()
