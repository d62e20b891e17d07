"""The quadratic programme of the cutting planes: maximise a concave function on the simplex."""

from typing import Any

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.lanes import Array, kernel


def highest(gram: Floats, b: Floats, start: Floats, precision: float) -> Floats:
    """Return `argmax b·α - ½ αᵀGα` with α ≥ 0, Σα = 1, from a feasible start, up to this gap.

    >>> highest(np.diag([1.0, 3.0]), np.zeros(2), np.array([1.0, 0.0]), 0.0)
    array([0.75, 0.25])
    """
    alpha = start.copy()
    scale = float(np.abs(gram).max() + np.abs(b).max())
    climb(np.ascontiguousarray(gram), b, alpha, max(precision, 1e-15 * scale), 100_000)
    return alpha


@kernel
def climb(gram: Array, b: Array, alpha: Array, precision: float, most: int) -> None:
    """Move weight to the steepest coordinate from the one with the largest gain (SMO)."""
    slope = b.copy()
    for i in range(b.shape[0]):
        if alpha[i] > 0.0:
            for k in range(b.shape[0]):
                slope[k] -= alpha[i] * gram[i, k]
    for _ in range(most):
        up, mean = 0, 0.0
        for k in range(b.shape[0]):
            mean += alpha[k] * slope[k]
            up = k if slope[k] > slope[up] else up
        if slope[up] - mean <= precision:
            return
        down, step = giver(gram, slope, alpha, up)
        if step <= 0.0:
            return
        alpha[up] += step
        alpha[down] = 0.0 if step == alpha[down] else alpha[down] - step
        for k in range(b.shape[0]):
            slope[k] -= step * (gram[up, k] - gram[down, k])


@kernel
def giver(gram: Array, slope: Array, alpha: Array, up: int) -> Any:
    """Return the coordinate to take weight from for the largest gain, and how much."""
    down, best, most = up, 0.0, 0.0
    for k in range(slope.shape[0]):
        drop = slope[up] - slope[k]
        if alpha[k] > 0.0 and drop > 0.0:
            curve = max(gram[up, up] + gram[k, k] - 2.0 * gram[up, k], 1e-300)
            step = min(alpha[k], drop / curve)
            gain = step * (drop - 0.5 * step * curve)
            if gain > most:
                down, best, most = k, step, gain
    return down, best
