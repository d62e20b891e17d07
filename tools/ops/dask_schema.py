"""Validate DaskCluster objects against the definition in the wheel of dask-kubernetes.

`python tools/ops/dask_schema.py WHEEL FILE…`. An unknown field is an error.
"""

import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import jsonschema
import yaml

GROUP, KIND = "kubernetes.dask.org/v1", "DaskCluster"
DEFINITION = "crds/daskcluster.yaml"


def closed(schema: Any) -> Any:
    """The schema without room for unknown fields."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(one) for name, one in schema.items()}
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        preserved = found.get("x-kubernetes-preserve-unknown-fields")
        found.setdefault("additionalProperties", bool(preserved))
    if found.pop("x-kubernetes-int-or-string", False):
        found.pop("anyOf", None)
        found["type"] = ["integer", "string"]
    return found


def definition(wheel: str) -> Any:
    """The schema of a DaskCluster."""
    with ZipFile(wheel) as files:
        (name,) = (one for one in files.namelist() if one.endswith(DEFINITION))
        found = yaml.safe_load(files.read(name))
    (version,) = found["spec"]["versions"]
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}}
    return schema


def main(wheel: str, *files: str) -> int:
    """0 if there is a DaskCluster, and all are valid."""
    schema = definition(wheel)
    found = [
        one
        for file in files
        for one in yaml.safe_load_all(Path(file).read_text())
        if one["apiVersion"] == GROUP
    ]
    wrong = [
        f"{list(error.absolute_path)}: {error.message}"
        for one in found
        for error in jsonschema.Draft202012Validator(schema).iter_errors(one)
    ]
    if [one["kind"] for one in found] != [KIND]:
        wrong.append(f"expected one {KIND}, got {[one['kind'] for one in found]}")
    sys.stderr.writelines(f"{text}\n" for text in wrong)
    if not wrong:
        sys.stdout.write(f"Dask operator: {len(found)} object matches the schema\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
