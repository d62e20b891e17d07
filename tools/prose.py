"""Measure the prose: sentence length and unwanted words, in documents and docstrings.

`python -m tools.prose` prints both; `tests/test_prose.py` keeps the unwanted words out.
Code blocks, tables and headings are not counted as sentences; their words are searched too.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
UNWANTED = ("anew", "ours", "told", "nobody", "so many", "as far as", "whoever")
_WORD = re.compile(r"\b(" + "|".join(UNWANTED) + r")\b", re.IGNORECASE)
_FENCE = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)
_NO_SENTENCE = re.compile(r"^\s*(\||#|<|!\[|\[[^]]+\]:|>>>|\.\.\. )")
_ITEM = re.compile(r"^\s*([-*]|\d+\.)\s")
_END = re.compile(r"(?<=[.!?:])[)*`\"]*\s+(?=[A-Z`*(\"\[/])")


class Prose(NamedTuple):
    """Sentences of a text, and where unwanted words stand in it."""

    sentences: list[str]
    unwanted: list[str]


def _paragraphs(text: str) -> Iterator[str]:
    """Running text only: no code, no tables, no headings; a list item is a paragraph."""
    lines: list[str] = []
    for line in [*_FENCE.sub("", text).splitlines(), ""]:
        ends = not line.strip() or _NO_SENTENCE.match(line)
        if (ends or _ITEM.match(line)) and lines:
            yield " ".join(lines)
            lines = []
        if not ends:
            lines.append(_ITEM.sub("", line).strip())


def sentences(text: str) -> list[str]:
    """Split running text into sentences.

    >>> sentences("A store is required. It keeps the log.")
    ['A store is required.', 'It keeps the log.']
    """
    found = (part for paragraph in _paragraphs(text) for part in _END.split(paragraph))
    return [one for one in found if len(one.split()) > 2]


def _measure(texts: Iterable[tuple[str, str]]) -> Prose:
    every = list(texts)
    return Prose(
        [one for _, text in every for one in sentences(text)],
        [
            f"{name}: {word.group().lower()}"
            for name, text in every
            for word in _WORD.finditer(text)
        ],
    )


def documents(root: Path = ROOT) -> Prose:
    """Measure the Markdown files; the changelog is history and stays out."""
    folders = [
        path
        for pattern in ("*.md", "docs/**/*.md", "k8s/**/*.md", "clients/**/*.md")
        for path in root.glob(pattern)
    ]
    paths = [path for path in sorted(folders) if path.name != "CHANGELOG.md"]
    return _measure((str(path.relative_to(root)), path.read_text()) for path in paths)


def sources(root: Path = ROOT) -> list[str]:
    """Find unwanted words anywhere in source files: messages, comments, names."""
    folders = ("app", "benchmarks", "clients", "docker", "k8s", "ops", "tests", "tools")
    files = [path for folder in folders for path in (root / folder).rglob("*")]
    kinds = {".conf", ".lua", ".py", ".sh", ".yaml", ".yml"}
    own = {"prose.py", "test_prose.py"}
    read = [path for path in sorted(files) if path.suffix in kinds and path.name not in own]
    return _measure((str(path.relative_to(root)), path.read_text()) for path in read).unwanted


def docstrings(root: Path = ROOT) -> Prose:
    """Measure the docstrings of the package."""
    return _measure(_docstrings(root))


def _docstrings(root: Path) -> Iterator[tuple[str, str]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted((root / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield str(path.relative_to(root)), text


def main() -> None:
    """Print the figures."""
    for name, prose in (("documents", documents()), ("docstrings", docstrings())):
        lengths = sorted(len(one.split()) for one in prose.sentences)
        words = Counter(one.rsplit(": ", 1)[1] for one in prose.unwanted)
        print(
            f"{name}: {len(lengths)} sentences, {sum(lengths) / len(lengths):.1f} words on average,"
            f" 90 % have at most {lengths[len(lengths) * 9 // 10]};"
            f" unwanted words: {sum(words.values())} {dict(words)}"
        )


if __name__ == "__main__":
    main()
