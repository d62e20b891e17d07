"""dlib's svm_rank_trainer: `dlib_rank.cpp`, compiled if dlib's headers and a compiler exist.

`DLIB_INCLUDE=FOLDER` sets the folder of the headers if the compiler does not find them.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.batch.judgements import Judgements
from benchmarks.timing import Run

SOURCE = Path(__file__).with_name("dlib_rank.cpp")
#: dlib is used header-only, without its GUI.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-DDLIB_NO_GUI_SUPPORT", "-w")


class Trainer:
    """dlib with a file of queries; a call trains to a tolerance."""

    def __init__(self, binary: Path, data: Path, C: float) -> None:
        self._command, self._last = [str(binary), str(data), f"{C:.17g}"], 0.0

    def __call__(self, tolerance: float) -> Floats:
        """Train until the gap in the mean loss of a pair is below this; return the weights."""
        ran = subprocess.run(
            [*self._command, f"{tolerance:.17g}"], capture_output=True, text=True, check=True
        )
        self._last, *weights = map(float, ran.stdout.split())
        return np.array(weights)

    def seconds(self, run: Run) -> float:
        """The CPU time of the training alone, without reading the file."""
        run()
        return self._last


@contextmanager
def trainer(judged: Judgements, C: float) -> Iterator[Trainer | None]:
    """Compile the trainer and write the queries; None without dlib or a compiler.

    C is for the mean over all pairs.
    """
    with tempfile.TemporaryDirectory() as folder:
        binary, data = Path(folder) / "dlib_rank", Path(folder) / "queries"
        if not _built(binary):
            yield None
            return
        _write(judged, data)
        yield Trainer(binary, data, C)


def _built(binary: Path) -> bool:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        return False
    include = [f"-I{path}" for path in filter(None, [os.environ.get("DLIB_INCLUDE")])]
    command = [compiler, *FLAGS, *include, "-o", str(binary), str(SOURCE), "-lpthread"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _write(judged: Judgements, data: Path) -> None:
    with data.open("wb") as file:
        file.write(np.array([len(judged.queries), judged.n], np.int64).tobytes())
        for q in judged.queries:
            order = np.argsort(-judged.labels[q], kind="stable")
            relevant = int((judged.labels[q] > 0.0).sum())
            sizes = np.array([relevant, len(order) - relevant], np.int64)
            file.write(sizes.tobytes() + judged.X[q][order].tobytes())
