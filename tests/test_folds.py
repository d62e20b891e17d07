"""Five folds from a folder: both layouts, and the errors of other folders."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import BadData
from app.evaluation import folds, letor
from app.evaluation.folds import Fold
from app.ranking.online import LabelledQuery
from tests.test_evaluation import solar

#: Partition N holds the queries 3N … 3N + 2; a query's first feature is its number.
PARTITIONS = [[3 * at, 3 * at + 1, 3 * at + 2] for at in range(5)]


def lines(queries: list[int]) -> str:
    return "".join(f"{d} qid:{q} 1:{q} 2:{d}\n" for q in queries for d in (1, 0))


def names(queries: list[LabelledQuery]) -> list[int]:
    return [int(query.documents[0, 0]) for query in queries]


def parts(fold: Fold) -> tuple[list[int], list[int], list[int]]:
    return names(fold.train), names(fold.validation), names(fold.test)


def partitions(folder: Path) -> Path:
    for at, queries in enumerate(PARTITIONS, start=1):
        (folder / f"S{at}.txt").write_text(lines(queries))
    return folder


def letors_folds(folder: Path) -> Path:
    """Folds that differ from the rotation: fold N tests on partition N."""
    for at in range(5):
        inside = folder / f"Fold{at + 1}"
        inside.mkdir()
        turn = [PARTITIONS[(at + step) % 5] for step in range(5)]
        (inside / "test.txt").write_text(lines(turn[0]))
        (inside / "vali.txt").write_text(lines(turn[1]))
        (inside / "train.txt").write_text(lines([*turn[2], *turn[3], *turn[4]]))
    return folder


def test_partitions_rotate_through_the_folds(tmp_path: Path) -> None:
    one, two, three, four, five = PARTITIONS
    found = [parts(fold) for fold in folds.read_folds(partitions(tmp_path))]
    assert found == [
        (one + two + three, four, five),
        (two + three + four, five, one),
        (three + four + five, one, two),
        (four + five + one, two, three),
        (five + one + two, three, four),
    ]


def test_letors_folds_are_read_unchanged(tmp_path: Path) -> None:
    one, two, three, four, five = PARTITIONS
    found = [parts(fold) for fold in folds.read_folds(letors_folds(tmp_path))]
    assert found[0] == (three + four + five, two, one)
    assert found[4] == (two + three + four, one, five)


def test_letors_folds_are_preferred_to_partitions(tmp_path: Path) -> None:
    found = folds.read_folds(letors_folds(partitions(tmp_path)))
    assert names(found[0].test) == PARTITIONS[0]


@pytest.mark.parametrize(("suffix", "packed"), [(".gz", gzip.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("layout", [partitions, letors_folds])
def test_parts_may_be_compressed(
    tmp_path: Path,
    layout: Callable[[Path], Path],
    suffix: str,
    packed: Callable[[bytes], bytes],
) -> None:
    plain = [parts(fold) for fold in folds.read_folds(layout(tmp_path))]
    for path in tmp_path.rglob("*.txt"):
        path.with_name(path.name + suffix).write_bytes(packed(path.read_bytes()))
        path.unlink()
    assert [parts(fold) for fold in folds.read_folds(tmp_path)] == plain


def test_every_query_is_a_test_query_once(tmp_path: Path) -> None:
    for layout in (partitions, letors_folds):
        found = folds.all_queries(folds.read_folds(layout(tmp_path)))
        assert sorted(names(found.queries)) == list(range(15))
        assert (found.n, found.documents) == (2, 30)


def test_a_feature_of_one_part_is_a_feature_of_all_parts(tmp_path: Path) -> None:
    (partitions(tmp_path) / "S3.txt").write_text("1 qid:6 7:1\n0 qid:6 1:0\n")
    for fold in folds.read_folds(tmp_path):
        assert fold.n == 7
        assert {query.documents.shape[1] for query in fold.train + fold.test} == {7}


def test_parts_have_the_queries_of_the_joined_files(tmp_path: Path) -> None:
    paths = [partitions(tmp_path) / f"S{at}.txt" for at in (2, 1)]
    apart, together = letor.read_parts(paths), letor.read_letor(paths)
    assert [names(part.queries) for part in apart] == [PARTITIONS[1], PARTITIONS[0]]
    assert names(together.queries) == PARTITIONS[1] + PARTITIONS[0]


def test_a_query_in_two_parts_is_an_error(tmp_path: Path) -> None:
    partitions(tmp_path)
    (tmp_path / "S5.txt").write_text(lines([12, 0]))
    with pytest.raises(BadData, match=r"S5.txt:3: expected contiguous lines for each query"):
        folds.read_folds(tmp_path)


def error_of(folder: Path) -> str:
    with pytest.raises(BadData) as caught:
        folds.read_folds(folder)
    return str(caught.value)


def test_a_folder_without_folds_is_an_error(tmp_path: Path) -> None:
    assert error_of(tmp_path) == (
        f"{tmp_path}: expected S1.txt … S5.txt (also .gz, .xz) or Fold1 … Fold5, got neither"
    )
    (tmp_path / "S6.txt").write_text(lines([1]))
    assert "got neither" in error_of(tmp_path)
    assert error_of(tmp_path / "none") == f"{tmp_path / 'none'}: expected a folder, got none"
    assert error_of(tmp_path / "S6.txt").endswith("S6.txt: expected a folder, got a file")


def test_the_error_of_a_missing_part_names_it(tmp_path: Path) -> None:
    (partitions(tmp_path) / "S4.txt").unlink()
    once = "expected exactly one file (plain, .gz or .xz), got"
    assert error_of(tmp_path) == f"{tmp_path / 'S4.txt'}: {once} none"
    (letors_folds(tmp_path) / "Fold3" / "vali.txt").unlink()
    assert error_of(tmp_path) == f"{tmp_path / 'Fold3' / 'vali.txt'}: {once} none"


def test_the_error_of_a_duplicate_part_names_both_files(tmp_path: Path) -> None:
    (partitions(tmp_path) / "S2.txt.gz").write_bytes(gzip.compress(lines([3]).encode()))
    assert error_of(tmp_path).endswith(
        "S2.txt: expected exactly one file (plain, .gz or .xz), got S2.txt and S2.txt.gz"
    )


def test_the_error_of_a_malformed_line_names_its_part(tmp_path: Path) -> None:
    (letors_folds(tmp_path) / "Fold2" / "test.txt").write_text("1 qid:1 1:x\n")
    assert "Fold2/test.txt:1: expected a finite float32" in error_of(tmp_path)


def test_the_command_prints_the_error_in_one_line(tmp_path: Path) -> None:
    ran = solar("evaluate", "--folds", "nowhere", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "solar: nowhere: expected a folder, got none\n"
