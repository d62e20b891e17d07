"""The words of documents and docstrings are plain."""

from pathlib import Path

import pytest

from tools import prose


def test_documents_and_docstrings_have_no_unwanted_word() -> None:
    assert prose.documents().unwanted == []
    assert prose.docstrings().unwanted == []


def test_source_files_have_no_unwanted_word() -> None:
    assert prose.sources() == []


def test_an_unwanted_word_is_found(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("The file is written anew. A sentence of five words.\n")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "one.py").write_text('"""Nobody is told."""\n')
    found = prose.documents(tmp_path)
    assert found.unwanted == ["README.md: anew"]
    assert [len(one.split()) for one in found.sentences] == [5, 5]
    assert prose.sources(tmp_path) == ["app/one.py: nobody", "app/one.py: told"]
    assert prose.docstrings(tmp_path).unwanted == ["app/one.py: nobody", "app/one.py: told"]


@pytest.mark.parametrize(
    "text", ["# A heading. Two.", "| a table. | Two. |", "```\ncode. Two.\n```"]
)
def test_headings_tables_and_code_are_no_sentences(text: str) -> None:
    assert prose.sentences(text) == []
