"""The queue of events: which are sent when, and what becomes of them. No IO, no clock, no locks."""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from solar_client import backoff
from solar_client.delivery import Delivery
from solar_client.events import Event

QUEUE_SIZE = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the queue and of a batch, and the longest wait of an event for its batch."""

    queued: int = QUEUE_SIZE
    events: int = 100
    bytes: int = 475_000
    seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the client was created (in a forked process: since the fork).

    `acknowledged` events are in the service's log; of these, `duplicates` were there already, as
    after a retry. `ignored` events were about a ranking without a request id. `degraded` rankings
    are in the submitted order. `retries` counts repeated posts by their reason.
    """

    queued: int = 0
    acknowledged: int = 0
    duplicates: int = 0
    rejected: int = 0
    dropped: int = 0
    pending: int = 0
    ignored: int = 0
    degraded: int = 0
    retries: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What became of the events since the flush before; `pending` ones are still queued."""

    acknowledged: int
    duplicates: int
    rejected: int
    dropped: int
    pending: int


@dataclass(slots=True)
class Flush:
    """A caller who waits for all events up to number `last`; `left` of them are not answered."""

    last: int
    left: int


@dataclass(slots=True)
class Lane:
    """The waiting events of one model, by number. Numbers of dropped events stay in `numbers`."""

    numbers: deque[int] = field(default_factory=deque)
    count: int = 0
    size: int = 0
    failures: int = 0
    not_before: float = 0.0
    in_flight: int = 0  # batches
    most: int = 0  # events of a batch, after the service found a batch too large; 0: no limit


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one model that are sent together, after this number of failures in a row."""

    model: str
    events: Sequence[Event]
    failures: int = 0

    @property
    def body(self) -> bytes:
        """The body of the request."""
        joined = b",".join([event.body for event in self.events])
        return b'{"model":"%s","events":[%s]}' % (self.model.encode(), joined)


_ENVELOPE_BYTES = 100  # of a batch around its events


