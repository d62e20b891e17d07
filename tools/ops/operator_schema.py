"""Validate ServiceMonitor and PrometheusRule against the schema of the Prometheus Operator 0.80.

The schema is pydantic models generated from the operator's definitions. They drop unknown fields,
so the check compares the output with the input.
"""

import sys
from pathlib import Path
from typing import Any

import yaml
from cloudcoil.models.prometheus_operator import v1

KINDS = {"ServiceMonitor": v1.ServiceMonitor, "PrometheusRule": v1.PrometheusRule}


def check(manifest: dict[str, Any]) -> str:
    """The error in a manifest, or an empty string."""
    try:
        found = KINDS[manifest["kind"]].model_validate(manifest)
    except ValueError as error:
        return str(error)
    known = found.model_dump(by_alias=True, exclude_unset=True, mode="json")
    return "" if known == manifest else f"unknown field; expected {known}, got {manifest}"


def main(files: list[str]) -> int:
    """0 if both kinds are present and valid."""
    manifests = [
        one
        for file in files
        for one in yaml.safe_load_all(Path(file).read_text())
        if one["apiVersion"] == "monitoring.coreos.com/v1"
    ]
    wrong = [text for text in map(check, manifests) if text]
    kinds = {one["kind"] for one in manifests}
    if not wrong and kinds != set(KINDS):
        wrong = [f"expected {sorted(KINDS)}, got {sorted(kinds)}"]
    sys.stderr.writelines(f"{text}\n" for text in wrong)
    if not wrong:
        sys.stdout.write(f"Prometheus Operator: {len(manifests)} objects match the schema\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
