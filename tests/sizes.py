"""Memory that an api container needs, from its settings."""

import re

from app.config import Settings

MIB = 1 << 20
#: Resident memory without requests, measured: docs/operations.md, "Memory of the processes".
SUPERVISOR, WORKER = 145 * MIB, 96 * MIB
#: For the requests of one worker: SOLAR_INFLIGHT_BYTES (128 MB), and as much for sockets and the
#: allocator; `tests/faults/test_flood.py` bounds the sum by 200 MB.
REQUESTS = 256 * MIB
_UNITS = {"k": 10, "m": 20, "g": 30}


def api_memory(given: Settings, scratch: int) -> int:
    """Bytes for `solar serve --no-learner` with all training jobs, and files in memory."""
    jobs = given.jobs * given.training_memory
    return SUPERVISOR + given.workers * (WORKER + REQUESTS + jobs) + scratch


def size(text: str) -> int:
    """Bytes of a size of Kubernetes (`64Mi`) or of compose (`64m`).

    >>> size("64Mi") == size("64m") == 64 << 20
    True
    """
    found = re.fullmatch(r"(\d+)([kmg])i?", text.lower())
    assert found is not None, text
    return int(found[1]) << _UNITS[found[2]]
