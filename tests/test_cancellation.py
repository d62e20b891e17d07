"""`end` ends tasks even if they swallow a cancellation, and logs unknown failures."""

import asyncio
import gc
import logging
from contextlib import suppress

import pytest

from app.errors import Fenced
from app.storage.cancellation import end


def end_task(error: Exception | None) -> None:
    """End a waiting task, or a task that has failed with an error."""

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
    gc.collect()  # asyncio logs an error that was never retrieved when the task is collected


def test_a_task_with_a_known_error_ends_without_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for error in (None, Fenced("another learner has taken over")):
        end_task(error)
    assert caplog.records == []


def test_a_task_with_a_bug_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    end_task(ZeroDivisionError())
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "task lease failed")
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_task_that_swallows_cancellations_is_ended() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 3:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            swallowed += 1
        await asyncio.Event().wait()

    async def run() -> None:
        tasks = [asyncio.create_task(stubborn()), asyncio.create_task(asyncio.sleep(0))]
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await end(tasks)
        assert all(task.done() for task in tasks)

    asyncio.run(run())
    assert swallowed == 3


def test_the_error_of_an_ended_task_is_not_raised() -> None:
    async def failing() -> None:
        raise ValueError

    async def run() -> None:
        task = asyncio.create_task(failing())
        await asyncio.sleep(0)
        await end([task])
        assert isinstance(task.exception(), ValueError)

    asyncio.run(run())
