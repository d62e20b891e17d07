"""Tables, goals, and the summary of goals."""

from collections.abc import Sequence
from typing import NamedTuple


class Goal(NamedTuple):
    """A wanted value, the measured value, and whether the goal is met (None: not measured)."""

    name: str
    wanted: str
    reached: str
    met: bool | None


def at_most(name: str, limit: float, unit: str, reached: float) -> Goal:
    """A goal with an upper limit."""
    return Goal(name, f"<= {limit:g} {unit}", f"{reached:.2f} {unit}", reached <= limit)


def at_least(name: str, limit: float, unit: str, reached: float) -> Goal:
    """A goal with a lower limit."""
    return Goal(name, f">= {limit:g} {unit}", f"{reached:.2f} {unit}", reached >= limit)


def not_measured(name: str, wanted: str) -> Goal:
    """A goal that this machine cannot measure."""
    return Goal(name, wanted, "not measured", None)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Format rows under a head; the first `words` columns are text, the others numbers.

    >>> print(table("Fruit", ["kind", "count"], [["apples", "3"], ["figs", "12"]]))
    Fruit
      kind    count
      apples      3
      figs       12
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [title]
    for row in (head, *rows):
        left = map(str.ljust, row[:words], widths[:words])
        right = map(str.rjust, row[words:], widths[words:])
        lines.append("  ".join(["", *left, *right]).rstrip())
    return "\n".join(lines)


def summary(goals: Sequence[Goal]) -> str:
    """Format all goals: wanted, measured, and met or MISSED."""
    verdicts = {True: "met", False: "MISSED", None: "-"}
    rows = [[g.name, g.wanted, g.reached, verdicts[g.met]] for g in goals]
    return table("Goals", ["goal", "wanted", "measured", "result"], rows)


def rate(count: int, seconds: float) -> str:
    """Format a rate per second with three digits.

    >>> rate(3, 2e-6), rate(123_456, 1.0), rate(7, 1.0)
    ('1.50 M/s', '123 k/s', '7.00 /s')
    """
    per_second = count / seconds
    units = {1e6: "M/s", 1e3: "k/s", 1.0: "/s"}
    size = next((size for size in units if per_second >= size), 1.0)
    return f"{per_second / size:#.3g}".rstrip(".") + " " + units[size]
