"""A source's share of the feedback of the last minutes: counted to the event."""

import pytest

from app.ingest.appender import SourceQuota

LEAST = SourceQuota.MINIMUM_EVENTS


class Clock:
    """Stands still until somebody sets it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quota(clock: Clock) -> SourceQuota:
    return SourceQuota(0.5, clock)


def test_a_source_alone_is_refused_after_the_least_that_is_anybodys(quota: SourceQuota) -> None:
    assert quota.take("web", LEAST)
    assert not quota.take("web", 1)


def test_a_source_may_fill_its_share_to_the_last_event(quota: SourceQuota) -> None:
    assert quota.take("others", LEAST)
    assert quota.take("web", LEAST)  # half of all
    assert not quota.take("web", 1)


def test_what_was_refused_does_not_count(quota: SourceQuota) -> None:
    assert quota.take("others", LEAST)
    assert not quota.take("web", LEAST + 1)
    assert quota.take("web", LEAST)


def test_the_minute_before_counts_and_the_one_before_that_does_not(
    quota: SourceQuota, clock: Clock
) -> None:
    assert quota.take("web", LEAST)
    clock.now = 119.9
    assert not quota.take("web", 1)
    clock.now = 120.0
    assert quota.take("web", LEAST)


def test_what_others_sent_in_the_minute_before_makes_room(quota: SourceQuota, clock: Clock) -> None:
    assert quota.take("others", LEAST)
    assert quota.take("more", LEAST)
    clock.now = 60.0
    assert quota.take("web", 2 * LEAST)
    assert not quota.take("web", 1)


def test_the_minute_before_a_pause_is_forgotten(quota: SourceQuota, clock: Clock) -> None:
    clock.now = 60.0
    assert quota.take("web", LEAST)
    clock.now = 180.0
    assert quota.take("web", LEAST)
    clock.now = 239.9
    assert not quota.take("web", 1)


def test_a_share_of_one_refuses_nobody(clock: Clock) -> None:
    assert SourceQuota(1.0, clock).take("web", 10 * LEAST)
