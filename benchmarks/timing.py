"""Side-by-side timing, for machines with other load.

Candidates take turns in one process, so that other load and changes of the clock rate affect all
of them. The result is the CPU time of the best of many rounds. The rounds last seconds, because
busy periods do (in one, SOLAR-I took 1.5 times as long and C 1.1 times). Compare only numbers of
the same call.
"""

import math
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Run = Callable[[], object]
#: Prepares a run without being timed (a new learner, for example), and returns the run.
Prepare = Callable[[], Run]


def side_by_side(candidates: Mapping[Key, Prepare], lasting: float) -> dict[Key, float]:
    """The CPU seconds of each candidate's fastest run in `lasting` seconds, at least 3 rounds."""
    best = dict.fromkeys(candidates, math.inf)
    ends, rounds = time.perf_counter() + lasting, 0
    while rounds < 3 or time.perf_counter() < ends:
        for key, prepare in candidates.items():
            best[key] = min(best[key], cpu_seconds(prepare()))
        rounds += 1
    return best


def cpu_seconds(run: Run) -> float:
    """The CPU time of one run, in all threads of this process."""
    began = time.process_time()
    run()
    return time.process_time() - began


def warmed(prepare: Prepare, times: int = 1) -> Prepare:
    """Precede each run with untimed runs, each on a separate state.

    The untimed runs fill caches and the allocator, so that a candidate does not pay for cache
    evictions by the previous one (up to 40 % for the shortest runs).
    """

    def prepare_warm() -> Run:
        *warm, run = (prepare() for _ in range(times + 1))
        for untimed in warm:
            untimed()
        return run

    return prepare_warm


def again(run: Run) -> Prepare:
    """A candidate that keeps its state between rounds."""
    return lambda: run
