"""SOLAR-II on BLAS: a direct implementation with scipy's `dsymv` and `dsyr` on one triangle."""

from importlib import import_module

import numpy as np

from app.ranking.arrays import Floats


class BlasII:
    """SOLAR-II with the full covariance, one BLAS call for each line of the paper's step.

    Σ is in Fortran order, and only its lower triangle is used, so BLAS copies nothing.
    """

    def __init__(self, n: int, gamma: float) -> None:
        self._blas = import_module("scipy.linalg.blas")
        self.gamma = gamma
        self.weights, self._s = np.zeros(n), np.zeros(n)
        self._sigma = np.asfortranarray(np.eye(n))

    @property
    def covariance(self) -> Floats:
        """Σ as its packed lower triangle, row by row."""
        return self._sigma[np.tril_indices(len(self._sigma))]

    def learn(self, gaps: Floats) -> None:
        """Learn from gaps, row by row."""
        for x in gaps:
            self._step(x)

    def _step(self, x: Floats) -> None:
        blas, s = self._blas, self._s
        hinge = 1.0 - blas.ddot(self.weights, x)
        if hinge <= 0.0:
            return
        blas.dsymv(1.0, self._sigma, x, y=s, overwrite_y=1, lower=1)
        beta = blas.ddot(x, s) + self.gamma
        blas.daxpy(s, self.weights, a=hinge / beta)
        blas.dsyr(-1.0 / beta, s, lower=1, a=self._sigma, overwrite_a=1)
