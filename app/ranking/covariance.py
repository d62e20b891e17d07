"""Σ as it is stored (a packed triangle) and as the kernels want it (panels).

A *triangle* is the lower triangle row by row, `n(n+1)/2` values: what goes into a blob. *Panels*
are four rows each, from column 0 up to and with the diagonal block, so that every row is whole
lanes. The part of a diagonal block above the diagonal repeats what stands below it, to the bit.
"""

from functools import lru_cache

import numpy as np

from app.ranking.arrays import Floats, Integers, aligned


def triangle_size(n: int) -> int:
    """How many values the triangle of an n x n matrix has."""
    return n * (n + 1) // 2


def _place(i: Integers, j: Integers) -> Integers:
    """Where element (i, j), j <= 4 * (i // 4) + 3, stands in the panels."""
    panel = i // 4
    place: Integers = 8 * panel * (panel + 1) + (i % 4) * 4 * (panel + 1) + j
    return place


def unpack(triangle: Floats, n: int) -> Floats:
    """The panels of a triangle; beyond n they hold zeros.

    >>> pack(unpack(np.array([1.0, 0.5, 2.0]), 2), 2)
    array([1. , 0.5, 2. ])
    """
    width = n + -n % 8
    panels = aligned(width // 4 * (width // 4 + 1) * 8)
    i, j = _triangle_indices(n)
    panels[_place(i, j)] = triangle
    mirrored = (i // 4 == j // 4) & (i != j)
    panels[_place(j[mirrored], i[mirrored])] = triangle[mirrored]
    return panels


def pack(panels: Floats, n: int) -> Floats:
    """The triangle of some panels: the inverse of `unpack`, bit for bit."""
    i, j = _triangle_indices(n)
    triangle: Floats = panels[_place(i, j)]
    return triangle


def variances(spread: Floats, n: int) -> Floats:
    """The diagonal of Σ, of a triangle or of itself; SOLAR-I has none."""
    return spread[diagonal(n)] if spread.size == triangle_size(n) else spread


def check_covariance(triangle: Floats, n: int) -> None:
    """ValueError if this is no covariance: a positive diagonal, and no correlation far above 1."""
    spread = triangle[diagonal(n)]
    if not (spread > 0.0).all():
        raise ValueError("covariance: expected a positive diagonal")
    i, j = _triangle_indices(n)
    if not (triangle * triangle <= 2.0 * spread[i] * spread[j]).all():
        raise ValueError("covariance: expected no element above those of the diagonal")


@lru_cache(maxsize=4)
def _triangle_indices(n: int) -> tuple[Integers, Integers]:
    return np.tril_indices(n)


def identity(n: int) -> Floats:
    """The triangle of Σ₁ = I."""
    triangle = np.zeros(triangle_size(n))
    triangle[diagonal(n)] = 1.0
    return triangle


def square(triangle: Floats, n: int) -> Floats:
    """The whole symmetric matrix, for those who want to look at it."""
    matrix = np.empty((n, n))
    i, j = _triangle_indices(n)
    matrix[i, j] = triangle
    matrix[j, i] = triangle
    return matrix


def diagonal(n: int) -> Integers:
    """Where the diagonal stands in the triangle.

    >>> diagonal(3)
    array([0, 2, 5])
    """
    k = np.arange(n)
    return k * (k + 3) // 2
