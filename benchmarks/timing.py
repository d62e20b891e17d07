"""Side-by-side timing, for machines that are never quiet.

Candidates take turns in one process, so that a busy neighbour or a change of the clock rate meets
them all; what counts is CPU time, the best of many rounds. The rounds go on for seconds, as busy
spells do (in one, our SOLAR-I took half as long again and C a tenth more). Compare the numbers of
one call with each other, never with those of another call.
"""

import math
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Run = Callable[[], object]
#: Makes what one run needs (a fresh learner, say), which is not timed, and returns the run.
Prepare = Callable[[], Run]


def side_by_side(candidates: Mapping[Key, Prepare], lasting: float) -> dict[Key, float]:
    """The CPU seconds of each candidate's fastest run, in three rounds or `lasting` seconds."""
    best = dict.fromkeys(candidates, math.inf)
    ends, rounds = time.perf_counter() + lasting, 0
    while rounds < 3 or time.perf_counter() < ends:
        for key, prepare in candidates.items():
            best[key] = min(best[key], cpu_seconds(prepare()))
        rounds += 1
    return best


def cpu_seconds(run: Run) -> float:
    """The CPU time of one run, of all threads of this process."""
    began = time.process_time()
    run()
    return time.process_time() - began


def warmed(prepare: Prepare, times: int = 1) -> Prepare:
    """The same, right after some untimed runs, each on a state of its own.

    They leave data in the caches and memory with the allocator, so that a candidate does not pay
    for what the one before it has thrown out (as much as 40 % for the shortest runs).
    """

    def prepare_warm() -> Run:
        *warm, run = (prepare() for _ in range(times + 1))
        for untimed in warm:
            untimed()
        return run

    return prepare_warm


def again(run: Run) -> Prepare:
    """A candidate that keeps its state from round to round."""
    return lambda: run
