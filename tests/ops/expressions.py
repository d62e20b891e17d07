"""All expressions that somebody will look at or be woken by, and the metrics they are made of."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ops.__main__ import BOARDS
from ops.rules import ALERTS, RECORDED

_MADE_OF = {name: [one.expr for one in RECORDED if one.name == name] for name in
            {one.name for one in RECORDED}}  # fmt: skip


class Asked(NamedTuple):
    """An expression and where it stands; of an alert what is compared, without the comparison."""

    where: str
    expr: str


def everything() -> Iterator[Asked]:
    """Every expression of every panel and rule."""
    for board in BOARDS:
        for panel in board.panels():
            for query in panel.queries:
                yield Asked(f"{board.title} / {panel.title}", query.expr)
    for recorded in RECORDED:
        yield Asked(f"recorded {recorded.name} {dict(recorded.labels) or ''}", recorded.expr)
        yield Asked(f"the series {recorded.name}", recorded.name)
    for alert in ALERTS:
        yield Asked(f"alert {alert.name}", alert.value)


def metrics(expr: str) -> set[str]:
    """The metrics in an expression.

    >>> sorted(metrics('max by (model) (solar_a{order="solar_b"}) / model:solar_c:max[1h]'))
    ['model:solar_c:max', 'solar_a']
    """
    words = re.findall(r"[a-zA-Z_:][\w:]*", re.sub(r'"[^"]*"', "", expr))
    return {word for word in words if word.startswith(("solar_", "process_")) or ":" in word}


def of_the_service(expr: str) -> set[str]:
    """The metrics of the service that an expression is made of, recorded series looked through."""
    found = metrics(expr)
    recorded = {name for name in found if ":" in name}
    return (found - recorded).union(
        *(of_the_service(one) for name in recorded for one in _MADE_OF[name])
    )
