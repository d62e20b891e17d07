"""k8s/overlays/monitoring/prometheusrule.yaml from docker/prometheus/rules.yml: the same alerts.

`python tools/prometheus_rule.py` writes it; tests/test_kubernetes.py says when that is due.
(Kustomize could not take it from there itself: it reads nothing outside of an overlay's folder.)
"""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docker" / "prometheus" / "rules.yml"
TARGET = ROOT / "k8s" / "overlays" / "monitoring" / "prometheusrule.yaml"
HEAD = f"# Made by tools/{Path(__file__).name} from docker/prometheus/rules.yml; change that one.\n"


def rendered(rules: str) -> str:
    """A PrometheusRule with the groups of a rules file."""
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "solar"},
        "spec": {"groups": yaml.safe_load(rules)["groups"]},
    }
    return HEAD + yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=100)


if __name__ == "__main__":
    TARGET.write_text(rendered(SOURCE.read_text()))
