"""`solar train --group-by`: one model a group. Into a file of JSON lines here.

`groups_store.py` and `groups_http.py` have the other targets.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from tqdm import tqdm

from app.domain.model_config import ModelConfig
from app.domain.names import quoted
from app.errors import InvalidInput, SolarError
from app.evaluation.tables import GroupedData
from app.storage.keys import is_name
from app.training.group_files import read_groups
from app.training.groups import FEW_QUERIES, GroupTask, GroupTraining, Outcome, Refusal
from app.training.options import Training, check_normalization
from app.training.targets.file import described_model, new_config, write_text
from app.training.workers import Workers

#: The part of --model that stands for the group.
GROUP = "{group}"
NOT_A_NAME = "model: expected a name of 1 to 64 letters, digits, '-' or '_'"
#: Reasons in one error.
MOST_REASONS = 3
NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """Input files, column of the group, name of the models, options and output file."""

    files: tuple[Path, ...]
    field: str
    model: str | None
    training: Training
    output: Path | None
    processes: int | None
    normalization: str | None = None  # None: that of each model; a new one has none

    def workers(self) -> Workers:
        """Start the processes; they load their modules while this one reads the data."""
        return Workers(self.processes or available_cores())

    def read(self) -> GroupedData:
        """Read the judged data."""
        return read_groups(self.files, self.field)

    def name(self, group: str) -> str:
        """Return the name of a group's model; empty without --model."""
        return "" if self.model is None else self.model.replace(GROUP, group)

    def names(self, data: GroupedData) -> list[str]:
        """Return the valid names of models."""
        return [name for group in data.groups if is_name(name := self.name(group))]

    def check(self) -> None:
        """Raise SolarError if the options do not fit groups."""
        if self.model is None and self.output is None:
            raise SolarError("expected --model NAME, --output FILE or both, got neither")
        if self.model is not None and GROUP not in self.model:
            raise SolarError(
                f"--model: expected {GROUP} in it with --group-by, as in 'shop-{GROUP}', got "
                f"{quoted(self.model)}"
            )
        if self.training.validation is not None and self.training.validation >= 1.0:
            raise SolarError("--validation: expected a share between 0 and 1 with --group-by")

    def tasks(self, data: GroupedData, configs: Mapping[str, ModelConfig]) -> list[GroupTask]:
        """Return the groups, each with the settings of its model, or with those of a new one."""
        new = new_config(data.n, self.normalization, data.names)
        return [
            GroupTask(group, name, configs.get(name, new), queries, data.names)
            for group, queries in data.groups.items()
            for name in [self.name(group)]
        ]

    def refusal(self, task: GroupTask) -> str | None:
        """Say why a group cannot have its model; None if it can."""
        if self.model is not None and not is_name(task.model):
            return NOT_A_NAME
        try:
            check_normalization(self.normalization, task.config.normalization)
        except InvalidInput as error:
            return str(error)
        return None


class GroupReport:
    """The outcomes of all groups, for the output file and the summary."""

    def __init__(self, request: GroupRequest, tasks: Sequence[GroupTask]) -> None:
        self._request = request
        self._lines: dict[str, bytes] = dict.fromkeys((task.group for task in tasks), b"")
        self.trained = 0
        self.refused: list[str] = []
        self.pooled: list[str] = []
        self._parameter = request.training.parameter

    def add(self, outcome: Outcome) -> None:
        """Note what became of a group."""
        task, found = outcome.task, outcome.found
        line: dict[str, Any] = {"group": task.group}
        if isinstance(found, Refusal):
            self.refused.append(f"{quoted(task.group)}: {found.reason}")
            line["refused"] = found.reason
        else:
            self.trained += 1
            line |= {"model": task.model} if task.model else {}
            config, about = task.config, found.about
            weights = dict(zip(config.columns, found.weights, strict=True))
            line |= described_model(weights, config.normalization, config.splines, about)
            line["pooled"] = outcome.pooled
            if outcome.pooled:
                self.pooled.append(task.group)
        if self._request.output is not None:
            self._lines[task.group] = msgspec.json.encode(line)

    def finish(self) -> str:
        """Write the output file; return a summary. SolarError if no group could be trained."""
        if not self.trained:
            raise SolarError(f"expected a group to train on, got none: {first_of(self.refused)}")
        if self._request.output is not None:
            text = b"".join(line + b"\n" for line in self._lines.values())
            write_text(self._request.output, text.decode())
        return "\n".join(self._summary())

    def _summary(self) -> Iterator[str]:
        yield f"models trained: {self.trained}, groups refused: {len(self.refused)}"
        if self.pooled:
            yield (
                f"{self._parameter} by the pooled choice (fewer than {FEW_QUERIES} queries with "
                f"different labels), groups: {', '.join(map(quoted, self.pooled))}"
            )
        yield from (f"refused: {one}" for one in self.refused)


def first_of(reasons: Sequence[str]) -> str:
    """Join the first reasons, and say how many more there are.

    >>> first_of(["a", "b", "c", "d"])
    'a; b; c; and 1 more'
    """
    more = [f"and {len(reasons) - MOST_REASONS} more"] * (len(reasons) > MOST_REASONS)
    return "; ".join([*reasons[:MOST_REASONS], *more])


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def outcomes(
    request: GroupRequest, tasks: Sequence[GroupTask], training: GroupTraining, workers: Workers,
    unusable: Mapping[str, str] = NONE,
) -> Iterator[Outcome]:  # fmt: skip
    """Train all groups, with a progress bar on a terminal.

    Groups with an invalid name, those of `unusable` models (name → reason), and those of models
    with another normalization are refused.
    """
    kept = []
    for task in tasks:
        reason = unusable.get(task.model) or request.refusal(task)
        if reason is None:
            kept.append(task)
        else:
            yield Outcome(task, Refusal(reason))
    with tqdm(total=len(kept), unit=" models", disable=None, leave=False) as bar:
        for outcome in training.train_all(kept, workers.map):
            bar.update()
            yield outcome


def groups_into_file(request: GroupRequest, bound: float) -> str:
    """Train all groups and write the models; return a summary."""
    with request.workers() as workers:
        data = request.read()
        tasks = request.tasks(data, {})
        report = GroupReport(request, tasks)
        for outcome in outcomes(request, tasks, GroupTraining(request.training, bound), workers):
            report.add(outcome)
    return report.finish()


@contextmanager
def replaced_counted(report: GroupReport) -> Iterator[None]:
    """Add to an error how many models were replaced before it."""
    try:
        yield
    except SolarError as error:
        raise SolarError(f"{error}; models replaced before: {report.trained}") from error
