"""Outcomes of learnt pairs, in a module without numerical imports."""

from typing import NamedTuple

#: Outcomes of a pair by their numbers in the kernels.
OUTCOMES = ("passive", "stepped", "refused")


class Tally(NamedTuple):
    """The numbers of passive, stepped and refused pairs of a batch, and sums over them.

    `variance` is the sum of `x·Σx` of the stepped pairs, `squared_norm` the largest `‖x‖²`.
    """

    passive: int
    stepped: int
    refused: int
    squared_loss: float
    variance: float = 0.0
    squared_norm: float = 0.0


NO_PAIRS = Tally(0, 0, 0, 0.0)
