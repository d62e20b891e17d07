"""Rate limits of `/beacon`, by address and for the worker; their memory is bounded."""

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address
from time import monotonic

#: Seconds of events that may come at once.
BURST_SECONDS = 10.0
#: Addresses whose rate is known; beyond it the one that was seen longest ago is forgotten.
MOST_ADDRESSES = 10_000
#: Recent events whose outcome is known, to answer copies without the store: 18 MB, 24 MB if the
#: models' names have 64 characters.
MOST_RECENT = 100_000


class Bucket:
    """A token bucket: `rate` events a second, and a burst of `BURST_SECONDS`.

    A post of more events than there are tokens is admitted if the bucket is full.
    """

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._tokens, self._at = rate, rate * BURST_SECONDS, now

    def take(self, count: int, now: float) -> bool:
        """Take tokens for events; return whether there were enough."""
        full = self._rate * BURST_SECONDS
        self._tokens = min(full, self._tokens + self._rate * max(0.0, now - self._at))
        self._at = now
        if self._tokens < min(count, full):
            return False
        self._tokens -= count
        return True


def network_of(address: str) -> str:
    """Return an IPv4 address, or the first half of an IPv6 address: one sender has all others.

    >>> network_of("192.0.2.1"), network_of("::ffff:192.0.2.1"), network_of("2001:db8::1:2")
    ('192.0.2.1', '192.0.2.1', '2001:db8::')
    """
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(IPv6Address(found.packed[:8] + bytes(8)))


class BeaconLimits:
    """The rates of all addresses and of the worker, and the outcomes of recent events."""

    def __init__(self, each: float, whole: float, clock: Callable[[], float] = monotonic) -> None:
        """`each` is the rate of an address, `whole` that of the worker, in events a second."""
        self._each, self._clock = each, clock
        self._whole = Bucket(whole, clock())
        self._addresses: OrderedDict[str, Bucket] = OrderedDict()
        self._recent: OrderedDict[str, str] = OrderedDict()

    def take(self, address: str, count: int) -> bool:
        """Count the events of a post; return whether its address and the worker may send them.

        >>> limits = BeaconLimits(1.0, 100.0, lambda: 0.0)
        >>> [limits.take("192.0.2.1", 8), limits.take("192.0.2.1", 8), limits.take("192.0.2.2", 8)]
        [True, False, True]
        """
        now, network = self._clock(), network_of(address)
        bucket = self._addresses.pop(network, None) or Bucket(self._each, now)
        self._addresses[network] = bucket
        if len(self._addresses) > MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        return bucket.take(count, now) and self._whole.take(count, now)

    def outcome_of_copy(self, event: str) -> str | None:
        """Return the outcome of an event that was noted a short time ago; None if it is new."""
        return self._recent.get(event)

    def note(self, event: str, outcome: str) -> None:
        """Note the outcome of all copies of an event."""
        self._recent[event] = outcome
        if len(self._recent) > MOST_RECENT:
            self._recent.popitem(last=False)
