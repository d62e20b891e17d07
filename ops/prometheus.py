"""Rules → the YAML that Prometheus reads (and, under `spec`, a PrometheusRule of Kubernetes)."""

from typing import Any

import yaml

from ops.rules import ALERTS, RECORDED
from ops.words import Alert, Recorded

HEAD = "# Written by `make dashboards` from ops/rules.py; what to do: docs/runbook.md.\n"
RUNBOOK = "docs/runbook.md"


def dump() -> str:
    """All rules as text."""
    groups = [
        {"name": "solar-recorded", "rules": [_recorded(one) for one in RECORDED]},
        {"name": "solar-alerts", "rules": [_alert(one) for one in ALERTS]},
    ]
    text: str = yaml.safe_dump({"groups": groups}, sort_keys=False, width=100, allow_unicode=True)
    return HEAD + text


def _recorded(one: Recorded) -> dict[str, Any]:
    labels = {"labels": dict(one.labels)} if one.labels else {}
    return {"record": one.name, "expr": one.expr, **labels}


def _alert(one: Alert) -> dict[str, Any]:
    return {
        "alert": one.name,
        "expr": one.expr,
        "for": one.lasts,
        "labels": {"severity": one.severity},
        "annotations": {"summary": one.summary, "runbook": f"{RUNBOOK}#{one.name.lower()}"},
    }
