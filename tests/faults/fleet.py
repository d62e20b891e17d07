"""What the tests of fleets share: posters at some level, and what became of what they were told."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import monotonic

import httpx
import numpy as np

from app.domain.facts import LogRolledBack, Served
from app.errors import StoreError
from app.ingest.appender import PendingEvent, post
from app.serving.weight_cache import WeightCache
from app.storage.store import Store
from tests.api.services import Running, serving
from tests.faults.checker import (
    check_log,
    check_nothing_foreign,
    check_state,
    learnt,
    missing,
    repeated,
)
from tests.faults.checker import look as look_at
from tests.faults.invented import MODEL, Invented, N
from tests.faults.learners import LEASE
from tests.faults.posters import NO_LIMIT, Ledger
from tests.faults.waiting import until


class Pulse:
    """The longest time between two signs of life."""

    def __init__(self) -> None:
        self.longest, self.beats, self._last = 0.0, 0, monotonic()

    def beat(self) -> None:
        """A sign of life; the first begins the count."""
        now = monotonic()
        if self.beats:
            self.longest = max(self.longest, now - self._last)
        self._last, self.beats = now, self.beats + 1


class Crowd:
    """Posters at work on a store at some level; each insists for as long as the store is there."""

    def __init__(
        self, url: str, durability: str, epoch: int, count: int = 3, pause: float = 0.05
    ) -> None:
        self._url, self.level, self._epoch, self._pause = url, durability, epoch, pause
        self.ledger, self.refused, self.pulse = Ledger(), 0, Pulse()
        self._names = [f"{durability or 'plain'}{at}-" for at in range(count)]
        self._done = False

    async def __aenter__(self) -> "Crowd":
        self._tasks = [asyncio.create_task(self._work(name)) for name in self._names]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._done = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), 60)

    async def _work(self, name: str) -> None:
        store, invented = Store.open(self._url, self.level), Invented(1, name)
        try:
            while not self._done:
                await self._insist(store, [invented.labels() for _ in range(2)])
                await asyncio.sleep(self._pause)
        finally:
            await store.close()

    async def _insist(self, store: Store, events: list[PendingEvent]) -> None:
        """Nothing but a StoreError may come: it is what becomes a 503."""
        self.ledger.doubts |= {one.feedback.event: one for one in events}
        while not self._done:
            try:
                answers = await post(store, MODEL, self._epoch, events, limit=NO_LIMIT, time=0)
            except StoreError:
                self.refused += 1
                await asyncio.sleep(0.02)
            else:
                self.ledger.note(events, answers)
                self.pulse.beat()
                return

    def more_than(self, count: int) -> Callable[[], Awaitable[bool]]:
        """Whether more than so many events were acknowledged."""

        async def condition() -> bool:
            return len(self.ledger.told) > count

        return condition


async def fed(*crowds: Crowd, by: int = 10) -> None:
    """Wait until each of them was told of so many more events."""
    for crowd in crowds:
        await until(crowd.more_than(len(crowd.ledger.told) + by), f"{by} more events")


@dataclass(frozen=True)
class Account:
    """What was acknowledged, and what of it is not there, at the seq that was told."""

    told: int
    lost: int


async def account(
    url: str, crowds: Iterable[Crowd], fault: str, rounds: int, ranked: Pulse
) -> dict[str, Account]:
    """Once all is learnt: nothing is there twice, the state is the log's replay, bit for bit.

    What is lost is counted by level, and what is there is all accounted for. Prints a line of the
    table in docs/reliability.md for each level.
    """
    await learnt(url)
    found, crowds = await look_at(url), list(crowds)
    feedback = found.feedback()
    assert found.start.seq == 0, "the log was trimmed: what is lost cannot be counted any more"
    assert repeated(feedback) == []
    check_log(found)
    check_state(found)
    check_nothing_foreign(_together(crowds), feedback)
    accounts = {
        crowd.level: Account(len(crowd.ledger.told), len(missing(crowd.ledger, feedback, 0)))
        for crowd in crowds
    }
    events = {one.event for one in feedback.values()}
    unsure = sum(event in events for crowd in crowds for event in crowd.ledger.doubts)
    assert len(feedback) == unsure + sum(one.told - one.lost for one in accounts.values())
    for crowd in crowds:
        told = accounts[crowd.level]
        print(  # noqa: T201
            f"\n| {fault} | `{crowd.level}` | {rounds} | {told.told:,} | {told.lost:,} | 0 "
            f"| {ranked.longest:.2f} s | {crowd.pulse.longest:.1f} s |",
            end="",
        )
    return accounts


def _together(crowds: Iterable[Crowd]) -> Ledger:
    """What all of them know."""
    one = Ledger()
    for crowd in crowds:
        one.told |= crowd.ledger.told
        one.doubts |= crowd.ledger.doubts
    return one


class Onlooker:
    """A replica that serves: how often it saw the store go back, and what it serves."""

    def __init__(self, store: Store) -> None:
        self.facts: list[Served | LogRolledBack] = []
        self.weight_cache, self.ranked = WeightCache(store, self.facts.append, poll=0.05), Pulse()

    @property
    def backwards(self) -> int:
        """How often the store went back."""
        return sum(isinstance(one, LogRolledBack) or one.backwards for one in self.facts)

    def serves_more_than(self, seq: int) -> Callable[[], Awaitable[bool]]:
        """Whether a record after this one is in what it serves."""

        async def condition() -> bool:
            return self.weight_cache.serving[MODEL].version > seq

        return condition

    async def rank(self) -> None:
        """Rank some documents again and again, as /rank does."""
        documents = np.ones((10, N))
        while True:
            found = await self.weight_cache.find(MODEL)
            assert np.isfinite(documents @ found.weights).all()
            self.ranked.beat()
            await asyncio.sleep(0.01)


async def noticed(seen: Onlooker, times: int) -> None:
    """Wait until it saw the store go back so often."""

    async def so() -> bool:
        return seen.backwards >= times

    await until(so, f"the store was seen to go back {times} times")


@contextlib.asynccontextmanager
async def onlooker(url: str) -> AsyncIterator[Onlooker]:
    """One for a while; it must have ranked to the end."""
    store = Store.open(url)
    seen = Onlooker(store)
    await seen.weight_cache.start()
    ranking = asyncio.create_task(seen.rank())
    try:
        yield seen
        assert not ranking.done(), "it ranks no more"
    finally:
        ranking.cancel()
        await asyncio.gather(ranking, return_exceptions=True)
        await seen.weight_cache.close()
        await store.close()


class Reader:
    """Asks a service for /rank again and again, in a thread of its own."""

    def __init__(self, service: Running) -> None:
        self.service, self.ranked, self.statuses = service, Pulse(), set[int]()
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
                        self.ranked.beat()

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def stop(self) -> None:
        """No more; the last answer may be long ago."""
        self._done.set()
        self._thread.join()
        self.ranked.beat()


@contextlib.asynccontextmanager
async def a_service(url: str) -> AsyncIterator[Reader]:
    """A whole service on a store, with its learner, that is asked for /rank all the time."""
    environ = {"SOLAR_REMEMBER_SECONDS": "0.05"}  # as it is without the patience of tests
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
