"""Which worker computes which part next: decisions only, without a clock and without a cluster.

A worker gets one part a thread. A part goes to the worker that computed it in the last pass, whose
cache has its rows, unless that worker is gone, slow, or has others waiting.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from statistics import median

#: A part gets a second copy after this multiple of the median time, and not before these seconds.
SLOW, LEAST_SECONDS = 5.0, 1.0
#: A part whose worker died this often is not tried again.
MOST_LOSSES = 3
#: Parts that may be computed ahead of the one that is waited for, for each thread: their results
#: wait in memory.
MOST_AHEAD = 8


class TooManyLosses(Exception):
    """The workers of one part died too often; its number is the argument."""


class Dispatch:
    """One pass over all parts.

    `names` identify the parts across passes, `homes` remembers their workers, and `usual` is the
    median time of the last pass, 0 if there was none.

    >>> one = Dispatch("ab", {}, 0.0)
    >>> one.assign({"x": 1, "y": 1}, now=0.0), one.assign({"x": 1, "y": 1}, now=1.0)
    ([(0, 'x'), (1, 'y')], [])
    >>> one.finish(0, "x", now=2.0), one.assign({"x": 1, "y": 1}, now=20.0)  # y is slow
    (True, [(1, 'x')])
    """

    def __init__(
        self, names: Sequence[Hashable], homes: MutableMapping[Hashable, str], usual: float
    ) -> None:
        self._names, self._homes, self._usual = names, homes, usual
        self._running: dict[tuple[int, str], float] = {}
        self._pending = list(range(len(names)))
        self._done: set[int] = set()
        self._times: list[float] = []
        self._losses: Counter[int] = Counter()

    @property
    def usual(self) -> float:
        """The median time of a part."""
        return median(self._times) if self._times else self._usual

    def assign(self, workers: Mapping[str, int], now: float) -> list[tuple[int, str]]:
        """Return the parts to start, each with its worker; `workers` have numbers of threads."""
        found = []
        for worker, threads in workers.items():
            busy = sum(there == worker for _, there in self._running)
            for _ in range(threads - busy):
                at = self._next(worker, workers, now)
                if at is None:
                    break
                self._running[at, worker] = now
                found.append((at, worker))
        return found

    def finish(self, at: int, worker: str, now: float) -> bool:
        """Note a result; return whether it is the first one of its part."""
        began = self._running.pop((at, worker), None)
        if at in self._done:
            return False
        self._done.add(at)
        self._homes[self._names[at]] = worker
        if began is not None:
            self._times.append(now - began)
        return True

    def lose(self, at: int, worker: str) -> None:
        """Note that a part ended without a result: its worker or the scheduler is gone."""
        self._running.pop((at, worker), None)
        self._losses[at] += 1
        if self._losses[at] >= MOST_LOSSES:
            raise TooManyLosses(at)
        if at not in self._done and all(running != at for running, _ in self._running):
            self._pending = sorted({*self._pending, at})

    def lose_all(self) -> None:
        """Note that the scheduler is gone; no worker died."""
        self._pending = sorted({*self._pending, *(at for at, _ in self._running)} - self._done)
        self._running.clear()

    def running(self) -> set[tuple[int, str]]:
        """Return the parts that are computed now, with their workers."""
        return set(self._running)

    def _next(self, worker: str, workers: Mapping[str, int], now: float) -> int | None:
        """Return the next part for a worker: its own, another's, or a second copy."""
        slow = self._slow(now)
        stuck = {there for _, there in slow}
        first = min(self._unfinished(), default=0)
        near = [at for at in self._pending if at < first + MOST_AHEAD * sum(workers.values())]
        waiting = Counter(self._homes.get(self._names[at]) for at in near)

        def free(at: int) -> bool:
            home = self._homes.get(self._names[at])
            if home is None or home not in workers:
                return True
            return home in stuck or waiting[home] > workers[home]

        own = [at for at in near if self._homes.get(self._names[at]) == worker]
        for at in (*own, *filter(free, near)):
            self._pending.remove(at)
            return at
        copies = Counter(at for at, _ in self._running)
        again = [at for at, there in slow if there != worker and copies[at] == 1]
        return min(again, default=None)

    def _unfinished(self) -> set[int]:
        return {*self._pending, *(at for at, _ in self._running if at not in self._done)}

    def _slow(self, now: float) -> list[tuple[int, str]]:
        if not self.usual:
            return []
        most = max(LEAST_SECONDS, SLOW * self.usual)
        return [
            key for key, began in self._running.items()
            if now - began > most and key[0] not in self._done
        ]  # fmt: skip
