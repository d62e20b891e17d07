"""Shared parts of the fleet tests: clients at each durability level, and counts of losses."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import monotonic

import httpx
import numpy as np

from app.domain.facts import LogRolledBack, Served, ServingFact
from app.errors import StoreError
from app.ingest.appender import PendingEvent, post
from app.serving.weight_cache import WeightCache
from app.storage.store import Store
from tests.api.services import Running, serving
from tests.faults.checker import (
    check_log,
    check_only_posted_events,
    check_state,
    learnt,
    missing,
    read_stored,
    repeated,
)
from tests.faults.event_generator import MODEL, EventGenerator, N
from tests.faults.feedback_clients import NO_LIMIT, Ledger
from tests.faults.learners import LEASE
from tests.faults.list_checks import check_lists
from tests.faults.waiting import until

#: Share of the posts of a client before which it shows a list.
SHOWS = 0.3


class LongestGap:
    """The longest time between two events."""

    def __init__(self) -> None:
        self.longest, self.events, self._last = 0.0, 0, monotonic()

    def record(self) -> None:
        """Record an event; the first starts the measurement."""
        now = monotonic()
        if self.events:
            self.longest = max(self.longest, now - self._last)
        self._last, self.events = now, self.events + 1


class Clients:
    """Feedback clients of one durability level; each retries until it gets an answer.

    They post labels, and clicks and late purchases on lists that they show. A failover may lose a
    list with all clicks on it: events on it are then refused.
    """

    def __init__(
        self, url: str, durability: str, epoch: int, count: int = 3, pause: float = 0.05
    ) -> None:
        self._url, self.level, self._epoch, self._pause = url, durability, epoch, pause
        self.ledger, self.refused = Ledger(loses_lists=True), 0
        self.gaps = LongestGap()
        self._names = [f"{durability or 'plain'}{at}-" for at in range(count)]
        self._done = False

    async def __aenter__(self) -> "Clients":
        self._tasks = [asyncio.create_task(self._work(name)) for name in self._names]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._done = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), 60)

    async def _work(self, name: str) -> None:
        store, generator = Store.open(self._url, self.level), EventGenerator(1, name)
        try:
            while not self._done:
                if generator.rng.random() < SHOWS:
                    await self._show(store, generator)
                events = [generator.labels(), generator.event()]
                await self._post_until_answered(store, events)
                await asyncio.sleep(self._pause)
        finally:
            await store.close()

    async def _show(self, store: Store, generator: EventGenerator) -> None:
        """Show a list, and keep the last ones to click on."""
        with contextlib.suppress(StoreError):
            await generator.show(store, self._epoch, 1)
            while len(generator.rankings) > generator.keeps:
                del generator.rankings[next(iter(generator.rankings))]

    async def _post_until_answered(self, store: Store, events: list[PendingEvent]) -> None:
        """Post until there is an answer; only StoreError is expected: it becomes a 503."""
        self.ledger.unanswered |= {one.feedback.event: one for one in events}
        while not self._done:
            try:
                answers = await post(store, MODEL, self._epoch, events, limit=NO_LIMIT, time=0)
            except StoreError:
                self.refused += 1
                await asyncio.sleep(0.02)
            else:
                self.ledger.note(events, answers)
                self.gaps.record()
                return

    def more_than(self, count: int) -> Callable[[], Awaitable[bool]]:
        """Return a condition: more than `count` events are acknowledged."""

        async def condition() -> bool:
            return len(self.ledger.acknowledged) > count

        return condition


async def fed(*clients: Clients, by: int = 10) -> None:
    """Wait until each group has `by` more acknowledged events."""
    for group in clients:
        await until(group.more_than(len(group.ledger.acknowledged) + by), f"{by} more events")


@dataclass(frozen=True)
class LossCount:
    """The number of acknowledged events, and of those missing at their seq."""

    acknowledged: int
    lost: int


async def count_losses(
    url: str, clients: Iterable[Clients], fault: str, rounds: int, ranked: LongestGap
) -> dict[str, LossCount]:
    """Check that no event is duplicated and the replay is equal bit for bit; count the losses.

    Every event in the log must be acknowledged or unanswered. Prints a table row for
    docs/reliability.md for each level.
    """
    await learnt(url)
    found, clients = await read_stored(url), list(clients)
    feedback = found.feedback()
    assert found.start.seq == 0, "the log was trimmed, so losses cannot be counted"
    assert repeated(feedback) == []
    check_log(found)
    check_lists(found)
    check_state(found)
    check_only_posted_events(_together(clients), feedback)
    accounts = {
        group.level: LossCount(
            len(group.ledger.acknowledged), len(missing(group.ledger, feedback, 0))
        )
        for group in clients
    }
    events = {one.event for one in feedback.values()}
    unanswered = sum(event in events for group in clients for event in group.ledger.unanswered)
    assert len(feedback) == unanswered + sum(
        one.acknowledged - one.lost for one in accounts.values()
    )
    for group in clients:
        counts = accounts[group.level]
        print(  # noqa: T201
            f"\n| {fault} | `{group.level}` | {rounds} | {counts.acknowledged:,} | {counts.lost:,} "
            f"| 0 | {ranked.longest:.2f} s | {group.gaps.longest:.1f} s |",
            end="",
        )
    return accounts


def _together(clients: Iterable[Clients]) -> Ledger:
    """Merge the ledgers of all groups."""
    one = Ledger()
    for group in clients:
        one.acknowledged |= group.ledger.acknowledged
        one.unanswered |= group.ledger.unanswered
    return one


class ReplicaObserver:
    """A serving replica that counts version rollbacks of the store."""

    def __init__(self, store: Store) -> None:
        self.facts: list[ServingFact | LogRolledBack] = []
        self.weight_cache, self.ranked = (
            WeightCache(store, self.facts.append, poll=0.05),
            LongestGap(),
        )

    @property
    def backwards(self) -> int:
        """Return the number of version rollbacks."""
        return sum(
            isinstance(one, LogRolledBack) or (isinstance(one, Served) and one.backwards)
            for one in self.facts
        )

    def serves_more_than(self, seq: int) -> Callable[[], Awaitable[bool]]:
        """Return a condition: the served version is above `seq`."""

        async def condition() -> bool:
            return self.weight_cache.serving[MODEL].version > seq

        return condition

    async def rank(self) -> None:
        """Rank some documents repeatedly, like /rank."""
        documents = np.ones((10, N))
        while True:
            found = await self.weight_cache.find(MODEL)
            assert np.isfinite(documents @ found.weights).all()
            self.ranked.record()
            await asyncio.sleep(0.01)


async def noticed(seen: ReplicaObserver, times: int) -> None:
    """Wait until it has seen `times` version rollbacks."""

    async def so() -> bool:
        return seen.backwards >= times

    await until(so, f"{times} version rollbacks are noticed")


@contextlib.asynccontextmanager
async def observed_replica(url: str) -> AsyncIterator[ReplicaObserver]:
    """Run an observer; it must rank until the end."""
    store = Store.open(url)
    seen = ReplicaObserver(store)
    await seen.weight_cache.start()
    ranking = asyncio.create_task(seen.rank())
    try:
        yield seen
        assert not ranking.done(), "the observer stopped ranking"
    finally:
        ranking.cancel()
        await asyncio.gather(ranking, return_exceptions=True)
        await seen.weight_cache.close()
        await store.close()


class Reader:
    """Calls /rank of a service repeatedly from a thread."""

    def __init__(self, service: Running) -> None:
        self.service, self.ranked, self.statuses = service, LongestGap(), set[int]()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        body = {"model": MODEL, "documents": [{"id": "a", "features": [1.0] * N}]}
        with self.service.client() as http:
            while not self._done.wait(0.02):
                with contextlib.suppress(httpx.TransportError):
                    answer = http.post("/rank", json=body)
                    self.statuses.add(answer.status_code)
                    if answer.status_code == 200:
                        self.ranked.record()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and measure the last gap."""
        self._done.set()
        self._thread.join()
        self.ranked.record()


@contextlib.asynccontextmanager
async def running_service(url: str) -> AsyncIterator[Reader]:
    """Run a service with a learner on a store and call /rank repeatedly."""
    environ = {"SOLAR_REMEMBER_SECONDS": "0.05"}  # the default of the service, not of the tests
    stack = contextlib.ExitStack()
    starting = serving("--redis-url", url, "--lease", f"{LEASE:g}", environ=environ)
    service = await asyncio.to_thread(stack.enter_context, starting)
    reader = Reader(service)
    with stack:
        reader.start()
        try:
            yield reader
        finally:
            await asyncio.to_thread(reader.stop)
        assert reader.statuses == {200}
        assert "Traceback" not in service.logged()
