"""Share of a source in the feedback of the last minutes, exact to the event."""

import pytest

from app.ingest.appender import SourceQuota

MINIMUM = SourceQuota.MINIMUM_EVENTS


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quota(clock: Clock) -> SourceQuota:
    return SourceQuota(0.5, clock)


def test_a_single_source_is_refused_after_the_minimum_number_of_events(quota: SourceQuota) -> None:
    assert quota.take("web", MINIMUM)
    assert not quota.take("web", 1)


def test_a_source_may_fill_its_share_to_the_last_event(quota: SourceQuota) -> None:
    assert quota.take("others", MINIMUM)
    assert quota.take("web", MINIMUM)  # half of all
    assert not quota.take("web", 1)


def test_refused_events_do_not_count(quota: SourceQuota) -> None:
    assert quota.take("others", MINIMUM)
    assert not quota.take("web", MINIMUM + 1)
    assert quota.take("web", MINIMUM)


def test_the_previous_minute_counts_and_the_one_before_does_not(
    quota: SourceQuota, clock: Clock
) -> None:
    assert quota.take("web", MINIMUM)
    clock.now = 119.9
    assert not quota.take("web", 1)
    clock.now = 120.0
    assert quota.take("web", MINIMUM)


def test_events_of_others_in_the_previous_minute_raise_the_limit(
    quota: SourceQuota, clock: Clock
) -> None:
    assert quota.take("others", MINIMUM)
    assert quota.take("more", MINIMUM)
    clock.now = 60.0
    assert quota.take("web", 2 * MINIMUM)
    assert not quota.take("web", 1)


def test_the_minute_before_a_pause_does_not_count(quota: SourceQuota, clock: Clock) -> None:
    clock.now = 60.0
    assert quota.take("web", MINIMUM)
    clock.now = 180.0
    assert quota.take("web", MINIMUM)
    clock.now = 239.9
    assert not quota.take("web", 1)


def test_a_share_of_one_refuses_no_source(clock: Clock) -> None:
    assert SourceQuota(1.0, clock).take("web", 10 * MINIMUM)
