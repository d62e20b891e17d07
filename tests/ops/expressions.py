"""All expressions of dashboards and rules, and the metrics they use."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ops.__main__ import BOARDS
from ops.recorded import RECORDING_RULES
from ops.rules import ALERTS

_RECORDED_AS = {name: [one.expr for one in RECORDING_RULES if one.name == name] for name in
                {one.name for one in RECORDING_RULES}}  # fmt: skip


class Expression(NamedTuple):
    """An expression and where it is used; for an alert, its value without the condition."""

    where: str
    expr: str


def all_expressions() -> Iterator[Expression]:
    """Every expression of every panel and rule."""
    for board in BOARDS:
        for panel in board.panels():
            for query in panel.queries:
                for expr in (query.expr, *query.bounds()):
                    yield Expression(f"{board.title} / {panel.title}", expr)
    for rule in RECORDING_RULES:
        yield Expression(f"recording rule {rule.name} {dict(rule.labels) or ''}", rule.expr)
        yield Expression(f"recorded series {rule.name}", rule.name)
    for alert in ALERTS:
        yield Expression(f"alert {alert.name}", alert.value)


def metrics(expr: str) -> set[str]:
    """The metrics in an expression.

    >>> sorted(metrics('max by (model) (solar_a{order="solar_b"}) / model:solar_c:max[1h]'))
    ['model:solar_c:max', 'solar_a']
    """
    words = re.findall(r"[a-zA-Z_:][\w:]*", re.sub(r'"[^"]*"', "", expr))
    return {word for word in words if word.startswith(("solar_", "process_")) or ":" in word}


def service_metrics(expr: str) -> set[str]:
    """The service's metrics that an expression uses, directly or through recording rules."""
    found = metrics(expr)
    recorded = {name for name in found if ":" in name}
    return (found - recorded).union(
        *(service_metrics(one) for name in recorded for one in _RECORDED_AS[name])
    )
