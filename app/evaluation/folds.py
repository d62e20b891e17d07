"""Judged data in five folds, from a folder: what to learn from, to choose on and to test on.

A folder holds either five partitions or LETOR's folds, each file also as .gz or .xz:

    S1.txt … S5.txt                               fold N learns from S_N, S_N+1 and S_N+2, chooses
                                                  on S_N+3 and is tested on S_N+4 (modulo 5)
    Fold1 … Fold5/train.txt, vali.txt, test.txt   as they are; they go first where both are

No query stands in two parts of a fold: what is held back was never learnt from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import BadData
from app.evaluation import letor
from app.evaluation.letor import JudgedData
from app.ranking.online import LabelledQuery

FOLDS = range(5)
PARTS = ("train", "vali", "test")
SUFFIXES = ("", ".gz", ".xz")


@dataclass(frozen=True, slots=True)
class Fold:
    """Queries of n features: to learn from, to choose parameters on, and to test on."""

    n: int
    train: list[LabelledQuery]
    validation: list[LabelledQuery]
    test: list[LabelledQuery]


def read_folds(folder: Path) -> list[Fold]:
    """The five folds of a folder."""
    if not folder.is_dir():
        raise BadData(f"{folder}: expected a folder, got {'a file' if folder.exists() else 'none'}")
    if any((folder / f"Fold{at + 1}").is_dir() for at in FOLDS):
        return [_fold(folder / f"Fold{at + 1}") for at in FOLDS]
    if any(_found(folder / f"S{at + 1}.txt") for at in FOLDS):
        return rotated(letor.read_parts([_one(folder / f"S{at + 1}.txt") for at in FOLDS]))
    raise BadData(
        f"{folder}: expected S1.txt … S5.txt (also .gz, .xz) or Fold1 … Fold5, got neither"
    )


def rotated(parts: list[JudgedData]) -> list[Fold]:
    """Fold N of five partitions: three to learn from, the next to choose on, the last to test on.

    >>> parts = [JudgedData(1, [at]) for at in "12345"]
    >>> [("".join(fold.train), *fold.validation, *fold.test) for fold in rotated(parts)]
    [('123', '4', '5'), ('234', '5', '1'), ('345', '1', '2'), ('451', '2', '3'), ('512', '3', '4')]
    """
    turns = [[parts[(at + step) % len(parts)].queries for step in FOLDS] for at in FOLDS]
    return [Fold(parts[0].n, [*a, *b, *c], d, e) for a, b, c, d, e in turns]


def whole(folds: Sequence[Fold]) -> JudgedData:
    """All queries: each is tested on in one fold."""
    return JudgedData(max(fold.n for fold in folds), [one for fold in folds for one in fold.test])


def _fold(folder: Path) -> Fold:
    train, validation, test = letor.read_parts([_one(folder / f"{part}.txt") for part in PARTS])
    return Fold(train.n, train.queries, validation.queries, test.queries)


def _one(path: Path) -> Path:
    found = _found(path)
    if len(found) != 1:
        names = " and ".join(one.name for one in found) or "none"
        raise BadData(f"{path}: expected this file once (also .gz, .xz), got {names}")
    return found[0]


def _found(path: Path) -> list[Path]:
    named = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
    return [one for one in named if one.is_file()]
