"""Calls of one moment share one round trip: one is on its way while the next ones gather."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class MicroBatcher(Generic[K, T, R]):
    """Gathers items by key; `call` answers for all of a group, a value or an error for each."""

    def __init__(self, call: Callable[[K, list[T]], Awaitable[list[R | Exception]]]) -> None:
        self._call = call
        self._waiting: dict[K, list[tuple[T, asyncio.Future[R]]]] = {}
        self._running: dict[K, asyncio.Task[None]] = {}

    def __call__(self, key: K, item: T) -> asyncio.Future[R]:
        """The answer for an item, once its group has been called.

        An answer that is settled or cancelled before that takes its item out of the group.
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
                for (_, answer), became in zip(group, answers, strict=True):
                    if answer.done():  # its caller has given up
                        continue
                    if isinstance(became, Exception):
                        answer.set_exception(became)
                    else:
                        answer.set_result(became)
        finally:
            del self._running[key]

    async def _answers(self, key: K, items: list[T]) -> list[R | Exception]:
        try:
            return await self._call(key, items)
        except Exception as error:  # noqa: BLE001  # it belongs to those who wait
            return [error] * len(items)

    async def close(self) -> None:
        """Let what is on its way arrive."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)
