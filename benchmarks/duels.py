"""Duels: mistakes, power, learning, a bank of followers, and the cost of folds.

Simulated users on judged data. `SOLAR_DEV_SEEDS` (10) sets the number of seeds of models that
learn, `SOLAR_DEV_PROCESSES` (1) the number of processes.
"""

from benchmarks import duels_bank, duels_fold, duels_learning, duels_null, duels_power
from benchmarks.report import Goal

PARTS = (duels_null, duels_power, duels_learning, duels_bank, duels_fold)


def run() -> list[Goal]:
    """Print all tables, return the goals."""
    return [goal for part in PARTS for goal in part.run()]
