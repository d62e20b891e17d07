"""A checker that cannot fail is a defect: bugs are planted, and must be found by their number."""

import pytest

from tests.simulation.checker import Violation
from tests.simulation.mutants import MUTANTS
from tests.simulation.server import Level
from tests.simulation.world import play

#: Seeds until a bug must have been found.
MOST = 40


def some(only: str, level: Level | None) -> None:
    for seed in range(MOST):
        play(seed, only, level)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_bug_is_found(name: str) -> None:
    plant, numbers, only, level = MUTANTS[name]
    with plant(), pytest.raises(Violation, match="|".join(rf"^{one}\b" for one in numbers)):
        some(only, level)
