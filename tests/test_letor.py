"""Judged data from files: all of it, or an error with file, line and reason."""

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import BadData
from app.evaluation import letor
from app.ranking.sparse import SparseRows

GOOD = """\
2 qid:10 1:0.5 2:1 3:-2e-3 #docid = GX1 inc = 1
0 qid:10 1:0.25 3:4

# a comment line
1.5 qid:q-7 2:7
"""


def written(folder: Path, text: str, name: str = "judged.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_is_read_into_queries(tmp_path: Path) -> None:
    data = letor.read_letor([written(tmp_path, GOOD)])
    assert (data.n, len(data.queries), data.documents, data.sparse) == (3, 2, 3, False)
    first, second = data.queries
    assert first.labels.tolist() == [2.0, 0.0]
    assert first.documents.dtype == np.float32
    np.testing.assert_array_equal(
        first.documents, np.array([[0.5, 1.0, -2e-3], [0.25, 0.0, 4.0]], np.float32)
    )
    assert second.labels.tolist() == [1.5]
    assert second.documents.tolist() == [[0.0, 7.0, 0.0]]
    assert first.pairs.preferred.tolist() == [0]
    assert first.pairs.other.tolist() == [1]


def test_compressed_files_give_the_same_data(tmp_path: Path) -> None:
    plain = letor.read_letor([written(tmp_path, GOOD)])
    (tmp_path / "a.gz").write_bytes(gzip.compress(GOOD.encode()))
    (tmp_path / "a.xz").write_bytes(lzma.compress(GOOD.encode()))
    for name in ("a.gz", "a.xz"):
        data = letor.read_letor([tmp_path / name])
        assert data.n == plain.n
        for one, other in zip(data.queries, plain.queries, strict=True):
            assert one.labels.tobytes() == other.labels.tobytes()
            assert one.documents.tobytes() == other.documents.tobytes()


def test_several_files_are_one_data_set(tmp_path: Path) -> None:
    one, two = written(tmp_path, "1 qid:1 1:1\n", "1"), written(tmp_path, "1 qid:2 5:1\n", "2")
    data = letor.read_letor([one, two])
    assert (data.n, len(data.queries)) == (5, 2)
    assert data.queries[0].documents.shape == (1, 5)


def test_many_features_are_kept_sparse(tmp_path: Path) -> None:
    text = "1 qid:1 1:1 5000000:2.5\n0 qid:1 7:1\n0 qid:1\n"
    data = letor.read_letor([written(tmp_path, text)])
    assert (data.n, data.sparse) == (5_000_000, True)
    rows = data.queries[0].documents
    assert isinstance(rows, SparseRows)
    assert SparseRows.checked(rows).shape == (3, 5_000_000)
    assert rows.indptr.tolist() == [0, 2, 3, 3]
    assert rows.indices.tolist() == [0, 4_999_999, 6]
    assert rows.data.tolist() == [1.0, 2.5, 1.0]


def test_a_document_without_features_is_all_zeros(tmp_path: Path) -> None:
    data = letor.read_letor([written(tmp_path, "1 qid:1 2:1\n0 qid:1\n1 qid:1 1:3 # x\n")])
    assert data.queries[0].documents.tolist() == [[0.0, 1.0], [0.0, 0.0], [3.0, 0.0]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x qid:1 1:1", "expected a label from 0 to 30, got 'x'"),
        ("-1 qid:1 1:1", "expected a label from 0 to 30, got '-1'"),
        ("31 qid:1 1:1", "expected a label from 0 to 30, got '31'"),
        ("nan qid:1 1:1", "expected a label from 0 to 30, got 'nan'"),
        ("1_0 qid:1 1:1", "expected a label from 0 to 30, got '1_0'"),
        ("1", "expected qid:ID after the label, got nothing"),
        ("1 # qid:1 1:1", "expected qid:ID after the label, got nothing"),
        ("1 1:1 2:1", "expected qid:ID after the label, got '1:1'"),
        ("1 qid: 1:1", "expected qid:ID after the label, got 'qid:'"),
        ("1 quid:3 1:1", "expected qid:ID after the label, got 'quid:3'"),
        ("1 qid:1 1:1 2", "expected feature:value with a feature from 1 to 10000000, got '2'"),
        ("1 qid:1 1:1:1", "expected a finite float32 as value of feature 1, got '1:1'"),
        ("1 qid:1 1:1:1 2", "expected a finite float32 as value of feature 1, got '1:1'"),
        ("1 qid:1 a:1", "expected feature:value with a feature from 1 to 10000000, got 'a:1'"),
        ("1 qid:1 0:1", "expected feature:value with a feature from 1 to 10000000, got '0:1'"),
        ("1 qid:1 -1:1", "expected feature:value with a feature from 1 to 10000000, got '-1:1'"),
        ("1 qid:1 1.5:1", "expected feature:value with a feature from 1 to 10000000, got '1.5:1'"),
        ("1 qid:1 10000001:1", "a feature from 1 to 10000000, got '10000001:1'"),
        ("1 qid:1 " + "9" * 5000 + ":1", "a feature from 1 to 10000000, got '999999"),
        ("1 qid:1 ²:1", "expected feature:value with a feature from 1 to 10000000, got '²:1'"),
        ("1 qid:1 2:1 1:1", "expected ascending features, one above 2 here, got '1:1'"),
        ("1 qid:1 2:1 2:1", "expected ascending features, one above 2 here, got '2:1'"),
        ("1 qid:1 1:", "expected a finite float32 as value of feature 1, got ''"),
        ("1 qid:1 1:nan", "expected a finite float32 as value of feature 1, got 'nan'"),
        ("1 qid:1 1:-inf", "expected a finite float32 as value of feature 1, got '-inf'"),
        ("1 qid:1 1:1e400", "expected a finite float32 as value of feature 1, got '1e400'"),
        ("1 qid:1 1:1e39", "expected a finite float32 as value of feature 1, got '1e39'"),
        ("1 qid:1 1:\uff11", "expected a finite float32 as value of feature 1, got '\uff11'"),
        ("1 qid:1 1:1_0", "expected a finite float32 as value of feature 1, got '1_0'"),
    ],
)
def test_the_error_of_a_malformed_line_has_file_line_and_reason(
    tmp_path: Path, line: str, message: str
) -> None:
    path = written(tmp_path, f"1 qid:0 1:1 2:1\n{line}\n1 qid:9 1:1\n")
    with pytest.raises(BadData) as caught:
        letor.read_letor([path])
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 200


