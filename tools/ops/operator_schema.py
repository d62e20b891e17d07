"""ServiceMonitor and PrometheusRule against the Prometheus Operator's schema, 0.80.

The models are pydantic's, made from the operator's definitions; they drop fields that they do not
know, so that what comes out must be what went in.
"""

import sys
from pathlib import Path
from typing import Any

import yaml
from cloudcoil.models.prometheus_operator import v1

KINDS = {"ServiceMonitor": v1.ServiceMonitor, "PrometheusRule": v1.PrometheusRule}


def check(manifest: dict[str, Any]) -> str:
    """What is wrong with it, or nothing."""
    try:
        found = KINDS[manifest["kind"]].model_validate(manifest)
    except ValueError as error:
        return str(error)
    known = found.model_dump(by_alias=True, exclude_unset=True, mode="json")
    return "" if known == manifest else f"expected only known fields, got {manifest}, of it {known}"


def main(files: list[str]) -> int:
    """0 if all is well and there was something to look at."""
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
        sys.stdout.write(f"Prometheus Operator: {len(manifests)} objects as its schema has them\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
