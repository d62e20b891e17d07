"""How long to wait before a retry: full jitter, at least as long as the service asks."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_SECONDS, LONGEST_SECONDS = 0.1, 10.0
#: A service, or a proxy in front of it, cannot stop a client for longer than this.
LONGEST_RETRY_AFTER = 60.0


def delay(failures: int, retry_after: float, random: float) -> float:
    """Return the seconds to wait after this number of failures; `random` is from [0, 1).

    `Retry-After` is waited for in full, and the jitter comes on top: else all clients that were
    refused together would return together.

    >>> delay(1, 0.0, 0.5), delay(3, 0.0, 0.5), delay(99, 0.0, 0.5), delay(1, 2.0, 0.5)
    (0.05, 0.2, 5.0, 2.05)
    """
    ceiling = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures - 1, 30))
    return min(retry_after, LONGEST_RETRY_AFTER) + random * ceiling


def read_retry_after(text: str, now: float) -> float:
    """Return the seconds of a `Retry-After` header, or 0; `now` is in seconds since 1970.

    >>> read_retry_after("2", 0.0), read_retry_after("Thu, 01 Jan 1970 00:00:09 GMT", 4.0)
    (2.0, 5.0)
    >>> read_retry_after("soon", 0.0)
    0.0
    """
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.fromtimestamp(now, UTC)).total_seconds())