@given(st.text(alphabet="01 :.#qidxe-+_\t9²nan", max_size=40))
def test_any_line_is_read_or_described_by_an_error(line: str) -> None:
    fields = line.partition("#")[0].split()
    if fields:
        try:
            keys = letor._parse(fields)[2]
            letor._columns(keys)
        except ValueError:
            assert letor._first_error(fields).startswith("expected ")


def test_a_query_split_across_the_file_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "1 qid:1 1:1\n1 qid:2 1:1\n0 qid:1 1:1\n")
    with pytest.raises(BadData) as caught:
        letor.read_letor([path])
    assert str(caught.value) == (
        f"{path}:3: expected contiguous lines for each query, got more lines of query '1', "
        f"which starts at {path}:1"
    )


def test_query_ids_that_are_not_utf8_stay_distinct(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"1 qid:\xff 1:1\n0 qid:\xfe 1:2\n")
    assert len(letor.read_letor([path]).queries) == 2


def test_a_query_split_across_files_is_an_error(tmp_path: Path) -> None:
    one, two = written(tmp_path, "1 qid:1 1:1\n", "1"), written(tmp_path, "1 qid:1 1:1\n", "2")
    with pytest.raises(BadData, match="2:1: expected contiguous lines for each query"):
        letor.read_letor([one, two])


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_an_empty_file_is_an_error(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadData) as caught:
        letor.read_letor([path])
    assert str(caught.value) == f"{path}: expected lines of judged documents, got none"


def test_data_without_any_feature_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="expected features, got none in any line"):
        letor.read_letor([written(tmp_path, "1 qid:1\n0 qid:1\n")])


def test_unreadable_files_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"missing.txt: No such file or directory"):
        letor.read_letor([tmp_path / "missing.txt"])
    with pytest.raises(BadData, match=r"Is a directory"):
        letor.read_letor([tmp_path])


@pytest.mark.parametrize("name", ["cut.gz", "cut.xz", "text.gz", "text.xz"])
def test_broken_archives_are_an_error(tmp_path: Path, name: str) -> None:
    compress = gzip.compress if name.endswith("gz") else lzma.compress
    whole = compress(b"1 qid:1 1:1\n" * 1000)
    (tmp_path / name).write_bytes(whole[: len(whole) // 2] if "cut" in name else b"1 qid:1 1:1\n")
    with pytest.raises(BadData, match=rf"{name}: expected {name[-2:]} data, got "):
        letor.read_letor([tmp_path / name])
