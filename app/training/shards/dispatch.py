"""Which worker computes which part next: decisions only, without a clock and without a cluster.

A worker gets one part a thread. A part goes to the worker that computed it in the last pass, whose
cache has its rows, unless that worker is gone, stuck, or has others waiting. A copy of a part that
takes too long is started elsewhere.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, MutableMapping, Sequence
from itertools import takewhile

#: A part is late after this multiple of the median time, and not before these seconds.
SLOW, LEAST_SECONDS = 5.0, 1.0
#: Seconds after which a part is late before any median is known.
FIRST_SECONDS = 60.0
#: Most copies of a part at once.
MOST_COPIES = 3
#: A part whose worker died this often is not tried again.
MOST_LOSSES = 3
#: A part whose rows could not be read this often is not tried again.
MOST_FAILURES = 2
#: Parts that may be computed ahead of the one that is waited for, for each thread: their results
#: wait in memory.
MOST_AHEAD = 8

#: A copy of a part: the number of the part, and the worker.
Copy = tuple[int, str]


class TooManyLosses(Exception):
    """The workers of one part died too often; its number is the argument."""


class Dispatch:
    """One pass over all parts.

    `names` identify the parts across passes, `homes` remembers their workers, and `usual` is the
    median time of the last pass, 0 if there was none. `stuck` remembers the workers with a late
    part until they answer in time: they get no copies, and others may take their parts.

    >>> one = Dispatch("ab", {}, 0.0)
    >>> one.assign({"x": 1, "y": 1}, now=0.0), one.assign({"x": 1, "y": 1}, now=1.0)
    ([(0, 'x'), (1, 'y')], [])
    >>> one.finish(0, "x", now=2.0), one.assign({"x": 1, "y": 1}, now=20.0)  # y is late
    (True, [(1, 'x')])
    """

    def __init__(
        self,
        names: Sequence[Hashable],
        homes: MutableMapping[Hashable, str],
        usual: float,
        stuck: set[str] | None = None,
    ) -> None:
        self._names, self._homes, self._usual = names, homes, usual
        self._stuck: set[str] = set() if stuck is None else stuck
        self._home = [homes.get(name) for name in names]
        self._queues: dict[str | None, list[int]] = defaultdict(list)
        for at, home in enumerate(self._home):
            self._queues[home].append(at)
        self._running: dict[Copy, float] = {}
        self._late: set[Copy] = set()
        self._failed: set[Copy] = set()
        self._done: set[int] = set()
        self._first = 0
        self._times: list[float] = []
        self._losses: Counter[int] = Counter()
        self._failures: Counter[int] = Counter()

    @property
    def usual(self) -> float:
        """The median time of a part."""
        return self._times[len(self._times) // 2] if self._times else self._usual

    def assign(
        self, workers: Mapping[str, int], now: float, silent: Collection[str] = ()
    ) -> list[Copy]:
        """Return the parts to start, each with its worker; `workers` have numbers of threads.

        The parts of `silent` workers, which are stopped or cut off, are late at once.
        """
        self._note_late(now, silent)
        while self._first in self._done:
            self._first += 1
        limit = self._first + MOST_AHEAD * sum(workers.values())
        busy = Counter(there for _, there in self._running)
        found = []
        for worker in sorted(workers, key=self._stuck.__contains__):
            for _ in range(workers[worker] - busy[worker]):
                at = self._next(worker, workers, limit)
                if at is None:
                    break
                self._start((at, worker), now)
                found.append((at, worker))
        return found

    def finish(self, at: int, worker: str, now: float) -> bool:
        """Note a result; return whether it is the first one of its part."""
        began = self._end(at, worker)
        if began is not None and now - began <= self._most_seconds():
            self._stuck.discard(worker)
        if at in self._done:
            return False
        self._done.add(at)
        self._homes[self._names[at]] = worker
        if began is not None:
            insort(self._times, now - began)
        return True

    def fail(self, at: int, worker: str) -> bool:
        """Note that a worker could not read a part; return whether another try is left."""
        self._end(at, worker)
        self._failed.add((at, worker))
        self._failures[at] += 1
        copies = self._copies(at)
        if at in self._done or any(one not in self._late for one in copies):
            return True
        if self._failures[at] >= MOST_FAILURES:
            return False
        self._queue_again([at])
        return True

    def lose(self, at: int, worker: str) -> None:
        """Note that a part ended without a result: its worker or the scheduler is gone."""
        self._end(at, worker)
        self._losses[at] += 1
        if self._losses[at] >= MOST_LOSSES:
            raise TooManyLosses(at)
        self._queue_again([at])

    def lose_all(self) -> None:
        """Note that the scheduler is gone; no worker died."""
        lost = {at for at, _ in self._running}
        self._running.clear()
        self._late.clear()
        self._queue_again(lost)

    def running(self) -> set[Copy]:
        """Return the parts that are computed now, with their workers."""
        return set(self._running)

    def _start(self, copy: Copy, now: float) -> None:
        self._running[copy] = now
        if copy[1] in self._stuck:
            self._late.add(copy)

    def _end(self, at: int, worker: str) -> float | None:
        self._late.discard((at, worker))
        return self._running.pop((at, worker), None)

    def _queue_again(self, parts: Iterable[int]) -> None:
        """Queue the parts without a result of which no copy is running."""
        for at in parts:
            if at not in self._done and not self._copies(at):
                insort(self._queues[self._home[at]], at)

    def _note_late(self, now: float, silent: Collection[str]) -> None:
        most = self._most_seconds()
        late = {one for one, began in self._running.items() if now - began > most}
        late |= {one for one in self._running if one[1] in silent}
        self._stuck.update(worker for at, worker in late if at not in self._done)
        self._late |= late

    def _most_seconds(self) -> float:
        return max(LEAST_SECONDS, SLOW * self.usual) if self.usual else FIRST_SECONDS

    def _next(self, worker: str, workers: Mapping[str, int], limit: int) -> int | None:
        """Return the next part for a worker: its own, another's, or a copy."""

        def first(home: str | None) -> int | None:
            near = takewhile(limit.__gt__, self._queues.get(home, ()))
            return next((at for at in near if self._may_try(at, worker, workers)), None)

        found = first(worker)
        if found is None:
            firsts = (first(home) for home in self._queues if self._is_free(home, workers, limit))
            found = min((at for at in firsts if at is not None), default=None)
        if found is None:
            return self._next_copy(worker, workers)
        self._queues[self._home[found]].remove(found)
        return found

    def _is_free(self, home: str | None, workers: Mapping[str, int], limit: int) -> bool:
        """Whether others may take the parts of a worker: it is gone, stuck, or has too many."""
        if home is None or home not in workers or home in self._stuck:
            return True
        queue, threads = self._queues[home], workers[home]
        return len(queue) > threads and queue[threads] < limit

    def _may_try(self, at: int, worker: str, workers: Mapping[str, int]) -> bool:
        """Whether a worker has not failed to read this part, or all have."""
        return (at, worker) not in self._failed or all((at, one) in self._failed for one in workers)

    def _next_copy(self, worker: str, workers: Mapping[str, int]) -> int | None:
        """Return the first part of which all copies are late, and another one may help."""
        if worker in self._stuck:
            return None
        return min(
            (at for at, _ in self._late if self._may_copy(at, worker, workers)), default=None
        )

    def _may_copy(self, at: int, worker: str, workers: Mapping[str, int]) -> bool:
        copies = self._copies(at)
        return (
            at not in self._done
            and (at, worker) not in copies
            and self._late.issuperset(copies)
            and sum(there in workers for _, there in copies) < MOST_COPIES
            and self._may_try(at, worker, workers)
        )

    def _copies(self, at: int) -> list[Copy]:
        return [one for one in self._running if one[0] == at]
