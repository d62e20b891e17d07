"""Outcomes of learnt pairs, in a module without numerical imports."""

from typing import NamedTuple


class Tally(NamedTuple):
    """The numbers of passive, stepped and refused pairs of a batch, and their squared loss."""

    passive: int
    stepped: int
    refused: int
    squared_loss: float


NO_PAIRS = Tally(0, 0, 0, 0.0)
