"""Shares of API keys: in the feedback of a minute, and in the memory of the store."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from os import getpid
from socket import gethostname
from time import monotonic

from app.domain.work import RECORD_WORK
from app.errors import SolarError
from app.storage.store import Store

#: Parts of the time over which counts are kept.
_PARTS = 30
#: Seconds between two exchanges of counts with other workers.
EXCHANGE_SECONDS = 1.0
#: Names that are counted separately; further ones count together.
MOST_NAMES = 10_000
_FURTHER = ""


class RecentCounts:
    """Counts by name over the last `seconds`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._parts: deque[tuple[float, Counter[str]]] = deque()
        self._counts: Counter[str] = Counter()
        self.total = 0

    def drop_old(self) -> None:
        """Remove the counts that are older than `seconds`."""
        until = self._clock() - self._seconds
        while self._parts and self._parts[0][0] <= until:
            _, old = self._parts.popleft()
            self._counts -= old  # keeps positive counts only
            self.total -= old.total()

    def add(self, name: str, count: int) -> None:
        """Count for a name."""
        now = self._clock()
        if not self._parts or now >= self._parts[-1][0] + self._seconds / _PARTS:
            self._parts.append((now, Counter()))
        counted = self._counted(name)
        self._parts[-1][1][counted] += count
        self._counts[counted] += count
        self.total += count

    def remove(self, name: str, count: int) -> None:
        """Remove from the newest counts of a name."""
        counted = self._counted(name)
        for _, part in reversed(self._parts):
            some = min(count, part[counted])
            if some:
                count -= some
                part[counted] -= some
                self._counts -= Counter({counted: some})  # keeps positive counts only
                self.total -= some

    def of(self, name: str) -> int:
        """Return the count of a name."""
        return self._counts[self._counted(name)]

    def counts(self) -> dict[str, int]:
        """Return all counts by name."""
        return dict(self._counts)

    def names(self, one_more: str) -> int:
        """Return the number of names with a count, `one_more` included."""
        return len(self._counts) + (self._counted(one_more) not in self._counts)

    def _counted(self, name: str) -> str:
        many = len(self._counts) >= MOST_NAMES and name not in self._counts
        return _FURTHER if many else name


class SourceQuota:
    """The share of each sender in the work of the feedback of the last minute.

    Of k senders, each gets the configured share, and at least 1/k. So one of them can always post:
    the one with the least work. A post is judged by the work before it.
    """

    MINIMUM_WORK = 100 * RECORD_WORK  # of 100 events without pairs; up to it no sender is refused
    SECONDS = 60.0

    def __init__(self, maximum_share: float, clock: Callable[[], float] = monotonic) -> None:
        self._maximum_share = maximum_share
        self._recent = RecentCounts(self.SECONDS, clock)

    def take(self, sender: str, work: int) -> bool:
        """Count the work of a sender unless it is over its share; return whether it is not.

        >>> quota, some = SourceQuota(0.5), SourceQuota.MINIMUM_WORK
        >>> quota.take("web", 2 * some), quota.take("app", some), quota.take("web", 1)
        (True, True, False)
        """
        recent = self._recent
        recent.drop_old()
        share = max(self._maximum_share, 1.0 / recent.names(sender))
        many = recent.total + work > self.MINIMUM_WORK
        if many and recent.of(sender) > share * recent.total:
            return False
        recent.add(sender, work)
        return True

    def give_back(self, sender: str, work: int) -> None:
        """Do not count work that was taken, but not stored."""
        self._recent.remove(sender, work)


class StoreQuota:
    """The share of each API key in what all workers store, once the store is nearly full.

    From 70 % of the store's memory on, a key with more than its share is refused, so that one key
    does not fill the store for all. The share falls from all, at 70 %, to 1/k at 80 %, for k keys
    that store. A key with at most 1/k goes on: its impressions up to 90 %, its feedback always.
    """

    FROM, TO, MOST = 0.7, 0.8, 0.9

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._recent = RecentCounts(seconds, clock)
        self._elsewhere: Counter[str] = Counter()

    def add(self, key: str, size: int) -> None:
        """Count the bytes that a key has stored."""
        self._recent.drop_old()
        self._recent.add(key, size)

    def counts(self) -> dict[str, int]:
        """Return the bytes of each key in this worker."""
        self._recent.drop_old()
        return self._recent.counts()

    def update(self, elsewhere: Mapping[str, int]) -> None:
        """Take over the bytes of each key in other workers."""
        self._elsewhere = Counter(elsewhere)

    def admits_feedback(self, key: str, memory_share: float) -> bool:
        """Whether a key may store feedback, at this used share of the store's memory."""
        if memory_share <= self.FROM:
            return True
        self._recent.drop_old()
        return self._share(key) <= self._allowed(key, memory_share)

    def admits_impression(self, key: str, memory_share: float) -> bool:
        """Whether a key may store an impression, at this used share of the store's memory.

        >>> quota = StoreQuota(seconds=60.0)
        >>> quota.add("flood", 9_000)
        >>> [quota.admits_impression("flood", used) for used in (0.7, 0.8, 0.81)]  # alone
        [True, True, False]
        >>> quota.add("web", 1_000)
        >>> [quota.admits_impression("flood", used) for used in (0.71, 0.75)]
        [True, False]
        >>> [quota.admits_impression("web", used) for used in (0.8, 0.9, 0.91)]
        [True, True, False]
        """
        if memory_share <= self.FROM:
            return True
        others = self._names(key) > 1
        small = others and self._share(key) <= 1.0 / self._names(key)
        most = self.MOST if small else self.TO
        return memory_share <= most and self.admits_feedback(key, memory_share)

    def _share(self, key: str) -> float:
        total = self._recent.total + self._elsewhere.total()
        return (self._recent.of(key) + self._elsewhere[key]) / total if total else 0.0

    def _names(self, key: str) -> int:
        return len({key, *self._recent.counts(), *self._elsewhere})

    def _allowed(self, key: str, memory_share: float) -> float:
        least = 1.0 / self._names(key)
        room = max(0.0, (self.TO - memory_share) / (self.TO - self.FROM))
        return least + (1.0 - least) * room


async def exchange_counts(store: Store, quota: StoreQuota, seconds: float) -> None:
    """Exchange the counts with other workers until cancelled; they survive a restart."""
    worker = f"{gethostname()}:{getpid()}"
    while True:
        with suppress(SolarError):
            quota.update(await store.servers.exchange_usage(worker, quota.counts(), seconds))
        await asyncio.sleep(EXCHANGE_SECONDS)
