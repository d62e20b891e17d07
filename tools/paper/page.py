"""The page: an index of all tables and figures of the papers, then one section for each."""

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from app.evaluation import plots
from app.evaluation.plots import Panel
from tools.reference.markdown import table

WIDTH = 120
NO_DATA = "not run: no data"


class Part(NamedTuple):
    """A result: the data it comes from, or why there is none, and the text of its section."""

    status: str
    text: str

    @classmethod
    def on(cls, data: Sequence[str], text: str) -> "Part":
        """Return a part on these data sets; without any it was not run."""
        return cls(", ".join(data), text) if data else cls(NO_DATA, "")


class Item(NamedTuple):
    """Tables and figures of a paper that one function makes."""

    paper: str
    names: tuple[str, ...]
    title: str
    make: Callable[..., Part]


def figure(folder: Path, name: str, title: str, panels: Sequence[Panel]) -> str:
    """Draw panels to a file; return the Markdown that shows it."""
    (folder / name).write_text(plots.svg(title, panels), encoding="utf-8")
    return f"![{title}](figures/{name})"


def page(intro: str, made: Sequence[tuple[Item, Part]]) -> str:
    """Join the introduction, the index and the sections."""
    rows = [[item.paper, ", ".join(item.names), item.title, part.status] for item, part in made]
    index = table(["paper", "item", "content", "data"], rows)
    sections = [_section(item, part) for item, part in made if part.text]
    return "\n\n".join([intro, index, *sections]) + "\n"


def _section(item: Item, part: Part) -> str:
    blocks = [_wrapped(block) for block in part.text.split("\n\n")]
    return "\n\n".join([f"## {item.paper}, {', '.join(item.names)}: {item.title}", *blocks])


def _wrapped(block: str) -> str:
    """Break the lines of a paragraph or list; tables and figures keep theirs."""
    if block.startswith(("|", "!")):
        return block
    lines = block.splitlines()
    indent = "  " if block.startswith("- ") else ""
    return "\n".join(fill(line, WIDTH, subsequent_indent=indent) for line in lines)
