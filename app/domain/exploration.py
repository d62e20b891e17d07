"""Chance that can be had again: numbers drawn from a name, the same wherever they are drawn."""

from hashlib import shake_128

import numpy as np

from app.ranking.arrays import Floats


def uniforms(name: str, count: int) -> Floats:
    """So many numbers in (0, 1): 53 bits each, of SHAKE-128's bytes.

    >>> uniforms("books:1:my-request", 2)
    array([0.50550141, 0.14552937])
    """
    drawn = np.frombuffer(shake_128(name.encode()).digest(8 * count), "<u8")
    found: Floats = ((drawn >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return found
