"""Many small models: one model a group of judged queries, as if each were trained alone.

A group without two different labels in any query is refused. One with fewer than `FEW_QUERIES`
queries of different labels holds out too few to choose its own C: it gets the pooled choice, the
parameter with the best mean quality over the held-out queries of all groups. Where the search of a
group stops early, its last quality counts for the parameters that it did not try.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from app.domain import codec
from app.domain.model_config import ModelConfig
from app.domain.records import Replace
from app.errors import BadData, SolarError
from app.evaluation.letor import JudgedData
from app.evaluation.tables import placed
from app.ranking.arrays import Floats
from app.ranking.batch import path
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.trainers import trainer as new_trainer
from app.ranking.online import LabelledQuery
from app.training import trainer
from app.training.options import Training

#: A group with fewer queries of different labels gets the pooled choice.
FEW_QUERIES = 20
#: Values and groups that a process receives at once: about 0.2 s of training.
VALUES_AT_ONCE, GROUPS_AT_ONCE = 1 << 18, 64


@dataclass(frozen=True, slots=True)
class GroupTask:
    """A group to train; `names` are those of the features in the data, None: as the model has."""

    group: str
    model: str
    config: ModelConfig
    data: JudgedData
    names: tuple[str, ...] | None = None

    def judgements(self, bound: float) -> Judgements:
        """Convert the data to what the model would have received."""
        data, given = self.data, self.config.given
        if self.names is not None:
            queries = [
                LabelledQuery(one.labels, placed(one.documents, self.names, given))
                for one in data.queries
            ]
            data = JudgedData(len(given), queries)
        return trainer.judgements(data, self.config, bound)


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """The qualities of a group's first parameters, most regularised first, on `queries` of it."""

    qualities: tuple[float, ...]
    queries: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A trained model; `record` replaces an online model by it, if asked for."""

    weights: list[float]
    about: dict[str, Any]
    record: bytes
    curve: QualityCurve | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a group has no model."""

    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a group; `pooled`: its parameter is the pooled choice."""

    task: GroupTask
    found: Fit | Refusal
    pooled: bool = False


#: Applies a function to tasks, in order; `workers.py` does so in several processes.
Map = Callable[[Callable[[GroupTask], Any], Iterable[Sequence[GroupTask]]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class GroupTraining:
    """The options of all groups; with `records` each model becomes a record of an online model."""

    training: Training
    bound: float
    records: bool = False

    def train_all(self, tasks: Sequence[GroupTask], apply: Map) -> Iterator[Outcome]:
        """Train all groups; those that get the pooled choice come last, each part in order."""
        small: list[GroupTask] = []
        curves: list[QualityCurve | None] = []
        first = apply(self.train_or_try, in_chunks(tasks))
        for task, found in zip(tasks, first, strict=True):
            if isinstance(found, QualityCurve):
                small.append(task)
                curves.append(found)
            else:
                curves.append(found.curve if isinstance(found, Fit) else None)
                yield Outcome(task, found)
        position = pooled_position([curve for curve in curves if curve is not None])
        if position is None:
            yield from (Outcome(task, Refusal(NO_CHOICE)) for task in small)
        else:
            second = apply(partial(self.train_at, position), in_chunks(small))
            for task, found in zip(small, second, strict=True):
                yield Outcome(task, found, pooled=True)

    def train_or_try(self, task: GroupTask) -> Fit | Refusal | QualityCurve:
        """Train a group, or try its parameters if it has too few queries to choose one."""
        try:
            judged = task.judgements(self.bound)
            trainer.check_labels(judged)
            if self.training.given is not None:
                return self._fit(task, judged, self.training)
            if judged.ordering().sum() < FEW_QUERIES:
                return self._curve(judged)
            fit = self._fit(task, judged, self.training)
            held_out = trainer.held_out(judged.ordering(), self._share)
            qualities = tuple(one["quality"] for one in fit.about["tried"])
            return replace(fit, curve=QualityCurve(qualities, int(held_out.sum())))
        except (SolarError, ValueError) as error:
            return Refusal(str(error))

    def train_at(self, position: int, task: GroupTask) -> Fit | Refusal:
        """Train a group with the parameter at this position of its grid."""
        try:
            judged = task.judgements(self.bound)
            grid = new_trainer(trainer.trainer_kind(self.training), judged).grid
            given = {self.training.parameter: grid[position], "validation": None}
            return self._fit(task, judged, msgspec.structs.replace(self.training, **given))
        except (SolarError, ValueError) as error:
            return Refusal(str(error))

    @property
    def _share(self) -> float:
        return trainer.held_out_share(self.training)

    def _curve(self, judged: Judgements) -> QualityCurve:
        """Try the parameters; no quality if the group cannot both train and hold out."""
        try:
            rest, held_out = trainer.split(judged, self._share)
        except BadData:
            return QualityCurve((), 0)
        kind = trainer.trainer_kind(self.training)
        tried = path.follow_path(new_trainer(kind, rest), held_out, self.training.by).tried
        return QualityCurve(tuple(one.quality for one in tried), len(held_out.starts) - 1)

    def _fit(self, task: GroupTask, judged: Judgements, training: Training) -> Fit:
        found = trainer.train_batch(judged, training)
        record = b""
        if self.records:
            model = trainer.online(found, task.config)
            record = codec.dump_record(Replace(model, "warm start"))
        about = trainer.describe_training(found, training, task.config.normalization)
        return Fit(found.weights.tolist(), about, record, None)


NO_CHOICE = (
    "validation: expected a group with two queries of different labels to choose the parameter on, "
    "got none; give --C or --penalty"
)


def pooled_position(curves: Sequence[QualityCurve]) -> int | None:
    """Return the position of the best mean quality over all queries; None without a quality.

    >>> pooled_position([QualityCurve((0.5, 0.7), 1), QualityCurve((0.6, 0.5, 0.8), 3)])
    2
    """
    known = [curve for curve in curves if curve.qualities]
    if not known:
        return None
    longest = max(len(curve.qualities) for curve in known)
    sums = np.zeros(longest)
    for curve in known:
        sums += curve.queries * _lengthened(curve.qualities, longest)
    return int(np.argmax(sums))


def _lengthened(qualities: tuple[float, ...], length: int) -> Floats:
    return np.array(qualities + (length - len(qualities)) * qualities[-1:])


def in_chunks(tasks: Iterable[GroupTask]) -> Iterator[list[GroupTask]]:
    """Split tasks into parts of bounded size, each at least one task."""
    chunk: list[GroupTask] = []
    values = 0
    for task in tasks:
        size = task.data.documents * task.data.n
        if chunk and (values + size > VALUES_AT_ONCE or len(chunk) == GROUPS_AT_ONCE):
            yield chunk
            chunk, values = [], 0
        chunk.append(task)
        values += size
    if chunk:
        yield chunk
