"""The checker finds planted bugs by the number of the invariant."""

import pytest

from tests.simulation.expected import Violation
from tests.simulation.mutants import MUTANTS
from tests.simulation.planting import Mutant
from tests.simulation.world import has_duels, play

#: Seeds to find a bug.
MAX_SEEDS = 100


def play_seeds(mutant: Mutant) -> None:
    for seed in range(mutant.start, mutant.start + MAX_SEEDS):
        if not mutant.duels or has_duels(seed):
            play(seed, mutant.only, mutant.level)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    mutant = MUTANTS[name]
    expected = "|".join(rf"^{one}\b" for one in mutant.numbers)
    with mutant.plant(), pytest.raises(Violation, match=expected):
        play_seeds(mutant)
