"""`make simulate SEEDS=10000`: as many worlds; `make simulate SEED=1234`: one, with its trace."""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable

from tests.simulation.world import Outcome, play, tried


def main() -> int:
    """How many seeds failed."""
    parser = argparse.ArgumentParser(prog="simulate")
    parser.add_argument("--seed", type=int, help="one world, with its trace")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--start", type=int, default=1000, help="the first; tests take 0 to 199")
    given = parser.parse_args()
    if given.seed is not None:
        return replay(given.seed)
    return many(range(given.start, given.start + given.seeds))


def replay(seed: int) -> int:
    """One world, told as it went."""
    try:
        became = play(seed)
    except AssertionError as error:
        print(*getattr(error, "trace", ()), sep="\n")
        print(f"seed {seed}: {error}")
        return 1
    print(*became.trace, sep="\n")
    print(f"seed {seed}: {became.records} records, {became.lost} lost at {became.level}; all held")
    return 0


def many(seeds: range) -> int:
    """All of them, on all processors."""
    started, failed, done = time.monotonic(), 0, list[Outcome]()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for at, (seed, became) in enumerate(pool.imap(tried, seeds, chunksize=5), 1):
            if isinstance(became, str):
                failed += 1
                print(f"seed {seed}: {became}\n  make simulate SEED={seed}", flush=True)
            else:
                done.append(became)
            if at % max(1, len(seeds) // 20) == 0:
                print(f"{at} of {len(seeds)} in {time.monotonic() - started:.0f} s", flush=True)
    print(f"{len(seeds)} seeds, {failed} failed; " + summary(done))
    return min(failed, 1)


def summary(done: Iterable[Outcome]) -> str:
    """What was acknowledged and lost, by level."""
    lost: dict[str, int] = {}
    for became in done:
        lost[became.level] = lost.get(became.level, 0) + became.lost
    each = ", ".join(f"{level} {count}" for level, count in sorted(lost.items()))
    return f"acknowledged and lost, each accounted for: {each}"


if __name__ == "__main__":
    sys.exit(main())
