"""Micro-batching: while one call is under way, the next ones gather into one round trip."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class MicroBatcher(Generic[K, T, R]):
    """Gathers items by key; `call` returns a value or an error for each item of a group."""

    def __init__(self, call: Callable[[K, list[T]], Awaitable[list[R | Exception]]]) -> None:
        self._call = call
        self._waiting: dict[K, list[tuple[T, asyncio.Future[R]]]] = {}
        self._running: dict[K, asyncio.Task[None]] = {}

    def __call__(self, key: K, item: T) -> asyncio.Future[R]:
        """Return a future for the answer of one item.

        A future that is done or cancelled before the call removes its item from the group.
        """
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append((item, answer))
        if key not in self._running:
            self._running[key] = asyncio.create_task(self._run(key))
        return answer

    async def _run(self, key: K) -> None:
        try:
            while waiting := self._waiting.pop(key, None):
                group = [(item, answer) for item, answer in waiting if not answer.done()]
                if not group:
                    continue
                answers = await self._answers(key, [item for item, _ in group])
                for (_, answer), result in zip(group, answers, strict=True):
                    if answer.done():  # its caller timed out
                        continue
                    if isinstance(result, Exception):
                        answer.set_exception(result)
                    else:
                        answer.set_result(result)
        finally:
            del self._running[key]

    async def _answers(self, key: K, items: list[T]) -> list[R | Exception]:
        try:
            return await self._call(key, items)
        except Exception as error:  # noqa: BLE001  # every caller of the group gets it
            return [error] * len(items)

    async def close(self) -> None:
        """Wait for the calls that are under way."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)
