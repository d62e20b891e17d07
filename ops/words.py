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
    """A PromQL expression and the legend of its series."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `width` is out of 24 columns, `unit` is Grafana's name of the unit.

    `states` shows yes or no where no is a fault; `phases` shows yes or no without a judgement.
    """

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]
    kind: Literal["lines", "stacked", "number", "states", "phases"] = "lines"
    width: int = 8
    decimals: int | None = None
    minimum: float | None = None
    maximum: float | None = None


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
    severity: Literal["critical", "warning"]
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


def new_count(aggregation: str, counter: str) -> str:
    """How much a counter grew in 15 minutes, also one whose series has just appeared.

    Of many models only those with most requests or in trouble have series.
    """
    grown = f"{aggregation} (increase({counter}[15m]))"
    return f"{grown} > 0 or {aggregation} ({counter} unless {counter} offset 15m)"


def window_mean(total: str, count: str, window: str) -> str:
    """The mean within a window, from two recorded sums; no value if the count did not increase.

    >>> window_mean("total", "count", "1h")
    'delta(total[1h]) / on (model) group_left () (delta(count[1h]) > 0)'
    """
    return f"delta({total}[{window}]) / on (model) group_left () (delta({count}[{window}]) > 0)"
