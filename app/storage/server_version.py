"""Supported servers: Redis 7.0 or newer, and every Valkey (it reports Redis 7.2.4)."""

import re

from app.errors import OldServer

MIN_VERSION = (7, 0)


def refuse_old(found: str, where: str) -> None:
    """Raise OldServer for a version that is too old; text that is no version passes.

    >>> refuse_old("7.0.15", "the store")
    >>> refuse_old("6.2.14", "the store")
    Traceback (most recent call last):
    app.errors.OldServer: the store: expected Redis 7.0 or newer, or a Valkey, got 6.2.14
    """
    numbers = re.match(r"(\d+)(?:\.(\d+))?", found)
    if numbers and (int(numbers[1]), int(numbers[2] or 0)) < MIN_VERSION:
        needed = ".".join(map(str, MIN_VERSION))
        raise OldServer(f"{where}: expected Redis {needed} or newer, or a Valkey, got {found}")
