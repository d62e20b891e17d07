"""Turns of models: equal shares of the CPU time, whatever their turns take."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.learning import fair_queue
from app.learning.fair_queue import FairQueue


class Computer:
    """One thread whose CPU time is simulated, and what each model got of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.used: Counter[str] = Counter()
        self.turns: list[str] = []
        self.queue = FairQueue(1, self.time)

    def time(self) -> float:
        return self.now

    def work(self, model: str, seconds: float) -> str:
        self.now += seconds
        self.used[model] += seconds  # type: ignore[assignment]
        self.turns.append(model)
        return model

    async def turn(self, model: str, seconds: float) -> None:
        assert await self.queue.run(model, lambda: self.work(model, seconds)) == model

    async def flood(self, model: str, seconds: float) -> None:
        """Take turn after turn."""
        while True:
            await self.turn(model, seconds)


@contextlib.asynccontextmanager
async def running(*work: Awaitable[None]) -> Any:
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0)


def shares() -> Counter[str]:
    """The CPU time of four models, whose turns take 3 to 24 ms, within 8 s."""

    async def act() -> Counter[str]:
        computer = Computer()
        models = {"a": 0.003, "b": 0.006, "c": 0.012, "d": 0.024}
        async with running(*(computer.flood(*one) for one in models.items())):
            await until(lambda: computer.now >= 8.0)
            return computer.used.copy()

    return asyncio.run(act())


def test_models_get_equal_shares_whatever_their_turns_take() -> None:
    assert all(abs(used - 2.0) <= 0.1 for used in shares().values())


@pytest.mark.parametrize(
    "unfair",
    [lambda queue: next(iter(queue._waiting), None), lambda queue: [None, *queue._waiting][-1]],
    ids=["first come, first served", "last come, first served"],
)  # fmt: skip
def test_an_unfair_queue_is_found(unfair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairQueue, "_next", unfair)
    with pytest.raises(AssertionError):
        test_models_get_equal_shares_whatever_their_turns_take()


def test_a_model_that_was_idle_goes_next_and_does_not_catch_up() -> None:
    async def act() -> None:
        computer = Computer()
        async with running(*(computer.flood(f"flood{at}", 0.02) for at in range(7))):
            await until(lambda: computer.now >= 2.0)
            before = len(computer.turns)
            await computer.turn("quiet", 0.001)
            assert computer.turns.index("quiet") - before <= 1
            async with running(computer.flood("quiet", 0.02)):
                started = computer.now
                await until(lambda: computer.now >= started + 8.0)
            assert 0.9 <= computer.used["quiet"] <= 1.2  # an eighth, not all that it missed

    asyncio.run(act())


def test_failed_and_cancelled_turns_leave_their_thread_to_others() -> None:
    async def act() -> None:
        queue = FairQueue(1)
        with pytest.raises(ZeroDivisionError):
            await queue.run("failed", lambda: 1 / 0)
        holds, release = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow() -> None:
            loop.call_soon_threadsafe(holds.set)
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(20)

        first = asyncio.create_task(queue.run("slow", slow))
        await holds.wait()
        waiting = [asyncio.create_task(queue.run(name, lambda: 0)) for name in "abc"]
        await asyncio.sleep(0)
        waiting[0].cancel()
        release.set()
        await first
        waiting[1].cancel()  # its turn may be granted already
        assert await waiting[2] == 0
        assert await queue.run("last", lambda: 5) == 5
        assert queue._free == 1

    asyncio.run(act())


def test_a_turn_that_is_cancelled_before_it_is_granted_fails_nothing() -> None:
    async def act() -> list[Any]:
        queue, loop = FairQueue(1), asyncio.get_running_loop()
        failed = list[Any]()
        loop.set_exception_handler(lambda _, context: failed.append(context))
        first, second = (asyncio.create_task(queue.run(name, lambda: 5)) for name in "ab")
        await asyncio.sleep(0)  # both wait, and the queue is about to grant a turn
        first.cancel()
        assert await second == 5
        assert (first.cancelled(), queue._free) == (True, 1)
        return failed

    assert asyncio.run(act()) == []


def test_two_threads_run_two_models_at_once() -> None:
    async def act() -> None:
        queue, loop = FairQueue(2), asyncio.get_running_loop()
        met = asyncio.Barrier(2)

        def meet() -> None:
            asyncio.run_coroutine_threadsafe(met.wait(), loop).result(20)

        await asyncio.gather(queue.run("a", meet), queue.run("b", meet))

    asyncio.run(act())


def test_a_follower_gets_a_quarter_of_the_time_of_a_model() -> None:
    async def act() -> Counter[str]:
        computer = Computer()
        work = {"shop": 0.02, "shop/b": 0.005}
        async with running(*(computer.flood(*one) for one in work.items())):
            await until(lambda: computer.now >= 8.0)
            return computer.used.copy()

    used = asyncio.run(act())
    assert 0.9 * used["shop"] <= 4 * used["shop/b"] <= 1.1 * used["shop"]


def test_a_model_that_was_idle_waits_for_one_turn_of_followers_at_most() -> None:
    async def act() -> None:
        computer = Computer()
        async with running(*(computer.flood(f"shop/b{at}", 0.005) for at in range(6))):
            await until(lambda: computer.now >= 2.0)
            before = len(computer.turns)
            await computer.turn("shop", 0.001)
            assert computer.turns.index("shop") - before <= 1

    asyncio.run(act())


def test_followers_leave_a_thread_to_models() -> None:
    async def act() -> None:
        queue, loop = FairQueue(3), asyncio.get_running_loop()
        release = asyncio.Event()

        def slow() -> None:
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(20)

        followers = [asyncio.create_task(queue.run(f"shop/b{at}", slow)) for at in range(4)]
        await until(lambda: queue._free == 1)
        assert await asyncio.wait_for(queue.run("shop", lambda: 5), 20.0) == 5
        assert len(queue._waiting) == 2
        followers[2].cancel()
        release.set()
        await asyncio.gather(*followers, return_exceptions=True)
        assert (queue._free, queue._free_for_followers) == (3, 2)

    asyncio.run(act())


def test_a_follower_is_learnt_with_one_thread_too() -> None:
    assert asyncio.run(FairQueue(1).run("shop/b", lambda: 5)) == 5


def test_the_time_of_models_that_are_gone_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "MOST_KEPT", 10)

    async def act() -> None:
        computer = Computer()
        for at in range(100):
            await computer.turn(f"m{at}", 1.0)
        assert len(computer.queue._used) <= 11

    asyncio.run(act())


def test_a_model_that_is_cancelled_before_its_turn_is_granted_raises_nothing() -> None:
    async def main() -> tuple[int, list[Any]]:
        problems = list[Any]()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, problem: problems.append(problem))
        queue = FairQueue(1)
        cancelled = asyncio.create_task(queue.run("a", lambda: 1))
        await asyncio.sleep(0)  # it waits, and its turn is about to be granted
        cancelled.cancel()
        found = await asyncio.wait_for(queue.run("b", lambda: 2), 10.0)
        return found, problems

    assert asyncio.run(main()) == (2, [])
