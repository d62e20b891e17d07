"""Judged documents in rows: JSON lines and parquet, by group and query."""

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import BadData, SolarError
from app.evaluation import tables
from app.evaluation.tables import GroupedData, TableRows, grouped
from app.training.group_files import read_groups
from app.training.shards import parquet

ROWS: list[dict[str, Any]] = [
    {"shop": "a", "qid": "1", "label": 2, "features": [0.1, 1.0]},
    {"shop": "b", "qid": "1", "label": 0, "features": [0.2, 2.0]},
    {"shop": "a", "qid": "2", "label": 1, "features": [0.3, 3.0]},
    {"shop": "a", "qid": "1", "label": 0.5, "features": [0.4, 4.0]},
]


def described(data: GroupedData) -> dict[str, list[tuple[list[float], list[list[float]]]]]:
    return {
        group: [
            (query.labels.tolist(), np.asarray(query.documents).tolist()) for query in found.queries
        ]
        for group, found in data.groups.items()
    }


def f32(*values: float) -> list[float]:
    return [float(np.float32(value)) for value in values]


EXPECTED = {
    "a": [([2.0, 0.5], [f32(0.1, 1.0), f32(0.4, 4.0)]), ([1.0], [f32(0.3, 3.0)])],
    "b": [([0.0], [f32(0.2, 2.0)])],
}


def write(path: Path, rows: Sequence[Any]) -> Path:
    text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.ndjson", "rows.json.gz"])
def test_json_lines_are_read_by_group_and_query(tmp_path: Path, name: str) -> None:
    data = read_groups([write(tmp_path / name, ROWS)], "shop")
    assert described(data) == EXPECTED
    assert (data.n, data.names) == (2, None)


def test_two_files_are_one_data_set_and_blank_lines_are_ignored(tmp_path: Path) -> None:
    first = write(tmp_path / "1.jsonl", [*ROWS[:2], "", " "])
    second = write(tmp_path / "2.jsonl", ROWS[2:])
    assert described(read_groups([first, second], "shop")) == EXPECTED


def test_features_by_name_are_those_of_all_lines_and_absent_ones_are_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LINES_AT_ONCE", 1)  # blocks have other names
    each: list[dict[str, float]] = [{"x": 1.0}, {"y": 2.0, "x": 3.0}]
    lines = [{"shop": 7, "qid": 1, "label": 0, "features": one} for one in each]
    data = read_groups([write(tmp_path / "rows.jsonl", lines)], "shop")
    assert (data.n, data.names) == (2, ("x", "y"))
    assert described(data) == {"7": [([0.0, 0.0], [[1.0, 0.0], [3.0, 2.0]])]}


def test_a_number_and_its_text_name_the_same_group_and_query(tmp_path: Path) -> None:
    lines = [{**ROWS[0], "shop": one, "qid": one} for one in (7, "7")]
    data = read_groups([write(tmp_path / "rows.jsonl", lines)], "shop")
    assert {group: len(found.queries) for group, found in data.groups.items()} == {"7": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", ":3: Input data was truncated"),
        ({**ROWS[0], "shop": None}, ":3: Expected `int | str`, got `null` - at `$.shop`"),
        ({"qid": 1, "label": 1, "features": [1]}, ":3: Object missing required field `shop`"),
        ({**ROWS[0], "label": 31}, ":3: label: expected a number from 0 to 30, got 31"),
        ({**ROWS[0], "label": True}, ":3: Expected `float`, got `bool`"),
        ({**ROWS[0], "features": [1]}, ":3: features: expected 2 values, got 1"),
        ({**ROWS[0], "features": {"x": 1}}, ":3: features: expected a list, got names"),
        ({**ROWS[0], "features": [1, 1e39]}, ":3: features: expected finite float32 values"),
        ('{"shop": "a", "qid": 1, "label": 1, "features": [1, NaN]}', ":3: JSON is malformed"),
        ({**ROWS[0], "features": [1, "2"]}, ":3: Expected `float`, got `str`"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, message: str) -> None:
    path = write(tmp_path / "rows.jsonl", [ROWS[0], "", line])
    with pytest.raises(BadData) as raised:
        read_groups([path], "shop")
    assert str(raised.value).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    ("rows", "field", "message"),
    [
        ([], "shop", "expected judged documents, got no line"),
        (ROWS, "qid", "--group-by: expected a column other than qid, label, features, got qid"),
        ([{**ROWS[0], "features": []}], "shop", "features: expected 1 to 2000, got 0"),
        ([{**ROWS[0], "features": [0] * 2001}], "shop", "features: expected 1 to 2000, got 2001"),
    ],
)
def test_data_without_rows_groups_or_features_is_refused(
    tmp_path: Path, rows: list[Any], field: str, message: str
) -> None:
    with pytest.raises(BadData) as raised:
        read_groups([write(tmp_path / "rows.jsonl", rows)], field)
    assert str(raised.value).endswith(message)


