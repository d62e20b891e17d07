"""How long records wait while none is learnt: measured, reported and exposed."""

import logging

import pytest

from app.learning.learner import warm_up
from app.serving.lag import LagTimer
from app.storage.store import Store
from tests.servers import eventually, server, url, with_store
from tests.test_learner import append, blobs, first, learning
from tests.test_weight_cache import following

__all__ = ["server", "url"]  # fixtures


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile first: that takes longer than a test waits."""
    warm_up()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Timed:
    """A timer at 60 s whose clock is stepped, with one model at a version."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.timer = LagTimer(60.0, self.clock)

    def check(
        self, seconds: float, version: int = 1, waiting: int = 3, *, success: bool = True
    ) -> float:
        """Let a check end after some seconds; return the lag of the model."""
        self.clock.now += seconds
        if success:
            self.timer.note("m", (1, version), waiting)
        self.timer.checked(success)
        found = self.timer.seconds({"m": (1, version)})
        self.timer.report({"m": waiting} if waiting > 0 else {}, found)
        return found.get("m", 0.0)


def test_the_lag_counts_while_records_wait_at_one_version() -> None:
    timed = Timed()
    assert timed.check(5.0, waiting=0) == 0.0
    assert [timed.check(10.0) for _ in range(3)] == [10.0, 20.0, 30.0]
    assert timed.check(10.0, version=2) == 10.0
    assert timed.check(10.0, version=2) == 20.0
    assert timed.check(10.0, version=2, waiting=0) == 0.0


def test_a_version_that_was_served_since_the_last_check_has_no_lag() -> None:
    timed = Timed()
    timed.check(50.0)
    timed.check(50.0)
    assert timed.timer.seconds({"m": (1, 2)}) == {}
    assert timed.timer.seconds({}) == {}
    assert timed.timer.seconds({"m": (1, 1)}) == {"m": 100.0}


def test_the_lag_stands_still_while_the_store_cannot_be_checked() -> None:
    timed = Timed()
    assert timed.check(20.0) == 20.0
    assert [timed.check(1000.0, success=False) for _ in range(2)] == [20.0, 20.0]
    assert timed.check(20.0) == 40.0


def test_a_deleted_model_has_no_lag() -> None:
    timed = Timed()
    timed.check(20.0)
    timed.timer.forget("m")
    assert timed.timer.seconds({"m": (1, 1)}) == {}


def test_a_model_above_the_limit_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    timed = Timed()
    for _ in range(19):
        timed.check(10.0)
    line = "model m: 3 records wait and none was learnt for {} s; check that a learner runs, and "
    assert caplog.messages == [line.format(at) + "read its log" for at in (60, 120, 180)]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    caplog.clear()
    for _ in range(20):
        timed.check(10.0, waiting=0)
    assert caplog.messages == []


def test_of_many_models_above_the_limit_ten_are_named(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    timer = LagTimer(60.0, clock)
    names = [f"m{at:02d}" for at in range(25)]
    for name in names:
        timer.note(name, (1, 1), 1)
    clock.now += 61.0
    timer.checked(True)
    timer.report(dict.fromkeys(names, 1), timer.seconds(dict.fromkeys(names, (1, 1))))
    assert [line.partition(":")[0] for line in caplog.messages] == [
        *(f"model {name}" for name in names[:10]),
        "15 more models learn nothing",
    ]


def test_a_worker_reports_a_model_whose_learner_holds_the_lease_and_learns_nothing(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(store: Store) -> None:
        await store.models.create("books", first())
        async with following(store, lag_limit=0.2) as cache:
            await append(store, blobs(0, 5))
            assert await store.leases.take("books", 0, 60.0)

            async def lag() -> float:
                return cache.lag_seconds().get("books", 0.0)

            async def lines() -> list[str]:
                return caplog.messages

            await eventually(lag, lambda seconds: seconds >= 0.2)
            await eventually(lines, bool)
            await store.leases.release("books", 1)
            async with learning(store):
                await eventually(lag, lambda seconds: seconds == 0.0)

    with_store(url, act)
    assert caplog.messages[0].startswith("model books: 5 records wait and none was learnt for 0 s;")
