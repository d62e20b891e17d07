"""The checker finds planted bugs by the number of the invariant."""

import pytest

from tests.simulation.checker import Violation
from tests.simulation.mutants import MUTANTS
from tests.simulation.server import Level
from tests.simulation.world import play

#: Seeds to find a bug.
MAX_SEEDS = 100


def play_seeds(only: str, level: Level | None) -> None:
    for seed in range(MAX_SEEDS):
        play(seed, only, level)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    plant, numbers, only, level = MUTANTS[name]
    with plant(), pytest.raises(Violation, match="|".join(rf"^{one}\b" for one in numbers)):
        play_seeds(only, level)
