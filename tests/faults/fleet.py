"""What the tests of fleets share: posters at some level, and what became of what they were told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

from app.errors import StoreError
from app.events import Returned, Served
from app.posting import Posted, post
from app.ranker import Ranker
from app.store.store import Store
from tests.faults.checker import check_log, check_state, learnt, repeated
from tests.faults.checker import look as look_at
from tests.faults.invented import MODEL, Invented
from tests.faults.posters import NO_LIMIT, Ledger


class Crowd:
    """Posters at work on a store at some level; each insists for as long as the store is there."""

    def __init__(
        self, url: str, durability: str, epoch: int, count: int = 3, model: str = MODEL
    ) -> None:
        self._url, self._durability, self._epoch, self._model = url, durability, epoch, model
        self.ledger, self.refused = Ledger(), 0
        self._names = [f"{durability or 'plain'}{at}-" for at in range(count)]
        self._done = False

    async def __aenter__(self) -> "Crowd":
        self._tasks = [asyncio.create_task(self._work(name)) for name in self._names]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._done = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), 60)

    async def _work(self, name: str) -> None:
        store, invented = Store.open(self._url, self._durability), Invented(1, name)
        try:
            while not self._done:
                await self._insist(store, [invented.labels() for _ in range(2)])
                await asyncio.sleep(0.005)
        finally:
            await store.close()

    async def _insist(self, store: Store, events: list[Posted]) -> None:
        """Nothing but a StoreError may come: it is what becomes a 503."""
        while not self._done:
            try:
                answers = await post(
                    store, self._model, self._epoch, events, limit=NO_LIMIT, time=0
                )
            except StoreError:
                self.refused += 1
                await asyncio.sleep(0.02)
            else:
                self.ledger.told |= {
                    one.feedback.event: (answer.seq, one)
                    for one, answer in zip(events, answers, strict=True)
                }
                return

    def more_than(self, count: int) -> Callable[[], "asyncio.Future[bool]"]:
        """Whether more than so many events were acknowledged."""

        async def condition() -> bool:
            return len(self.ledger.told) > count

        return lambda: asyncio.ensure_future(condition())


@dataclass(frozen=True)
class Account:
    """What was acknowledged, what is there of it, and what is there twice."""

    told: int
    lost: int
    doubled: int
    records: int


async def account(url: str, crowds: Iterable[Crowd], title: str, model: str = MODEL) -> Account:
    """Once all is learnt: the log is dense, the state is its replay; the rest is counted."""
    await learnt(url, model)
    found = await look_at(url, model)
    feedback = found.feedback()
    events = {one.event for one in feedback.values()}
    told = [event for crowd in crowds for event in crowd.ledger.told]
    check_log(found)
    check_state(found)
    lost = sum(event not in events for event in told)
    result = Account(len(told), lost, len(repeated(feedback)), len(found.records))
    print(f"\n{title}: {result}")  # noqa: T201
    return result


class Onlooker:
    """A replica that serves: how often it saw the store go back, and what it serves."""

    def __init__(self, store: Store) -> None:
        self.facts: list[Served | Returned] = []
        self.ranker = Ranker(store, self.facts.append, poll=0.05)

    @property
    def backwards(self) -> int:
        """How often the store went back."""
        return sum(isinstance(one, Returned) or one.backwards for one in self.facts)


@contextlib.asynccontextmanager
async def onlooker(url: str) -> AsyncIterator[Onlooker]:
    """One for a while."""
    store = Store.open(url)
    seen = Onlooker(store)
    await seen.ranker.start()
    try:
        yield seen
    finally:
        await seen.ranker.close()
        await store.close()
