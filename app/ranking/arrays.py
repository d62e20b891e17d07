"""Array types by content, and memory layouts for the kernels."""

from operator import index
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Dense: TypeAlias = NDArray[np.floating[Any]]


def aligned(size: int) -> Floats:
    """Return zeros for a kernel: `size` rounded up to a multiple of 8, on a 64-byte boundary.

    Unaligned vectors, which cross cache lines, cost a tenth of SOLAR-II's speed at n = 46.

    >>> aligned(3)
    array([0., 0., 0., 0., 0., 0., 0., 0.])
    """
    size = index(size)  # a numpy integer would wrap
    padded = size + -size % 8
    room = np.zeros(padded + 8)
    skip = -room.ctypes.data // 8 % 8
    return room[skip : skip + padded]


def owned(array: Any, dtype: type) -> NDArray[Any]:
    """Return the array as a kernel needs it: of this type, contiguous, aligned and writeable.

    A read-only array is copied, because numba compiles a second kernel for read-only arrays.
    """
    if type(array) is np.ndarray and array.dtype == dtype and array.flags.carray:
        return array  # np.require takes 1.5 µs for the same check
    return np.require(array, dtype, ("C", "A", "W"))


def as_floats(array: Any) -> Dense:
    """Return the array for a kernel: float32 stays float32, all other types become float64."""
    array = np.asarray(array)
    return owned(array, np.float32 if array.dtype == np.float32 else np.float64)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Make the array read-only, and return it."""
    array.flags.writeable = False
    return array
