"""Counts of each model, shared by the processes of a service through files of fixed-size rows.

prometheus-client keeps a series for good: it can neither drop those of a deleted model nor choose
among thousands. Here a row belongs to one model, a deleted model's row is used again, and a reader
adds up the rows of all processes with numpy.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from app.observability.multiprocess import is_running
from app.ranking.arrays import Floats

#: Upper bounds of the histograms' buckets, in seconds.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
#: Columns of a histogram: its buckets, one for larger values, and the sum of all values.
HISTOGRAM = len(SECONDS) + 2
#: One in 16 randomised rankings gets an expected loss, which takes about 10 µs.
LOSS_EVERY = 16


class Column:
    """The columns of a row; a group of columns has the name of its first."""

    REQUESTS, ROLLBACKS, DEGRADED, RECORDS, INTERRUPTIONS, NEWER_FORMATS, TRACE_HALVED = range(7)
    EXPLORED, LOSS, LOSS_RANKINGS = range(7, 10)  # loss of one in LOSS_EVERY
    JOBS = 10  # by outcome
    REPLACEMENTS = 13  # by kind
    FRESHNESS = 18
    COMMITS = FRESHNESS + HISTOGRAM
    POINTS_DROPPED = COMMITS + HISTOGRAM


COLUMNS = Column.POINTS_DROPPED + 1
_ROW = np.dtype([("name", "S64"), ("values", "f8", (COLUMNS,))])
#: Rows by which a table grows.
_BLOCK = 512


class ModelTable:
    """The counts of one process: in a file of `directory`, or in memory without one."""

    def __init__(self, directory: str = "") -> None:
        self._path = Path(directory) / f"models_{os.getpid()}.rows" if directory else None
        self._blocks: list[np.ndarray] = []  # of _ROW
        self._rows: dict[str, tuple[int, int]] = {}
        self._free: list[tuple[int, int]] = []
        if self._path and self._path.exists():  # of an earlier process with this id
            for _ in range(self._path.stat().st_size // (_BLOCK * _ROW.itemsize)):
                self._grow()

    def row(self, model: str) -> Floats:
        """Return the counts of a model, which the caller may change."""
        if model not in self._rows:
            if not self._free:
                self._grow()
            block, at = self._rows[model] = self._free.pop()
            self._blocks[block]["name"][at] = model.encode()
        block, at = self._rows[model]
        values: Floats = self._blocks[block]["values"][at]
        return values

    def remove(self, model: str) -> None:
        """Remove a model, also from files of processes that have ended; its row is used again."""
        if model in self._rows:
            block, at = place = self._rows.pop(model)
            self._blocks[block]["name"][at] = b""
            self._blocks[block]["values"][at] = 0.0
            self._free.append(place)
        for path in self._path.parent.glob("models_*.rows") if self._path else ():
            with suppress(OSError, ValueError):  # ValueError: an empty file
                if not is_running(path.stem.removeprefix("models_")):
                    rows = np.memmap(path, _ROW, "r+")
                    rows[rows["name"] == model.encode()] = np.zeros((), _ROW)

    def _grow(self) -> None:
        """Add rows; views of the others stay valid."""
        number = len(self._blocks)
        if self._path is None:
            block = np.zeros(_BLOCK, _ROW)
        else:
            self._path.touch(mode=0o600)
            size = (number + 1) * _BLOCK * _ROW.itemsize
            os.truncate(self._path, max(size, self._path.stat().st_size))
            offset = number * _BLOCK * _ROW.itemsize
            block = np.memmap(self._path, _ROW, "r+", offset, (_BLOCK,))
        self._blocks.append(block)
        for at in reversed(range(_BLOCK)):
            if name := block["name"][at].decode():
                self._rows[name] = (number, at)
            else:
                self._free.append((number, at))

    def counts(self, directory: str = "") -> dict[str, Floats]:
        """Return the counts of each model: of this process, and of those with files there."""
        files = sorted(Path(directory).glob("models_*.rows")) if directory else []
        others = [np.fromfile(path, _ROW) for path in files if path != self._path]
        return _added([*self._blocks, *others])


def _added(blocks: Iterable["np.ndarray[tuple[int], np.dtype[np.void]]"]) -> dict[str, Floats]:
    found: dict[str, Floats] = {}
    for block in blocks:
        used = block[block["name"] != b""]
        for name, values in zip(used["name"].tolist(), np.array(used["values"]), strict=True):
            model = name.decode()
            found[model] = found[model] + values if model in found else values
    return found
