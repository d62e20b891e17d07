"""Which servers will do: Redis from 7.0 on, and every Valkey (it calls itself Redis 7.2.4)."""

import re

from app.errors import OldServer

OLDEST = (7, 0)


def refuse_old(found: str, where: str) -> None:
    """OldServer if a version is older than we need; what is no version passes.

    >>> refuse_old("7.0.15", "the store")
    >>> refuse_old("6.2.14", "the store")
    Traceback (most recent call last):
    app.errors.OldServer: the store: expected Redis 7.0 or newer, or a Valkey, got 6.2.14
    """
    numbers = re.match(r"(\d+)(?:\.(\d+))?", found)
    if numbers and (int(numbers[1]), int(numbers[2] or 0)) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise OldServer(f"{where}: expected Redis {needed} or newer, or a Valkey, got {found}")
