"""Work that waits: micro-batches of calls, and the memory that requests hold meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from app.errors import Overloaded

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class MicroBatcher(Generic[K, T, R]):
    """Gathers items by key: while one call is under way, the next items share one round trip.

    `call` returns a value or an error for each item of a group. `after` is awaited once the items
    of a call have their answers, before the next call of its key. It raises nothing.
    """

    def __init__(
        self,
        call: Callable[[K, list[T]], Awaitable[list[R | Exception]]],
        after: Callable[[K], Awaitable[None]] | None = None,
    ) -> None:
        self._call, self._after = call, after
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
                    _give(answer, result)
                if self._after is not None:
                    await self._after(key)
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


def _give(answer: asyncio.Future[R], result: R | Exception) -> None:
    if answer.done():  # its caller timed out
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)


#: Bodies and rows up to this size, in bytes, are not counted in a memory budget.
SMALL = 16_384
#: Above this size, in bytes, work waits for its turn: it takes a millisecond or more.
LARGE = 65_536


class MemoryBudget:
    """The bytes that all requests of a worker hold together, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0
        self._begun, self._bodies = asyncio.Lock(), asyncio.Lock()

    async def turn(self, size: int, *, body: bool = False) -> None:
        """Wait until a large request may compute: one in each iteration of the event loop.

        Several at once would delay all other requests by the sum of their times. A `body` that is
        not decoded yet waits apart: behind it, decoded requests would hold their memory for longer.
        """
        if size > LARGE:
            async with self._bodies if body else self._begun:
                await asyncio.sleep(0)


class Held:
    """The bytes that one request holds of a budget."""

    __slots__ = ("budget", "size")

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget, self.size = budget, 0

    def keep(self, size: int, share: float = 1.0) -> None:
        """Hold `size` bytes from now on; Overloaded if other requests leave no room for more.

        `share` is the part of the budget that all requests together may use for this.
        """
        budget, more = self.budget, size - self.size
        if more > 0 and budget.held > self.size and budget.held + more > share * budget.limit:
            raise Overloaded(f"requests hold {budget.held} of {budget.limit} bytes")
        budget.held += more
        self.size = size

    def add(self, size: int) -> None:
        """Hold `size` more bytes."""
        self.keep(self.size + size)
