"""Process of trials: `python -m app.runtime.trial_process DESCRIPTOR`.

It reads a model (as a record that replaces it) and feedback from a socket, each after its length in
8 bytes, and answers with the outcome in the same way, until the socket is closed. A worker starts
it (`app/serving/trial_runner.py`).
"""

import logging
import os
import socket
import sys
from collections.abc import Sequence

from app.domain import codec
from app.domain.records import Feedback, Replace
from app.domain.trial import run_trial
from app.observability.logging import configure_logging

log = logging.getLogger("solar.trial")

#: Lower priority than that of workers and learners.
NICE = 10
_LENGTH = 8


def main(arguments: Sequence[str]) -> None:
    """Run the trials of a socket, which has a file descriptor."""
    os.nice(NICE)
    with socket.socket(fileno=int(arguments[0])) as connection:
        try:
            while (replace := _received(connection)) is not None:
                found = _outcome(replace, _received(connection) or b"")
                connection.sendall(len(found).to_bytes(_LENGTH, "little") + found)
        except Exception:
            log.exception("trial failed")
            raise SystemExit(1) from None


def _outcome(model: bytes, feedback: bytes) -> bytes:
    replace, event = codec.load_record(model), codec.load_record(feedback)
    if not (isinstance(replace, Replace) and isinstance(event, Feedback)):
        raise TypeError("expected a model and feedback")
    return run_trial(replace.model, event)


def _received(connection: socket.socket) -> bytes | None:
    """Receive the next blob; None if the worker has closed the socket."""
    size = _exactly(connection, _LENGTH)
    return None if size is None else _exactly(connection, int.from_bytes(size, "little"))


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    found = bytearray(size)
    view = memoryview(found)
    while view:
        count = connection.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return bytes(found)


if __name__ == "__main__":
    configure_logging()
    main(sys.argv[1:])
