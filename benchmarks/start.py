"""The time from process start to the first learnt pair, with a warm kernel cache.

The table shows wall-clock time, which includes the disk and the interpreter.
"""

import os
import subprocess
import sys
import time

from benchmarks.report import Goal, at_most, table

MOST_SECONDS = 0.7
STARTS = 7

#: The child's program; it prints the seconds since its first statement.
FIRST_CALLS = """
import time
began = time.perf_counter()
import numpy as np
from app.ranking.solar import SolarI, SolarII
gaps = np.linspace(-1.0, 1.0, 3 * 46).reshape(3, 46)
SolarII(46).learn(gaps)
SolarI(46).learn(gaps)
print(time.perf_counter() - began)
"""


def run() -> list[Goal]:
    """Print the table, return the goal."""
    started()  # fills the caches
    inside, whole = (min(times) for times in zip(*(started() for _ in range(STARTS)), strict=True))
    rows = [
        ["import and first call of SOLAR-I and SOLAR-II", f"{inside:.3f} s"],
        ["whole process", f"{whole:.3f} s"],
    ]
    print(table(f"Start, best of {STARTS}", ["", "wall clock"], rows), end="\n\n")
    return [at_most("import and first call", MOST_SECONDS, "s", inside)]


def started() -> tuple[float, float]:
    """Run one process; return the seconds that it prints, and those of the whole process."""
    # Without this variable the child writes bytecode files, as in production.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", FIRST_CALLS],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return float(child.stdout), time.perf_counter() - began