def test_files_of_several_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="expected one kind, got JSON lines and LETOR text"):
        read_groups([tmp_path / "a.jsonl", tmp_path / "b.txt.gz"], "shop")


def test_the_prefix_of_a_query_id_ends_at_its_first_colon(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("1 qid:a:1:x 1:1\n0 qid:a:1:y 1:2\n2 qid:b:1 1:3\n1 qid:a: 2:1\n")
    assert described(read_groups([path], "qid-prefix")) == {
        "a": [([1.0], [[1.0, 0.0]]), ([0.0], [[2.0, 0.0]]), ([1.0], [[0.0, 1.0]])],
        "b": [([2.0], [[3.0, 0.0]])],
    }


def test_a_query_id_without_a_prefix_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("1 qid:a:1 1:1\n0 qid:17 1:2\n")
    with pytest.raises(BadData, match="qid:17: expected qid:GROUP:ID with --group-by qid-prefix"):
        read_groups([path], "qid-prefix")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=1, max_size=30),
    st.integers(1, 30),
)
def test_rows_are_grouped_as_one_by_one(keys: list[tuple[str, str]], cut: int) -> None:
    numbers = np.arange(len(keys), dtype=np.float64)
    parts = [
        TableRows(
            [group for group, _ in keys[some]], [query for _, query in keys[some]],
            numbers[some], numbers[some, None], None,
        )
        for some in (slice(0, cut), slice(cut, None))
    ]  # fmt: skip
    naive: dict[str, dict[str, list[float]]] = {}
    for at, (group, query) in enumerate(keys):
        naive.setdefault(group, {}).setdefault(query, []).append(float(at))
    found = grouped(parts)
    assert list(found.groups) == list(naive)
    for group, data in found.groups.items():
        assert [query.labels.tolist() for query in data.queries] == list(naive[group].values())


# ---- parquet ----


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    pytest.importorskip("fsspec")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table  # noqa: PLC0415  # not installed everywhere

    write_table(pyarrow.table(columns), path)
    return path


def columns() -> dict[str, Any]:
    return {name: [one[name] for one in ROWS] for name in ROWS[0]}


def test_parquet_with_lists_of_features_is_read_as_json_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "rows.parquet", columns())
    monkeypatch.setattr(parquet, "BATCH_BYTES", 24)  # three rows
    assert described(read_groups([path], "shop")) == EXPECTED


def test_parquet_with_one_column_a_feature_has_its_names(tmp_path: Path) -> None:
    given = columns()
    first, second = zip(*given.pop("features"), strict=True)
    path = write_parquet(tmp_path / "rows.parquet", {"x": first, **given, "y": second})
    data = read_groups([path], "shop")
    assert described(data) == EXPECTED
    assert data.names == ("x", "y")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shop": ["a", None, "b", "c"]}, ": column shop: expected a value in each row, got null"),
        ({"label": list("abcd")}, ": column label: expected numbers, got string"),
        ({"label": [1, -1, 0, 0]}, ": row 2: label: expected a number from 0 to 30, got -1"),
        ({"features": [[1.0], [1.0, 2.0], [1.0], [2.0]]}, ": column features: expected 1 values"),
        ({"features": [[1.0], [np.nan], [1.0], [2.0]]}, ": row 2: features: expected finite"),
    ],
)
def test_a_bad_column_of_parquet_is_named(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write_parquet(tmp_path / "rows.parquet", {**columns(), **change})
    with pytest.raises(BadData) as raised:
        read_groups([path], "shop")
    assert str(raised.value).startswith(f"{path}{message}")


@pytest.mark.parametrize("name", ["rows.parquet", "rows"])
def test_a_directory_of_parquet_files_is_read_without_its_markers(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for at, some in enumerate((slice(0, 2), slice(2, 4))):
        part = {name: values[some] for name, values in columns().items()}
        write_parquet(folder / f"part-{at}.parquet", part)
    (folder / "_SUCCESS").touch()
    assert described(read_groups([folder], "shop")) == EXPECTED


def test_a_missing_column_and_a_file_that_is_not_parquet_are_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "rows.parquet", columns())
    with pytest.raises(BadData, match="expected the column store, got none of this name"):
        read_groups([path], "store")
    path.write_text("no parquet")
    with pytest.raises(BadData, match=r"rows\.parquet: expected a readable file \(Arrow"):
        read_groups([path], "shop")
    with pytest.raises(
        BadData, match=r"none\.parquet: expected a readable file, but there is none"
    ):
        read_groups([tmp_path / "none.parquet"], "shop")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.delitem(sys.modules, "fsspec.core", raising=False)
    with pytest.raises(SolarError, match=r"pip install 'solar-ranking\[cluster\]'"):
        read_groups([tmp_path / "rows.parquet"], "shop")
