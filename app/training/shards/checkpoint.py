"""The weights of a training, kept after each iteration, so that a restart continues from there."""

from contextlib import suppress
from pathlib import Path

import numpy as np

from app.domain import codec
from app.errors import SolarError, Unreadable
from app.ranking.arrays import Floats
from app.ranking.batch import Progress, silent
from app.ranking.batch.newton import Minimum
from app.ranking.batch.trainers import Trainer

KIND = "checkpoint"


class Checkpoint:
    """A file with the fits that have ended and the weights of the current one.

    `training` identifies shards and options. A file of another training is ignored.
    """

    def __init__(self, path: Path | None, training: str) -> None:
        self._path, self._training = path, training
        self._done: list[tuple[float, Minimum]] = []
        self._next, self._at = 0, None
        self._load()

    @property
    def resumed(self) -> bool:
        """Whether there was a file of this training."""
        return bool(self._done) or self._at is not None

    def ended(self, parameter: float) -> Minimum | None:
        """Return the result of the next fit if it has ended already."""
        if self._next < len(self._done) and self._done[self._next][0] == parameter:
            self._next += 1
            return self._done[self._next - 1][1]
        return None

    def start(self, given: Floats | None) -> Floats | None:
        """Return the weights to start the current fit from; the kept ones count once."""
        kept, self._at = self._at, None
        return given if kept is None else kept

    def keep(self, w: Floats) -> None:
        """Write the weights of the current fit."""
        if self._path is None:
            return
        rows = [[parameter, *_numbers(one)] for parameter, one in self._done]
        arrays = {
            "fits": np.array(rows).reshape(len(rows), 6),
            "weights": np.array([*(one.w for _, one in self._done), w]),
        }
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.write_bytes(codec.dump_blob(KIND, {"training": self._training}, arrays))
            new.replace(self._path)
        except OSError as error:
            raise SolarError(f"{self._path}: {error.strerror}") from error

    def end(self, parameter: float, minimum: Minimum) -> None:
        """Note that the current fit has ended."""
        self._done, self._next = [*self._done, (parameter, minimum)], self._next + 1
        self.keep(minimum.w)

    def _load(self) -> None:
        if self._path is None:
            return
        with suppress(OSError, Unreadable):  # none, or cut off: start from the beginning
            _, fields, arrays = codec.load_blob(self._path.read_bytes(), KIND)
            if fields.get("training") != self._training:
                return
            *done, self._at = arrays["weights"].copy()
            for (parameter, *numbers), w in zip(arrays["fits"].tolist(), done, strict=True):
                value, distance, iterations, products, converged = numbers
                found = Minimum(w, value, distance, int(iterations), int(products), bool(converged))
                self._done.append((parameter, found))


def _numbers(one: Minimum) -> list[float]:
    return [one.value, one.distance, one.iterations, one.products, one.converged]


class CheckpointedTrainer:
    """A trainer that skips fits that have ended, and keeps the weights of the current one."""

    def __init__(self, inner: Trainer, checkpoint: Checkpoint) -> None:
        self.n, self.grid = inner.n, inner.grid
        self._inner, self._checkpoint = inner, checkpoint

    def fit(
        self, parameter: float, start: Floats | None = None, progress: Progress = silent
    ) -> Minimum:
        """Fit, or return the result that is known."""
        known = self._checkpoint.ended(parameter)
        if known is not None:
            return known

        def kept(iteration: int, objective: float, distance: float, w: Floats) -> None:
            self._checkpoint.keep(w)
            progress(iteration, objective, distance, w)

        found = self._inner.fit(parameter, self._checkpoint.start(start), kept)
        self._checkpoint.end(parameter, found)
        return found
