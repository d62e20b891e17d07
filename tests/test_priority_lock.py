"""The lock for large writes: models before followers, and never lost."""

import asyncio
from collections.abc import Iterable

from app.learning.priority_lock import PriorityLock


async def taken(
    lock: PriorityLock, names: Iterable[str], cancelled: Iterable[str] = ()
) -> list[str]:
    """Let these ask for the lock while another one holds it; return the order of their turns."""
    order = list[str]()

    async def take(name: str) -> None:
        async with lock.hold(name):
            order.append(name)
            await asyncio.sleep(0)

    async with lock.hold("first"):
        tasks = {name: asyncio.create_task(take(name)) for name in names}
        await asyncio.sleep(0)
        for name in cancelled:
            tasks[name].cancel()
    await asyncio.wait_for(asyncio.gather(*tasks.values(), return_exceptions=True), 10.0)
    return order


def test_models_go_first_and_each_kind_in_order_of_arrival() -> None:
    names = ["shop/b", "shop/c", "shop", "books/b", "books"]
    expected = ["shop", "books", "shop/b", "shop/c", "books/b"]
    assert asyncio.run(taken(PriorityLock(), names)) == expected


def test_the_lock_is_held_by_one_at_a_time() -> None:
    async def act() -> None:
        lock, inside = PriorityLock(), 0

        async def take(name: str) -> None:
            nonlocal inside
            async with lock.hold(name):
                inside += 1
                await asyncio.sleep(0)
                assert inside == 1
                inside -= 1

        async with asyncio.TaskGroup() as group:
            for at in range(20):
                group.create_task(take(f"m{at}" if at % 3 else f"shop/b{at}"))

    asyncio.run(act())


def test_a_caller_that_is_cancelled_leaves_the_lock_to_others() -> None:
    async def act() -> None:
        lock = PriorityLock()
        assert await taken(lock, ["a", "b", "shop/b"], cancelled=["a"]) == ["b", "shop/b"]
        holder = lock.hold("first")
        await holder.__aenter__()
        granted = asyncio.create_task(lock.hold("a").__aenter__())
        await asyncio.sleep(0)
        await holder.__aexit__(None, None, None)  # now it is granted to a
        granted.cancel()
        await asyncio.gather(granted, return_exceptions=True)
        assert await taken(lock, ["b"]) == ["b"]

    asyncio.run(act())
