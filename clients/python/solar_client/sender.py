"""The threads that send events. One starts with the first event; all end after some idle time.

Several batches are in flight: the service waits for its store during part of each batch.
"""

import logging
import random
import threading
import time
from collections.abc import Callable

from solar_client import calls, process
from solar_client.delivery import Delivery, RejectedEvent, no_answer, read_delivery
from solar_client.errors import ClosedClient, SolarError, TimedOut
from solar_client.events import Event
from solar_client.queue import Batch, Counters, EventQueue, FlushResult, Limits
from solar_client.session import Session, Target

log = logging.getLogger("solar_client")

POST_SECONDS = 10.0  # for one batch; the service answers within 5 seconds, or with 503
IDLE_SECONDS = 30.0
MOST_IN_FLIGHT = 4  # batches, each with its thread
OnRejected = Callable[[RejectedEvent], None]


def log_rejected(event: RejectedEvent) -> None:
    """The default of `on_rejected`: a warning in the log."""
    log.warning(
        "event %s was refused: %d %s", event.event_id, event.status, event.detail or event.title
    )


def report(rejected: RejectedEvent, on_rejected: OnRejected) -> None:
    """Call `on_rejected`; an error of it is logged, and the events after it are still sent."""
    try:
        on_rejected(rejected)
    except Exception:
        log.exception("on_rejected failed")


def log_failure(batch: Batch, answered: Delivery, failures: int) -> None:
    """Log the first failure in a row."""
    if answered.reason and failures == 1:
        log.warning(
            "model %s: %d events wait for a retry: %s",
            batch.model, len(answered.again), answered.reason,
        )  # fmt: skip


def log_dropped(dropped: int) -> None:
    """Log the 1st, 10th, 100th … dropped event."""
    if str(dropped).strip("0") == "1":
        log.warning("the queue is full: dropped %d events so far, the oldest first", dropped)


def post(session: Session, batch: Batch, seconds: float = POST_SECONDS) -> Delivery:
    """Send a batch; no error is raised."""
    try:
        answer = session.exchange(calls.feedback(batch.body), seconds)
    except TimedOut:
        return no_answer(batch.events, "timeout")
    except SolarError:
        return no_answer(batch.events, "no connection")
    except Exception:
        log.exception("a batch was not sent")
        return no_answer(batch.events, "error")
    return read_delivery(batch.events, answer)


class Sender:
    """The queue of a client and the threads that empty it; safe for threads and forks."""

    def __init__(self, target: Target, limits: Limits, on_rejected: OnRejected) -> None:
        self._target, self._limits, self._on_rejected = target, limits, on_rejected
        self._begin()
        process.register(self)

    def _begin(self) -> None:
        self._queue = EventQueue(self._limits)
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # the threads wait for events
        self._settled = threading.Condition(self._lock)  # flushes wait for answers
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._closed = False
        self.session = Session(self._target)

    def after_fork(self) -> None:
        """Forget events, connections and threads of the parent."""
        closed, parents = self._closed, self.session
        self._begin()
        self._closed = closed
        parents.abandon()

    def at_exit(self, seconds: float) -> None:
        """Send what is queued."""
        if not self._closed:
            self.flush(seconds)

    # ---- callers ----

    def put(self, event: Event) -> None:
        """Queue an event."""
        with self._lock:
            if self._closed:
                raise ClosedClient("the client is closed")
            dropped = self._queue.dropped
            if self._queue.put(event):
                self._wake()
            dropped = self._queue.dropped if self._queue.dropped > dropped else 0
        if dropped:
            log_dropped(dropped)

    def flush(self, timeout: float) -> FlushResult:
        """Send all events now; wait for the answers, but no longer than `timeout`."""
        until = time.monotonic() + timeout
        with self._lock:
            flush = self._queue.begin_flush()
            if flush.left:
                self._wake()
            while flush.left and (left := until - time.monotonic()) > 0.0:
                self._settled.wait(left)
            return self._queue.end_flush(flush)

    def counters(self, ignored: int, degraded: int) -> Counters:
        """Return all counts."""
        with self._lock:
            queue = self._queue
            return Counters(
                queue.queued, queue.acknowledged, queue.duplicates, queue.rejected, queue.dropped,
                queue.pending, ignored, degraded, dict(queue.retries),
            )  # fmt: skip

    def close(self, timeout: float) -> FlushResult:
        """Flush, end the threads and close the connections.

        A thread that still waits for an answer is not waited for. The last closes the connections.
        """
        result = self.flush(timeout)
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            self._work.notify_all()
        if not threads:
            self.session.close()
        elif not result.pending:
            for thread in threads:
                thread.join(POST_SECONDS)
        return result

    # ---- the threads ----

    def _wake(self) -> None:
        """Wake a thread, or start one; the caller has the lock."""
        if self._idle:
            self._work.notify()
        elif len(self._threads) < MOST_IN_FLIGHT:
            thread = threading.Thread(target=self._run, name="solar-client", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            answered = post(self.session, batch)
            with self._lock:
                now, drawn = time.monotonic(), random.random()  # noqa: S311  # jitter
                self._queue.settle(batch, answered, now, drawn)
                failures = self._queue.failures(batch.model)
                self._settled.notify_all()
            log_failure(batch, answered, failures)
            for rejected in answered.rejected:
                report(rejected, self._on_rejected)
        if self._closed and not self._threads:
            self.session.close()

    def _next_batch(self) -> Batch | None:
        """Wait for a batch that is due; None if the thread must end."""
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                batch, due = self._queue.take(now), self._queue.due_at()
                if batch is not None:
                    if due is not None and due <= now:
                        self._wake()
                    return batch
                self._idle += 1
                woken = self._work.wait(IDLE_SECONDS if due is None else due - now)
                self._idle -= 1
                if due is None and not woken:
                    break
            self._threads.discard(threading.current_thread())
            return None
