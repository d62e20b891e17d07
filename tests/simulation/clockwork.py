"""An event loop whose time is a number: it jumps to the next timer, and nothing ever waits."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from app.errors import SolarError
from app.storage.cancellation import end

T = TypeVar("T")
#: A seed takes some ten thousand.
MOST_TURNS = 500_000


class Stuck(AssertionError):
    """Everybody waits, and nobody will ever wake."""


class _Jump(selectors.SelectSelector):
    """Instead of waiting, time goes on."""

    loop: "Clockwork"
    turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("everybody waits, and no timer is set")
        if self.loop.failure is not None:
            raise self.loop.failure
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise Stuck(f"nothing ends: {MOST_TURNS} turns")
        self.loop.now += max(0.0, timeout)
        return []


class Clockwork(asyncio.SelectorEventLoop):
    """The same coroutines with the same seed take the same steps, bit for bit."""

    def __init__(self) -> None:
        jump = _Jump()
        jump.loop = self
        self.now = 1000.0
        self.failure: BaseException | None = None
        super().__init__(jump)
        self.set_exception_handler(self._failed)
        self._clock_resolution = 1e-6  # a timer is due a moment early rather than in two jumps

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody has heard of ends the world; a fault that was only left alone does not."""
        error = context.get("exception")
        if error is not None and not isinstance(error, SolarError) and self.failure is None:
            self.failure = error

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, _: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Threads would race: what goes to one is done here and now."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # it is theirs who wait
            done.set_exception(error)
        return done


def run(main: Callable[[Clockwork], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a world of its own; its end ends all that it started."""
    loop = Clockwork()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.failure = None
        loop.run_until_complete(end(asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