class EventQueue:
    """Events that wait for their batch, for an answer, or for a retry.

    A batch is due if it is full, if its first event has waited long enough, or if someone flushes.
    Several batches of a model may be in flight. After a failure its events wait for the backoff,
    first in the queue, and one batch at a time is tried until one is answered.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: OrderedDict[int, Event] = OrderedDict()  # oldest first
        self._lanes: dict[str, Lane] = {}
        self._in_flight: dict[int, Batch] = {}  # by the number of the first event
        self._flushes: list[Flush] = []
        self._last = 0
        self.acknowledged = self.duplicates = self.rejected = self.dropped = 0
        self._reported = self._report(0)
        self.retries: Counter[str] = Counter()

    @property
    def queued(self) -> int:
        """The number of events that were ever put."""
        return self._last

    @property
    def pending(self) -> int:
        """The number of events without a final answer."""
        return len(self._waiting) + sum(len(one.events) for one in self._in_flight.values())

    # ---- put and take ----

    def put(self, event: Event) -> bool:
        """Add an event; return whether the sender must look at the queue now."""
        self._last += 1
        event.number = self._last
        if len(self._waiting) >= self._limits.queued:
            self._drop_oldest()
        was_empty = not self._waiting
        self._waiting[event.number] = event
        lane = self._lanes.get(event.model)
        if lane is None:
            lane = self._lanes[event.model] = Lane()
        lane.numbers.append(event.number)
        lane.count += 1
        lane.size += len(event.body)
        return was_empty or lane.count % self._limits.events == 0 or self._is_large(lane)

    def _is_large(self, lane: Lane) -> bool:
        return lane.size >= self._limits.bytes

    def _drop_oldest(self) -> None:
        _, event = self._waiting.popitem(last=False)
        lane = self._lanes[event.model]
        lane.count -= 1
        lane.size -= len(event.body)
        self.dropped += 1
        self._settle_flushes([event])

    def due_at(self) -> float | None:
        """Return when the next batch is due; None if no event waits."""
        found = [due for model in self._lanes if (due := self._due(model)) is not None]
        return min(found, default=None)

    def _due(self, model: str) -> float | None:
        lane = self._lanes[model]
        if not lane.count or (lane.failures and lane.in_flight):
            return None
        while lane.numbers[0] not in self._waiting:
            lane.numbers.popleft()
        queued = self._waiting[lane.numbers[0]].queued
        full = lane.count >= self._limits.events or self._is_large(lane)
        soon = full or self._flushes
        return max(lane.not_before, queued if soon else queued + self._limits.seconds)

    def take(self, now: float) -> Batch | None:
        """Return the batch that is due first, if any; `settle` must follow."""
        found = [(due, model) for model in self._lanes if (due := self._due(model)) is not None]
        if not found or (first := min(found))[0] > now:
            return None
        batch = self._fill(first[1])
        self._in_flight[batch.events[0].number] = batch
        self._lanes[batch.model].in_flight += 1
        return batch

    def _fill(self, model: str) -> Batch:
        lane, events, size = self._lanes[model], list[Event](), _ENVELOPE_BYTES
        most = lane.most or self._limits.events
        while lane.count and len(events) < most:
            event = self._waiting.get(lane.numbers[0])
            if event is not None:
                size += len(event.body) + 1
                if events and size > self._limits.bytes:
                    break
                del self._waiting[event.number]
                events.append(event)
                lane.count -= 1
                lane.size -= len(event.body)
            lane.numbers.popleft()
        return Batch(model, events, lane.failures)

    # ---- answers ----

    def settle(self, batch: Batch, answered: Delivery, now: float, random: float) -> None:
        """Count the events of an answer; those to send again return to the front."""
        lane = self._take_off(batch)
        self.acknowledged += answered.acknowledged
        self.duplicates += answered.duplicates
        self.rejected += len(answered.rejected)
        again = {event.number for event in answered.again}
        self._settle_flushes(event for event in batch.events if event.number not in again)
        self._return(answered.again, lane)
        if answered.too_large:
            lane.most = max(1, len(batch.events) // 2)
        elif lane.most:
            lane.most = lane.most * 2 if lane.most < self._limits.events else 0
        if answered.reason:
            self.retries[answered.reason] += 1
            lane.failures = max(lane.failures, batch.failures + 1)
            lane.not_before = now + backoff.delay(lane.failures, answered.retry_after, random)
        else:
            lane.failures, lane.not_before = 0, 0.0
        self._forget_empty(batch.model)

    def _take_off(self, batch: Batch) -> Lane:
        """A batch is no longer in flight; return its lane."""
        del self._in_flight[batch.events[0].number]
        lane = self._lanes[batch.model]
        lane.in_flight -= 1
        return lane

    def _forget_empty(self, model: str) -> None:
        lane = self._lanes[model]
        if not lane.count and not lane.in_flight:
            del self._lanes[model]

    def failures(self, model: str) -> int:
        """Return the number of failures in a row of the model's batches."""
        lane = self._lanes.get(model)
        return lane.failures if lane else 0

    def give_back(self, batch: Batch) -> None:
        """Return the events of a batch to the queue: its sender ended without an answer."""
        self._return(batch.events, self._take_off(batch))

    def give_all_back(self) -> None:
        """Return all events in flight to the queue."""
        for batch in list(self._in_flight.values()):
            self.give_back(batch)

    def _return(self, events: Sequence[Event], lane: Lane) -> None:
        for event in reversed(events):
            self._waiting[event.number] = event
            self._waiting.move_to_end(event.number, last=False)
            lane.numbers.appendleft(event.number)
            lane.count += 1
            lane.size += len(event.body)
        while len(self._waiting) > self._limits.queued:
            self._drop_oldest()

    # ---- flush ----

    def begin_flush(self) -> Flush:
        """Send all batches as soon as possible, until `end_flush`."""
        flush = Flush(self._last, self.pending)
        self._flushes.append(flush)
        return flush

    def end_flush(self, flush: Flush) -> FlushResult:
        """Return what became of the events since the flush before."""
        self._flushes.remove(flush)
        before, now = self._reported, self._report(flush.left)
        self._reported = now
        return FlushResult(
            now.acknowledged - before.acknowledged, now.duplicates - before.duplicates,
            now.rejected - before.rejected, now.dropped - before.dropped, now.pending,
        )  # fmt: skip

    def _report(self, pending: int) -> FlushResult:
        return FlushResult(self.acknowledged, self.duplicates, self.rejected, self.dropped, pending)

    def _settle_flushes(self, events: Iterable[Event]) -> None:
        if not self._flushes:
            return
        numbers = [event.number for event in events]
        for flush in self._flushes:
            flush.left -= sum(number <= flush.last for number in numbers)
