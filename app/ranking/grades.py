"""What has come of a list: grades of its documents, in a module that loads no kernels."""

from typing import NamedTuple

import numpy as np

from app.ranking.arrays import Floats, Integers


class ListFeedback(NamedTuple):
    """What has come of a list: clicks in their order, and the grade of each position.

    `examined` is the number of positions that were examined at least; 0: unknown. `lasts` are the
    positions of the last click of each event.
    """

    clicks: Integers
    grades: Floats
    examined: int = 0
    lasts: frozenset[int] = frozenset()


def grades_of(clicks: Integers, gains: Floats, shown: int) -> Floats:
    """Return the grade of each position: the largest of its gains.

    >>> grades_of(np.array([2, 0, 2]), np.array([1.0, 1.0, 4.0]), 4)
    array([1., 0., 4., 0.])
    """
    found = np.zeros(shown)
    np.maximum.at(found, clicks, gains)
    return found
