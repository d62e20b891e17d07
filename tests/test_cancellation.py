"""Tasks that must end do, though a cancellation may get lost; and what they failed of is known."""

import asyncio
import gc
import logging
from contextlib import suppress

import pytest

from app.errors import Fenced
from app.storage.cancellation import end


def ended(error: Exception | None) -> None:
    """End a task that waits, or that has failed with an error already."""

    async def work() -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    async def run() -> None:
        task = asyncio.create_task(work(), name="lease")
        await asyncio.sleep(0)
        await end([task])
        assert task.done()

    asyncio.run(run())
    gc.collect()  # asyncio complains of an error that nobody asked for when the task goes


def test_a_task_that_failed_for_a_known_reason_ends_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for error in (None, Fenced("another learner has taken over")):
        ended(error)
    assert caplog.records == []


def test_a_task_that_failed_by_a_bug_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ended(ZeroDivisionError())
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "task lease failed")
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_task_that_swallows_cancellations_is_ended_all_the_same() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 3:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            swallowed += 1
        await asyncio.Event().wait()

    async def scene() -> None:
        tasks = [asyncio.create_task(stubborn()), asyncio.create_task(asyncio.sleep(0))]
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await end(tasks)
        assert all(task.done() for task in tasks)

    asyncio.run(scene())
    assert swallowed == 3


def test_a_failure_of_a_task_that_is_ended_is_nobody_s() -> None:
    async def failing() -> None:
        raise ValueError

    async def scene() -> None:
        task = asyncio.create_task(failing())
        await asyncio.sleep(0)
        await end([task])
        assert isinstance(task.exception(), ValueError)

    asyncio.run(scene())
