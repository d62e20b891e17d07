"""Panels, boards and rules as plain values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: Filters by the variables of a dashboard.
MODEL = 'model=~"$model"'
INSTANCE = 'instance=~"$instance"'
BOTH = f"{MODEL},{INSTANCE}"
#: Requests of clients, without probes, scrapes and documentation.
TRAFFIC = 'route!~"/metrics|/healthz|/readyz|/docs.*|/openapi.json"'


class Query(NamedTuple):
    """A PromQL expression, the legend of its series, and the standard error of its value, if any.

    A standard error is drawn as a band around the line. Grafana fills a band between two series of
    fixed names, so there is one only where the expression has one series, that of one model.
    """

    expr: str
    legend: str
    error: str = ""

    def bounds(self) -> tuple[str, ...]:
        """The value minus and plus its standard error; nothing without one.

        >>> Query("a", "", "b").bounds()
        ('((a) - (b)) and on () (count(a) == 1)', '((a) + (b)) and on () (count(a) == 1)')
        """
        alone = f"and on () (count({self.expr}) == 1)"
        signs = "-+" if self.error else ""
        return tuple(f"(({self.expr}) {sign} ({self.error})) {alone}" for sign in signs)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `width` is out of 24 columns, `unit` is Grafana's name of the unit.

    The panels of a row fill whole lines.

    `states` shows yes or no where no is a fault; `phases` shows yes or no without a judgement;
    `verdicts` shows which side of a duel is better.
    """

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]
    kind: Literal["lines", "stacked", "number", "states", "phases", "verdicts"] = "lines"
    width: int = 8
    height: int = 8
    decimals: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    logarithmic: bool = False


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
class RecordingRule:
    """A series that Prometheus computes and stores: `name` (with `labels`) is `expr`."""

    name: str
    expr: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that fires once `value` has met `condition` for `duration`.

    `description` has three sentences: the fault, what users notice, the first step.
    `docs/runbook.md` has a section of the same name.
    """

    name: str
    value: str
    condition: str
    duration: str
    severity: Literal["critical", "warning", "info"]
    summary: str
    description: str

    @property
    def expr(self) -> str:
        """The expression that Prometheus evaluates."""
        return f"{self.value} {self.condition}"


def replica_max(metric: str, by: str = "model", labels: str = BOTH) -> str:
    """A gauge of the committed state: all replicas report the same value, so take the maximum.

    >>> replica_max("solar_version", labels='model="m"')
    'max by (model) (solar_version{model="m"})'
    """
    return f"max by ({by}) ({metric}{{{labels}}})"


def active(expr: str, activity: str) -> str:
    """The series of models for which `activity` is above 0: other models draw no line.

    >>> active("a", shown_range("changes", "b"))
    '(a) and on (model) (changes(b[$__range] @ end()) > 0)'
    """
    return f"({expr}) and on (model) ({activity} > 0)"


def shown_range(function: str, series: str) -> str:
    """A function over the time range that the dashboard shows, at every point of a line.

    >>> shown_range("max_over_time", "a")
    'max_over_time(a[$__range] @ end())'
    """
    return f"{function}({series}[$__range] @ end())"


def new_count(aggregation: str, counter: str) -> str:
    """How much a counter grew in 15 minutes, also one whose series has just appeared.

    Of many models only those with most requests or in trouble have series.
    """
    grown = f"{aggregation} (increase({counter}[15m]))"
    return f"{grown} > 0 or {aggregation} ({counter} unless {counter} offset 15m)"
