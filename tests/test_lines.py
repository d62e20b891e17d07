"""The fast line parser agrees with the strict parser, or leaves the lines to it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.errors import BadData
from app.evaluation import letor
from app.ranking.lines import usual

NUMBER = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(str),
    st.floats(-1e3, 1e3).map(lambda number: f"{number:.6f}"),
    st.from_regex(r"-?[0-9]{0,18}\.?[0-9]{0,24}([eE][-+]?[0-9]{1,3})?", fullmatch=True),
)
LABEL = st.one_of(st.integers(0, 31).map(str), NUMBER)
BLANK = st.sampled_from([" ", " ", "  ", "\t", " \t "])
END = st.sampled_from(["\n", "\n", "\r\n", " \n", "#\n", " # docid = é\n", "\r", "\x0b\n"])


@st.composite
def line(draw: st.DrawFn) -> str:
    """Draw a line that is mostly valid."""
    features = sorted(draw(st.sets(st.integers(1, 12), max_size=4)))
    fields = [f"{feature}:{draw(NUMBER)}" for feature in features]
    query = draw(st.sampled_from(["1", "2", "q-7", "a:b", "é", "00"]))
    text = draw(LABEL) + draw(BLANK) + f"qid:{query}"
    for field in fields:
        text += draw(BLANK) + field
    return draw(st.sampled_from(["", "", " ", "\n"])) + text + draw(END)


Document = tuple[int, str, float, list[int], bytes]


def documents(found: Any) -> list[Document]:
    """List the documents: line, query, label, columns, values."""
    listed: list[Document] = []
    for number, rows in found:
        ends = np.cumsum([0, *rows.lengths]).tolist()
        for d, label in enumerate(rows.labels.tolist()):
            named = slice(ends[d], ends[d + 1])
            columns, values = rows.columns[named].tolist(), rows.values[named]
            listed.append((number, rows.query, label, columns, values.tobytes()))
    return listed


def agree(text: bytes) -> bool:
    """Whether the fast parser reads the lines; if so, the strict parser must agree."""
    lines = usual(text)
    if lines is None:
        return False
    found = documents(letor._by_query(text, lines))
    strict = documents(letor._line_by_line("x", 0, text))
    assert [one[1:] for one in found] == [one[1:] for one in strict]
    assert lines.numbers.tolist() == [one[0] for one in strict]
    return True


@settings(max_examples=500)
@given(st.lists(line(), max_size=4).map("".join))
@example("0 qid:1 1:9007199254740993 2:0.1\n")
@example("12.983012037151601 qid:1\n")  # its digits exceed 2**53: two roundings would differ
@example("-0 qid:1 1:-0.0 2:-.5 3:5. 4:0.30000001192092896\n")
@example("1 qid:1 1:1e22 2:1e-22 3:123456789012345e-20")
def test_the_fast_parser_agrees_with_the_strict_parser_on_lines(text: str) -> None:
    agree(text.encode())


@given(st.binary(max_size=60), st.text(alphabet="01 :.#qidxe-+_\t9²nan\r\n", max_size=60))
def test_the_fast_parser_agrees_with_the_strict_parser_on_any_bytes(raw: bytes, text: str) -> None:
    agree(raw)
    agree(b"1 qid:1 1:1\n" + text.encode())
    agree(b"1 qid:1 1:" + text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "2 qid:10 1:0.500000 2:1 46:-2.5 #docid = GX1 inc = 1\n",
        "0\tqid:10  1:0.25\t3:4e-05 \n\n# alone\n  \n1.5 qid:q:7 2:7E+2\r\n",
        "30 qid:1\n0 qid:1 10000000:340282346638528",
        "",
    ],
)
def test_common_lines_are_read_by_the_fast_parser(text: str) -> None:
    assert agree(text.encode())


@pytest.mark.parametrize(
    "text",
    ["1", "1 qid:", "1 qid", "x qid:1 1:1", "31 qid:1 1:1", "-1 qid:1 1:1", "1 qid:1 1:1:1",
     "1qid:1", "1 qid:1 2:1 1:1", "1 qid:1 0:1", "1 qid:1 10000001:1", "1 qid:1 000000001:1",
     "1 qid:1 1:1e39", "1 qid:1 1:", "1 qid:1 1:-", "1 qid:1 1:.", "1 qid:1 1:1e", "1 qid:1 1:1_0",
     "1 qid:1 1: 1", "1 qid:1 1:1e23", "1 qid:1 1:12345678901234567890", "1 qid:é 1:1",
     "1 qid:1 1:1\r2 qid:1"],
)  # fmt: skip
def test_all_other_lines_are_left_to_the_strict_parser(text: str) -> None:
    assert usual(text.encode()) is None
    assert usual(b"1 qid:0 1:1\n" + text.encode() + b"\n0 qid:9 1:1\n") is None


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_the_block_size_does_not_change_the_result(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{d % 3} qid:{d // 7} 1:{d / 8} 3:{'+' * (d % 9 == 4)}0.5 # é\n" for d in range(50)]
    lines[20] = "\r1 qid:2 2:7\r\n"  # an extra line, which only the strict parser recognises
    path = tmp_path / "judged"
    path.write_bytes("".join(lines).encode())
    whole = letor.read_letor([path])
    monkeypatch.setattr(letor, "BYTES_AT_ONCE", block)
    parts = letor.read_letor([path])
    assert (whole.n, len(whole.queries), whole.documents) == (3, 8, 50)
    assert len(parts.queries) == 8
    for one, other in zip(whole.queries, parts.queries, strict=True):
        assert one.labels.tobytes() == other.labels.tobytes()
        np.testing.assert_array_equal(one.documents, other.documents)
    path.write_bytes("".join([*lines, "1 qid:0 1:1\n"]).encode())
    message = rf"judged:52: .* got more lines of query '0', which starts at {path}:1$"
    with pytest.raises(BadData, match=message):
        letor.read_letor([path])
    path.write_bytes("".join([*lines, "1 qid:x 1:x\n"]).encode())
    with pytest.raises(BadData, match=r"judged:52: expected a finite float32"):
        letor.read_letor([path])
