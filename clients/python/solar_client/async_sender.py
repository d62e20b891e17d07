"""The tasks that send events. They start with the first event in a running event loop."""

import asyncio
import random
import time

from solar_client import calls, process
from solar_client.delivery import Delivery, no_answer, read_delivery
from solar_client.errors import AfterFork, ClosedClient, SolarError, TimedOut
from solar_client.events import Event
from solar_client.queue import Batch, Counters, EventQueue, Flush, FlushResult, Limits
from solar_client.sender import (
    MOST_IN_FLIGHT,
    POST_SECONDS,
    OnRejected,
    log,
    log_dropped,
    log_failure,
    post,
    report,
)
from solar_client.session import AsyncSession, Session, Target


class AsyncSender:
    """The queue of a client and the tasks that empty it; of one event loop."""

    def __init__(self, target: Target, limits: Limits, on_rejected: OnRejected) -> None:
        self._target, self._on_rejected = target, on_rejected
        self._queue = EventQueue(limits)
        self._session: AsyncSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._work = asyncio.Event()
        self._settled = asyncio.Condition()
        self._closed = self._forked = False
        process.register(self)

    def after_fork(self) -> None:
        """Refuse all further calls: tasks and connections are the parent's."""
        self._forked = True

    def at_exit(self, seconds: float) -> None:
        """Send what is queued without the event loop, which has ended."""
        if self._forked or self._closed:
            return
        self._queue.give_all_back()
        session, until = Session(self._target), time.monotonic() + seconds
        flush = self._queue.begin_flush()
        while flush.left and self._queue.pending and (left := until - time.monotonic()) > 0.0:
            batch = self._queue.take(time.monotonic())
            if batch is None:
                time.sleep(min(left, max(0.0, (self._queue.due_at() or 0.0) - time.monotonic())))
            else:
                self._settle(batch, post(session, batch, left))
        self._queue.end_flush(flush)
        session.close()

    # ---- callers ----

    def _check(self) -> None:
        if self._forked:
            raise AfterFork("AsyncSolar: create it in each process, not before the fork")
        if self._closed:
            raise ClosedClient("the client is closed")

    def session(self) -> AsyncSession:
        """Return the connections; start the tasks if events wait for them."""
        self._check()
        loop = asyncio.get_running_loop()
        if self._session is None:
            self._session, self._loop = AsyncSession(self._target), loop
        if loop is not self._loop:
            raise SolarError("AsyncSolar: expected the event loop of its first call")
        self._start()
        return self._session

    def put(self, event: Event) -> None:
        """Queue an event; without a running event loop it waits for the next call."""
        self._check()
        dropped = self._queue.dropped
        wake = self._queue.put(event)
        if self._queue.dropped > dropped:
            log_dropped(self._queue.dropped)
        if not self._sending():
            self._start_if_running()
        elif wake:
            self._work.set()

    def _sending(self) -> bool:
        ended = [task for task in self._tasks if task.done() or task.cancelling()]
        return bool(self._tasks) and not ended

    def _start_if_running(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self.session()

    def _start(self) -> None:
        if self._queue.pending and not self._sending():
            self._tasks = [
                asyncio.create_task(self._run(), name=f"solar-client-{at}")
                for at in range(MOST_IN_FLIGHT)
            ]

    async def flush(self, timeout: float) -> FlushResult:
        """Send all events now; wait for the answers, but no longer than `timeout`."""
        self.session()
        flush = self._queue.begin_flush()
        self._work.set()
        try:
            async with asyncio.timeout(timeout):
                await self._wait_for(flush)
        except TimeoutError:
            pass
        finally:
            result = self._queue.end_flush(flush)
        return result

    async def _wait_for(self, flush: Flush) -> None:
        async with self._settled:
            await self._settled.wait_for(lambda: not flush.left)

    def counters(self, ignored: int, degraded: int) -> Counters:
        """Return all counts."""
        queue = self._queue
        return Counters(
            queue.queued, queue.acknowledged, queue.duplicates, queue.rejected, queue.dropped,
            queue.pending, ignored, degraded, dict(queue.retries),
        )  # fmt: skip

    async def close(self, timeout: float) -> FlushResult:
        """Flush, end the tasks and close the connections."""
        result = await self.flush(timeout)
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.aclose()
        return result

    # ---- the tasks ----

    async def _run(self) -> None:
        while True:
            batch = await self._next_batch()
            try:
                answered = await self._post(batch)
            except BaseException:  # the task is cancelled
                self._queue.give_back(batch)
                self._work.set()
                raise
            self._settle(batch, answered)
            async with self._settled:
                self._settled.notify_all()

    async def _next_batch(self) -> Batch:
        while True:
            self._work.clear()
            now = time.monotonic()
            if (batch := self._queue.take(now)) is not None:
                return batch
            due = self._queue.due_at()
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - now)):
                    await self._work.wait()
            except TimeoutError:
                continue

    async def _post(self, batch: Batch) -> Delivery:
        assert self._session is not None  # noqa: S101  # the tasks start with it
        try:
            answer = await self._session.exchange(calls.feedback(batch.body), POST_SECONDS)
        except TimedOut:
            return no_answer(batch.events, "timeout")
        except SolarError:
            return no_answer(batch.events, "no connection")
        except Exception:  # noqa: BLE001  # logged below
            log.exception("a batch was not sent")
            return no_answer(batch.events, "error")
        return read_delivery(batch.events, answer)

    def _settle(self, batch: Batch, answered: Delivery) -> None:
        drawn = random.random()  # noqa: S311  # jitter
        self._queue.settle(batch, answered, time.monotonic(), drawn)
        log_failure(batch, answered, self._queue.failures(batch.model))
        for rejected in answered.rejected:
            report(rejected, self._on_rejected)
