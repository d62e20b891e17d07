"""The arrays of the core: their types by what they hold, and memory laid out for the kernels."""

from operator import index
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
Dense: TypeAlias = NDArray[np.floating[Any]]


def aligned(size: int) -> Floats:
    """Zeros for a kernel: `size` rounded up to a multiple of 8, on a 64-byte boundary.

    Vectors that cross cache lines cost a tenth of SOLAR-II's speed at n = 46.

    >>> aligned(3)
    array([0., 0., 0., 0., 0., 0., 0., 0.])
    """
    size = index(size)  # a numpy integer would wrap
    padded = size + -size % 8
    room = np.zeros(padded + 8)
    skip = -room.ctypes.data // 8 % 8
    return room[skip : skip + padded]


def owned(array: Any, dtype: type) -> NDArray[Any]:
    """The array as a kernel wants it: of this type, contiguous, aligned and writeable.

    (numba compiles anew for an array that is not writeable, so such a one is copied.)
    """
    if type(array) is np.ndarray and array.dtype == dtype and array.flags.carray:
        return array  # np.require takes 1.5 µs to find that out
    return np.require(array, dtype, ("C", "A", "W"))


def as_floats(array: Any) -> Dense:
    """The array as float32 if it is that, else as float64, fit for a kernel."""
    array = np.asarray(array)
    return owned(array, np.float32 if array.dtype == np.float32 else np.float64)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, from now on not writeable: fit to be handed out."""
    array.flags.writeable = False
    return array
