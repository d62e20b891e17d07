"""Markdown parts that the reference pages share."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Render a table.

    >>> print(table(["name", "type"], [["`a|b`", "text"]]))
    | name | type |
    |---|---|
    | `a\\|b` | text |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("|" + "|".join(_cell(cell) for cell in line) + "|" for line in lines)


def _cell(text: str) -> str:
    plain = " ".join(text.split()).replace("|", "\\|")
    return plain if plain == "---" else f" {plain} "


def code(text: object) -> str:
    """Render a name or value as code; nothing stays nothing."""
    return f"`{text}`" if str(text) else ""
