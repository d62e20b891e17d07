"""Feedback clients that retry until they get a seq, and a ledger of the answers."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.errors import Backlog, Changed, Unavailable
from app.ingest.appender import PendingEvent, post
from app.storage.log import APPENDED, NO_IMPRESSION, REPEATED, AppendResult
from app.storage.store import Store
from tests.faults.event_generator import MODEL, EventGenerator

NO_LIMIT = 1 << 40
RANKINGS = 5  # rankings to click on at first


@dataclass
class Ledger:
    """The acknowledged events; `unanswered` events may or may not be in the log.

    With `loses_lists` a failover may lose rankings: clicks on them are refused.
    """

    acknowledged: dict[str, tuple[int, PendingEvent]] = field(default_factory=dict)
    unanswered: dict[str, PendingEvent] = field(default_factory=dict)
    repeats: int = 0
    loses_lists: bool = False

    def note(self, events: Sequence[PendingEvent], answers: Sequence[AppendResult]) -> None:
        """Record the answers to a post; a repeated event must get the same seq (I6)."""
        for posted, answer in zip(events, answers, strict=True):
            event = posted.feedback.event
            if self.loses_lists and answer.outcome == NO_IMPRESSION:
                continue
            assert answer.outcome in (APPENDED, REPEATED), f"{event}: {answer}"
            before = self.acknowledged.setdefault(event, (answer.seq, posted))
            assert before[0] == answer.seq, f"{event}: answered {before[0]}, then {answer.seq}"
            self.repeats += answer.outcome == REPEATED
            self.unanswered.pop(event, None)


async def post_until_answered(
    store: Store,
    epoch: int,
    events: Sequence[PendingEvent],
    ledger: Ledger,
    *,
    limit: int = NO_LIMIT,
    model: str = MODEL,
) -> None:
    """Post until there is an answer."""
    while True:
        try:
            answers = await post(store, model, epoch, events, limit=limit, time=0)
        except (Unavailable, Backlog, Changed):
            await asyncio.sleep(0.01)
            continue
        ledger.note(events, answers)
        return


class FeedbackClients:
    """Concurrent clients that post until the block ends; some posts are repeated."""

    def __init__(
        self,
        url: str,
        epoch: int,
        ledger: Ledger,
        generators: Sequence[EventGenerator],
        pause: float,
        durability: str = "",
    ) -> None:
        self._url, self._epoch, self._ledger = url, epoch, ledger
        self._durability = durability
        self._generators, self._pause = generators, pause
        self._done = False

    async def __aenter__(self) -> None:
        self._tasks = [asyncio.create_task(self._work(one)) for one in self._generators]

    async def __aexit__(self, *_: object) -> None:
        self._done = True
        await asyncio.wait_for(asyncio.gather(*self._tasks), 60)

    async def _work(self, generator: EventGenerator) -> None:
        store = Store.open(self._url, self._durability)
        try:
            await self._post(store, generator)
        finally:
            await store.close()

    async def _post(self, store: Store, generator: EventGenerator) -> None:
        sent: list[PendingEvent] = []
        while not self._done:
            events = [generator.event() for _ in range(generator.rng.integers(1, 6))]
            if sent and generator.rng.random() < 0.2:
                events.append(sent[generator.rng.integers(len(sent))])
            await post_until_answered(store, self._epoch, events, self._ledger)
            sent += events
            if generator.rng.random() < generator.shows:
                await self._show_another(store, generator)
            await asyncio.sleep(self._pause)

    async def _show_another(self, store: Store, generator: EventGenerator) -> None:
        """Add a ranking and drop the oldest, because records hold all earlier clicks."""
        with contextlib.suppress(Unavailable):
            await generator.show(store, self._epoch, 1)
            while len(generator.rankings) > generator.keeps:
                del generator.rankings[next(iter(generator.rankings))]


async def new_clients(
    url: str,
    epoch: int,
    ledger: Ledger,
    seed: int,
    count: int = 3,
    pause: float = 0.02,
    *,
    kind: type[EventGenerator] = EventGenerator,
    durability: str = "",
) -> FeedbackClients:
    """Return clients that share some rankings to click on."""
    store = Store.open(url)
    generators = [kind(seed, f"p{seed}-{at}-") for at in range(count)]
    await generators[0].show(store, epoch, RANKINGS)
    for one in generators[1:]:
        one.rankings = generators[0].rankings
    await store.close()
    return FeedbackClients(url, epoch, ledger, generators, pause, durability)
