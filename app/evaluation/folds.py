"""Judged data in five cross-validation folds, read from a folder.

A folder holds either five partitions or LETOR's folds. Each file may be .gz or .xz:

    S1.txt … S5.txt                               fold N trains on S_N, S_N+1 and S_N+2, validates
                                                  on S_N+3 and tests on S_N+4 (modulo 5)
    Fold1 … Fold5/train.txt, vali.txt, test.txt   read unchanged; preferred if both layouts exist

No query is in two parts of a fold.
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
    """Training, validation and test queries of n features."""

    n: int
    train: list[LabelledQuery]
    validation: list[LabelledQuery]
    test: list[LabelledQuery]


def read_folds(folder: Path) -> list[Fold]:
    """Read the five folds of a folder."""
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
    """Build five folds of five partitions: three train, the next validates, the last tests.

    >>> parts = [JudgedData(1, [at]) for at in "12345"]
    >>> [("".join(fold.train), *fold.validation, *fold.test) for fold in rotated(parts)]
    [('123', '4', '5'), ('234', '5', '1'), ('345', '1', '2'), ('451', '2', '3'), ('512', '3', '4')]
    """
    turns = [[parts[(at + step) % len(parts)].queries for step in FOLDS] for at in FOLDS]
    return [Fold(parts[0].n, [*a, *b, *c], d, e) for a, b, c, d, e in turns]


def all_queries(folds: Sequence[Fold]) -> JudgedData:
    """Return all queries: each is a test query of exactly one fold."""
    return JudgedData(max(fold.n for fold in folds), [one for fold in folds for one in fold.test])


def _fold(folder: Path) -> Fold:
    train, validation, test = letor.read_parts([_one(folder / f"{part}.txt") for part in PARTS])
    return Fold(train.n, train.queries, validation.queries, test.queries)


def _one(path: Path) -> Path:
    found = _found(path)
    if len(found) != 1:
        names = " and ".join(one.name for one in found) or "none"
        raise BadData(f"{path}: expected exactly one file (plain, .gz or .xz), got {names}")
    return found[0]


def _found(path: Path) -> list[Path]:
    named = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
    return [one for one in named if one.is_file()]
