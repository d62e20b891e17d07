"""The C reference: compiles `native.c` into a temporary directory and calls it with ctypes."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.ranking import covariance as cov
from app.ranking.arrays import Floats, aligned

SOURCE = Path(__file__).with_name("native.c")
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fPIC")
#: The reference with strict arithmetic, and the same code with -ffast-math.
BUILDS: dict[str, tuple[str, ...]] = {"C": (), "C -ffast-math": ("-ffast-math",)}


def compiler() -> str | None:
    """$CC, else gcc, else clang, else None."""
    names = (os.environ.get("CC", ""), "gcc", "clang")
    return next((name for name in names if name and shutil.which(name)), None)


def libraries() -> dict[str, ctypes.CDLL]:
    """All builds of `BUILDS` by name; none without a compiler."""
    cc = compiler()
    return {} if cc is None else {name: _built(cc, flags) for name, flags in BUILDS.items()}


def _built(cc: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        compiled, library = Path(folder) / "native.o", Path(folder) / "native.so"
        subprocess.run([cc, *FLAGS, *flags, "-c", "-o", compiled, SOURCE], check=True)
        # Link without the flags: gcc's -ffast-math would link code that rounds tiny numbers to zero
        # in the whole process, SOLAR's kernels included.
        subprocess.run([cc, "-shared", "-o", library, compiled, "-lm"], check=True)
        return ctypes.CDLL(str(library))  # a loaded library does not need its file


class Native:
    """A C learner with a stream of gaps; a call learns the whole stream, in order."""

    def __init__(self, function: Any, gaps: Floats, parameter: float, *state: Floats) -> None:
        count, self.n = gaps.shape
        self._w = aligned(self.n)
        self.loss, self.outcome = np.empty(count), np.empty(count, np.uint8)
        self._arrays: tuple[NDArray[Any], ...] = (
            gaps,
            np.ones(count),
            self._w,
            *state,
            self.loss,
            self.outcome,
        )
        self._arguments = (
            *(ctypes.c_int64(self.n), ctypes.c_int64(count), ctypes.c_double(parameter)),
            *(ctypes.c_void_p(array.ctypes.data) for array in self._arrays),
        )
        self._function = function

    def __call__(self) -> None:
        """Learn all gaps."""
        self._function(*self._arguments)

    @property
    def weights(self) -> Floats:
        """The weights w without padding."""
        return self._w[: self.n]


class NativeI(Native):
    """SOLAR-I in C."""

    def __init__(self, library: ctypes.CDLL, gaps: Floats, C: float) -> None:
        super().__init__(library.first_order, gaps, C)


class NativeII(Native):
    """SOLAR-II in C, with the full covariance."""

    def __init__(self, library: ctypes.CDLL, gaps: Floats, gamma: float) -> None:
        n = gaps.shape[1]
        self._panels = cov.unpack(cov.identity(n), n)
        self._u, x, s = (aligned(n) for _ in range(3))
        super().__init__(library.second_order, gaps, gamma, self._panels, self._u, x, s)

    @property
    def covariance(self) -> Floats:
        """Σ as a triangle, after the subtraction of the pending outer product of u."""
        i, j = np.tril_indices(self.n)
        triangle: Floats = cov.pack(self._panels, self.n) - self._u[i] * self._u[j]
        return triangle
