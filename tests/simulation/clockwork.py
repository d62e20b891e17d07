"""An event loop with simulated time: it jumps to the next timer and never waits."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from app.errors import SolarError
from app.storage.cancellation import end

T = TypeVar("T")
#: Limit of loop iterations; a seed takes some ten thousand.
MAX_TURNS = 500_000


class Stuck(AssertionError):
    """All tasks wait and none will ever wake."""


class _JumpingSelector(selectors.SelectSelector):
    """Advances the time instead of waiting."""

    loop: "SimulatedLoop"
    turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("all tasks wait, and no timer is set")
        if self.loop.failure is not None:
            raise self.loop.failure
        self.turns += 1
        if self.turns > MAX_TURNS:
            raise Stuck(f"no end after {MAX_TURNS} iterations")
        self.loop.now += max(0.0, timeout)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A deterministic loop: the same seed gives the same steps, bit for bit."""

    def __init__(self) -> None:
        jump = _JumpingSelector()
        jump.loop = self
        self.now = 1000.0
        self.failure: BaseException | None = None
        super().__init__(jump)
        self.set_exception_handler(self._failed)
        self._clock_resolution = 1e-6  # run a timer slightly early rather than in two jumps

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the run on an unhandled error, except a SolarError."""
        error = context.get("exception")
        if error is not None and not isinstance(error, SolarError) and self.failure is None:
            self.failure = error

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, _: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run a function at once: threads would race."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # for the awaiting task
            done.set_exception(error)
        return done


def run(main: Callable[[SimulatedLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a new loop; cancel all tasks at its end."""
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.failure = None
        loop.run_until_complete(end(asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
