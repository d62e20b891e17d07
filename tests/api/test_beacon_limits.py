"""Rates of `/beacon`: by address, for the worker, and in bounded memory."""

from app.api import beacon_limits
from app.api.beacon_limits import BURST_SECONDS, BeaconLimits


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_takes_no_more_than_its_own_rate_from_all_addresses() -> None:
    clock = Clock()
    limits = BeaconLimits(each=1.0, whole=10.0, clock=clock)
    taken = [limits.take(f"192.0.2.{at}", 1) for at in range(150)]
    assert taken == [True] * 100 + [False] * 50  # the burst of ten seconds
    clock.now = 1.0
    assert [limits.take(f"198.51.100.{at}", 1) for at in range(12)] == [True] * 10 + [False] * 2


def test_the_rates_of_the_addresses_that_came_last_are_kept() -> None:
    """One that is forgotten gets a new burst; memory does not grow with their number."""
    limits = BeaconLimits(each=1.0, whole=1e9, clock=Clock())
    burst = int(BURST_SECONDS)
    assert limits.take("192.0.2.1", burst)
    assert not limits.take("192.0.2.1", 1)
    for at in range(beacon_limits.MOST_ADDRESSES - 1):
        limits.take(f"10.0.{at // 256}.{at % 256}", 1)
    assert not limits.take("192.0.2.1", 1)  # it was seen again, so others are forgotten first
    for at in range(beacon_limits.MOST_ADDRESSES):
        limits.take(f"10.1.{at // 256}.{at % 256}", 1)
    assert limits.take("192.0.2.1", 1)


def test_addresses_of_one_ipv6_network_share_a_rate() -> None:
    limits = BeaconLimits(each=1.0, whole=1e9, clock=Clock())
    assert limits.take("2001:db8::1", 10)
    assert not limits.take("2001:db8::2", 1)
    assert limits.take("2001:db8:0:1::1", 10)  # another /64


def test_the_outcomes_of_the_latest_events_are_kept() -> None:
    limits = BeaconLimits(1.0, 1.0)
    for at in range(beacon_limits.MOST_RECENT + 1):
        limits.note(f"event {at}", "duplicate")
    assert limits.outcome_of_copy("event 0") is None
    assert limits.outcome_of_copy("event 1") == "duplicate"
    assert limits.outcome_of_copy("never") is None
