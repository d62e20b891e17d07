"""Process of trials: `python -m app.runtime.trial_process DESCRIPTOR`.

It reads blobs from a socket, each after its length in 8 bytes, and answers with one in the same
way, until the socket is closed. A model (as a record that replaces it) and feedback are a trial,
and the answer is its outcome. A model, or nothing for that of the last answer, and a request to
fold records are part of a promotion (`app/learning/promotion.py`). A worker starts the process
(`app/serving/trial_runner.py`).
"""

import logging
import socket
import sys
from collections.abc import Sequence

from app.domain import codec
from app.domain.records import Feedback, Replace
from app.domain.trial import run_trial
from app.learning.folding import FollowerFold, answer
from app.learning.promotion import FOLD
from app.observability.logging import configure_logging

log = logging.getLogger("solar.trial")

_LENGTH = 8


def main(arguments: Sequence[str]) -> None:
    """Run the trials of a socket, which has a file descriptor."""
    with socket.socket(fileno=int(arguments[0])) as connection:
        try:
            fold: FollowerFold | None = None
            while (model := _received(connection)) is not None:
                work = _received(connection) or b""
                if codec.kind_is(work, FOLD):
                    fold = FollowerFold(_replacement(model).model) if model else fold
                    found = _folded(fold, work, connection)
                else:
                    found = _outcome(model, work)
                connection.sendall(len(found).to_bytes(_LENGTH, "little") + found)
        except Exception:
            log.exception("trial failed")
            raise SystemExit(1) from None


def _outcome(model: bytes, feedback: bytes) -> bytes:
    event = codec.load_record(feedback)
    if not isinstance(event, Feedback):
        raise TypeError("expected feedback")
    return run_trial(_replacement(model).model, event)


def _replacement(model: bytes) -> Replace:
    record = codec.load_record(model)
    if not isinstance(record, Replace):
        raise TypeError("expected a model")
    return record


def _folded(fold: FollowerFold | None, request: bytes, connection: socket.socket) -> bytes:
    if fold is None:
        raise TypeError("expected a model to fold records onto")
    return answer(fold, request, lambda: _received(connection) or b"")


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
