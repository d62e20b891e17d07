"""Two layouts of Σ: a packed triangle for storage, and panels for the kernels.

A *triangle* is the lower triangle row by row, `n(n+1)/2` values; blobs store it. A *panel* holds
four rows from column 0 to the end of the diagonal block, so that every row consists of whole lanes.
Within a diagonal block the elements above the diagonal have the bits of those below.
"""

from functools import lru_cache

import numpy as np

from app.ranking.arrays import Floats, Integers, aligned


def triangle_size(n: int) -> int:
    """Return the number of values in the triangle of an n x n matrix."""
    return n * (n + 1) // 2


def _panel_index(i: Integers, j: Integers) -> Integers:
    """Return the index in the panels of element (i, j), j <= 4 * (i // 4) + 3."""
    panel = i // 4
    index: Integers = 8 * panel * (panel + 1) + (i % 4) * 4 * (panel + 1) + j
    return index


def unpack(triangle: Floats, n: int) -> Floats:
    """Return the panels of a triangle, padded with zeros beyond n.

    >>> pack(unpack(np.array([1.0, 0.5, 2.0]), 2), 2)
    array([1. , 0.5, 2. ])
    """
    width = n + -n % 8
    panels = aligned(width // 4 * (width // 4 + 1) * 8)
    i, j = _triangle_indices(n)
    panels[_panel_index(i, j)] = triangle
    mirrored = (i // 4 == j // 4) & (i != j)
    panels[_panel_index(j[mirrored], i[mirrored])] = triangle[mirrored]
    return panels


def pack(panels: Floats, n: int) -> Floats:
    """Return the triangle of panels: the inverse of `unpack`, bit for bit."""
    i, j = _triangle_indices(n)
    triangle: Floats = panels[_panel_index(i, j)]
    return triangle


def panel_diagonal(n: int) -> Integers:
    """Return the indices of the diagonal in the panels."""
    k = np.arange(n)
    return _panel_index(k, k)


def variances(spread: Floats, n: int) -> Floats:
    """Return the diagonal of Σ, given a triangle or the diagonal; SOLAR-I has none."""
    return spread[diagonal(n)] if spread.size == triangle_size(n) else spread


def quadratic(spread: Floats, x: Floats) -> float:
    """Return `x·Σx`, given a triangle or the diagonal; needs no square matrix.

    >>> quadratic(np.array([1.0, 0.5, 2.0]), np.array([1.0, 2.0]))
    11.0
    """
    if spread.size == x.size:
        return float((x * spread) @ x)
    found = 0.0
    for i in np.flatnonzero(x).tolist():
        row = spread[triangle_size(i) : triangle_size(i + 1)]
        found += float(x[i]) * (2.0 * float(row[:i] @ x[:i]) + float(row[i] * x[i]))
    return found


def check_covariance(triangle: Floats, n: int) -> None:
    """Raise ValueError unless the diagonal is positive and no correlation is far above 1."""
    spread = triangle[diagonal(n)]
    if not (spread > 0.0).all():
        raise ValueError("covariance: expected a positive diagonal")
    i, j = _triangle_indices(n)
    if not (triangle * triangle <= 2.0 * spread[i] * spread[j]).all():
        raise ValueError("covariance: expected correlations of at most 1")


@lru_cache(maxsize=4)
def _triangle_indices(n: int) -> tuple[Integers, Integers]:
    return np.tril_indices(n)


def identity(n: int) -> Floats:
    """Return the triangle of Σ₁ = I."""
    triangle = np.zeros(triangle_size(n))
    triangle[diagonal(n)] = 1.0
    return triangle


def square(triangle: Floats, n: int) -> Floats:
    """Return the full symmetric matrix of a triangle."""
    matrix = np.empty((n, n))
    i, j = _triangle_indices(n)
    matrix[i, j] = triangle
    matrix[j, i] = triangle
    return matrix


def diagonal(n: int) -> Integers:
    """Return the indices of the diagonal in the triangle.

    >>> diagonal(3)
    array([0, 2, 5])
    """
    k = np.arange(n)
    return k * (k + 3) // 2
