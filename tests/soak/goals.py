"""Goals and tables in Markdown."""

from collections.abc import Sequence
from typing import NamedTuple


class Goal(NamedTuple):
    """A wanted value, the measured value, and whether the goal is met (None: not judged)."""

    name: str
    wanted: str
    reached: str
    met: bool | None


def summary(goals: Sequence[Goal]) -> str:
    """Format all goals: wanted, measured, and met or MISSED."""
    verdicts = {True: "met", False: "MISSED", None: "-"}
    rows = [[one.name, one.wanted, one.reached, verdicts[one.met]] for one in goals]
    return table(["goal", "wanted", "measured", "result"], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Format rows under a head; the first `words` columns are text, the others numbers.

    >>> print(table(["kind", "count"], [["apples", "3"], ["figs", "12"]]))
    | kind   | count |
    |--------|------:|
    | apples |     3 |
    | figs   |    12 |
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    ruler = [
        "-" * (width + 2) if at < words else "-" * (width + 1) + ":"
        for at, width in enumerate(widths)
    ]
    lines = [_row(head, widths, words), f"|{'|'.join(ruler)}|"]
    return "\n".join([*lines, *(_row(one, widths, words) for one in rows)])


def _row(cells: Sequence[str], widths: Sequence[int], words: int) -> str:
    left = [cell.ljust(width) for cell, width in zip(cells[:words], widths[:words], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(cells[words:], widths[words:], strict=True)]
    return f"| {' | '.join([*left, *right])} |"
