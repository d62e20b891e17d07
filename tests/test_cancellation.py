"""Tasks that must end do, though a cancellation may get lost."""

import asyncio
from contextlib import suppress

from app.storage.cancellation import end


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
