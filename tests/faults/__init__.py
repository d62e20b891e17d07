"""Real servers, real learners, real kills: what must never happen is looked for here.

`SOLAR_DEV_CHAOS=20` plays every fault twenty times as often (`make chaos`).
"""

import os

CHAOS = float(os.environ.get("SOLAR_DEV_CHAOS", "1"))


def rounds(usual: int) -> int:
    """How often a fault is played: so often in `make test`, more in `make chaos`."""
    return max(1, round(usual * CHAOS))
