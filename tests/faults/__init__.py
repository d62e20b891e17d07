"""Fault injection with real servers and processes; the tests check the invariants (I1 …).

`SOLAR_DEV_CHAOS=20` repeats every fault twenty times as often (`make chaos`).
"""

import os

CHAOS = float(os.environ.get("SOLAR_DEV_CHAOS", "1"))


def rounds(usual: int) -> int:
    """Return the number of repetitions: `usual` in the suite, more in `make chaos`."""
    return max(1, round(usual * CHAOS))
