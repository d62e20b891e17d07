"""The judged data of a run, read once, and how much work the run does.

FOLDER/MQ2008, FOLDER/OHSUMED, …   five folds, as `solar evaluate --folds` reads them
FOLDER/MSLR-sample                 train.txt and test.txt, also .gz and .xz
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app.evaluation import batch_vs_online, folds, letor
from app.evaluation.batch_vs_online import FoldRow
from app.evaluation.fold_systems import COMPARED_SYSTEMS
from app.evaluation.folds import Fold
from app.evaluation.letor import JudgedData
from app.evaluation.online_experiment import Experiment
from app.ranking.batch.judgements import Judgements
from app.ranking.online import LabelledQuery

#: The data sets of the SOLAR paper, as its tables order them.
LETOR = ("OHSUMED", "MQ2007", "MQ2008", "HP2003", "HP2004", "NP2003", "NP2004", "TD2003", "TD2004")
SAMPLE = "MSLR-sample"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a run does; tests do less.

    `lasting` is the number of seconds for each part of a timing, `lists` and `length` are the size
    of generated lists, `trees` that of a small random forest, a small GBDT and their large ones.
    """

    permutations: int = 10
    lasting: float = 2.0
    lists: int = 12
    length: int = 1500
    trees: tuple[int, int, int] = (40, 100, 1000)


@dataclass(frozen=True, slots=True)
class Split:
    """Training, validation and test queries for one experiment."""

    name: str
    train: Judgements
    validation: Judgements
    test: Judgements


@dataclass(frozen=True)
class Inputs:
    """The data of a folder, and where figures are written."""

    folder: Path
    figures: Path
    effort: Effort = field(default_factory=Effort)
    _folds: dict[str, list[Fold]] = field(default_factory=dict)
    _rows: dict[str, list[FoldRow]] = field(default_factory=dict)
    _splits: list[Split] = field(default_factory=list)

    @property
    def letor_sets(self) -> list[str]:
        """The data sets of the SOLAR paper that are there."""
        return [name for name in LETOR if (self.folder / name).is_dir()]

    @property
    def missing(self) -> list[str]:
        """The data sets that are not there."""
        return [name for name in (*LETOR, SAMPLE) if not (self.folder / name).is_dir()]

    def folds(self, name: str) -> list[Fold]:
        """Read the folds of a data set, once."""
        if name not in self._folds:
            self._folds[name] = folds.read_folds(self.folder / name)
        return self._folds[name]

    def queries(self, name: str) -> JudgedData:
        """Return all queries of a data set; the first fold tests on the last part."""
        last, *others = self.folds(name)
        return folds.all_queries([*others, last])

    def fold_rows(self, name: str) -> list[FoldRow]:
        """Run batch and online learners on the folds of a data set, once."""
        if name not in self._rows:
            experiment = Experiment(permutations=self.effort.permutations, discount="letor")
            rows = batch_vs_online.run_folds(experiment, self.folds(name), COMPARED_SYSTEMS)
            self._rows[name] = list(rows)
        return self._rows[name]

    def splits(self) -> list[Split]:
        """Return fold 1 of the data sets that the RankSVM paper shares, and the sample of MSLR."""
        if not self._splits:
            shared = [name for name in ("MQ2007", "MQ2008") if name in self.letor_sets]
            self._splits.extend(_first_fold(name, self.folds(name)[0]) for name in shared)
            if SAMPLE not in self.missing:
                self._splits.append(_sample(self.folder / SAMPLE))
        return self._splits


def _first_fold(name: str, fold: Fold) -> Split:
    return Split(name, *map(Judgements.of, (fold.train, fold.validation, fold.test)))


def _sample(folder: Path) -> Split:
    """Read a sample: the last quarter of its training queries validates; features in [0, 1]."""
    train, test = letor.read_parts([_only(folder, "train"), _only(folder, "test")])
    cut = len(train.queries) * 3 // 4
    parts = (train.queries[:cut], train.queries[cut:], test.queries)
    return Split(SAMPLE, *map(Judgements.of, _scaled(parts)))


def _scaled(parts: Sequence[list[LabelledQuery]]) -> list[list[LabelledQuery]]:
    """Scale features linearly so that those of the first part are in [0, 1] (section 4.2)."""
    rows = np.concatenate([query.documents for query in parts[0]]).astype(np.float64)
    low, high = rows.min(axis=0), rows.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    return [
        [LabelledQuery(query.labels, (query.documents - low) / span) for query in part]
        for part in parts
    ]


def _only(folder: Path, name: str) -> Path:
    found = sorted(folder.glob(f"{name}.txt*"))
    if len(found) != 1:
        raise SystemExit(
            f"{folder}: expected one file {name}.txt (also .gz, .xz), got {len(found)}"
        )
    return found[0]
