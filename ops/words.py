"""Panels, boards and rules as plain values: what is shown and when somebody is woken."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: Filters by the variables of a dashboard.
MODEL = 'model=~"$model"'
INSTANCE = 'instance=~"$instance"'
BOTH = f"{MODEL},{INSTANCE}"
#: Calls of users, not of those who watch or read the documentation.
TRAFFIC = 'route!~"/metrics|/healthz|/readyz|/docs.*|/openapi.json"'


class Query(NamedTuple):
    """An expression, and how its series are called."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture; `width` of 24, `unit` by Grafana's name for it.

    `states` are yes or no, and no is bad; `phases` are just that.
    """

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]
    kind: Literal["lines", "stacked", "number", "states", "phases"] = "lines"
    width: int = 8
    decimals: int | None = None
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard; `windows` are the choices of its variable `$window`, if it has one."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    windows: tuple[str, ...] = ()

    def panels(self) -> Iterator[Panel]:
        """All panels."""
        for row in self.rows:
            yield from row.panels


@dataclass(frozen=True, slots=True)
class Recorded:
    """A series that Prometheus keeps: `name` (with `labels`) is `expr`."""

    name: str
    expr: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Alert:
    """Somebody is told once `value` has been in `condition` for so long.

    `docs/runbook.md` has a section of the same name.
    """

    name: str
    value: str
    condition: str
    lasts: str
    severity: Literal["critical", "warning"]
    summary: str

    @property
    def expr(self) -> str:
        """What Prometheus evaluates."""
        return f"{self.value} {self.condition}"


def shared(metric: str, by: str = "model", labels: str = BOTH) -> str:
    """A gauge of a committed state: every replica reports the same, so the largest, never a sum.

    >>> shared("solar_version", labels='model="m"')
    'max by (model) (solar_version{model="m"})'
    """
    return f"max by ({by}) ({metric}{{{labels}}})"


def windowed(total: str, count: str, window: str) -> str:
    """The mean of what was added within a window, of two recorded sums; nothing if nothing was.

    >>> windowed("total", "count", "1h")
    'delta(total[1h]) / on (model) group_left () (delta(count[1h]) > 0)'
    """
    return f"delta({total}[{window}]) / on (model) group_left () (delta({count}[{window}]) > 0)"
