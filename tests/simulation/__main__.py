"""`make simulate SEEDS=10000`: many seeds; `make simulate SEED=1234`: one with its trace."""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable

from tests.simulation.world import Outcome, play, try_seed


def main() -> int:
    """Run the seeds; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="simulate")
    parser.add_argument("--seed", type=int, help="run one seed and print its trace")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds")
    parser.add_argument(
        "--start", type=int, default=1000, help="first seed; the tests use 0 to 199"
    )
    given = parser.parse_args()
    if given.seed is not None:
        return replay(given.seed)
    return many(range(given.start, given.start + given.seeds))


def replay(seed: int) -> int:
    """Run one seed and print its trace."""
    try:
        outcome = play(seed)
    except AssertionError as error:
        print(*getattr(error, "trace", ()), sep="\n")
        print(f"seed {seed}: {error}")
        return 1
    print(*outcome.trace, sep="\n")
    print(
        f"seed {seed}: {outcome.records} records, {outcome.lost} lost at {outcome.level}; "
        "all invariants held"
    )
    return 0


def many(seeds: range) -> int:
    """Run all seeds on all processors."""
    started, failed, done = time.monotonic(), 0, list[Outcome]()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for at, (seed, outcome) in enumerate(pool.imap(try_seed, seeds, chunksize=5), 1):
            if isinstance(outcome, str):
                failed += 1
                print(f"seed {seed}: {outcome}\n  make simulate SEED={seed}", flush=True)
            else:
                done.append(outcome)
            if at % max(1, len(seeds) // 20) == 0:
                print(f"{at} of {len(seeds)} in {time.monotonic() - started:.0f} s", flush=True)
    print(f"{len(seeds)} seeds, {failed} failed; " + summary(done))
    return min(failed, 1)


def summary(done: Iterable[Outcome]) -> str:
    """Return the acknowledged and lost events by level."""
    lost: dict[str, int] = {}
    for outcome in done:
        lost[outcome.level] = lost.get(outcome.level, 0) + outcome.lost
    each = ", ".join(f"{level} {count}" for level, count in sorted(lost.items()))
    return f"acknowledged and lost, all explained: {each}"


if __name__ == "__main__":
    sys.exit(main())
