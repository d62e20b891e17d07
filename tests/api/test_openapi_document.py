"""The OpenAPI document is complete enough for code generators and Swagger UI."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.config import Settings
from app.main import create_app

DOCUMENT: Any = create_app(Settings()).openapi()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
BODIES = {
    f"{name} {media_type}": content
    for name, operation in OPERATIONS.items()
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items()
}


def references(part: Any) -> Iterator[str]:
    """Yield the names of the components that a part of the document refers to."""
    return (match[1] for match in re.finditer(r'"#/components/schemas/(\w+)"', json.dumps(part)))


def test_no_component_has_a_property_with_the_same_name() -> None:
    for name, schema in SCHEMAS.items():
        properties = {one.replace("_", "").lower() for one in schema.get("properties", ())}
        assert name.lower() not in properties


def test_every_field_and_parameter_has_a_description() -> None:
    fields = {
        f"{name}.{field}": about
        for name, schema in SCHEMAS.items()
        for field, about in schema.get("properties", {}).items()
    }
    parameters = {
        f"{name} {one['name']}": one
        for name, operation in OPERATIONS.items()
        for one in operation.get("parameters", ())
    }
    assert len(fields) > 100
    everything = {**fields, **parameters}
    assert [name for name, about in everything.items() if not about.get("description")] == []


def test_every_component_is_used_and_every_reference_resolves() -> None:
    assert set(references(DOCUMENT)) == set(SCHEMAS)


def test_operation_ids_are_stable() -> None:
    assert {operation["operationId"] for operation in OPERATIONS.values()} == {
        "rank", "feedback", "create_model", "get_model", "list_models", "tune_model",
        "delete_model", "list_versions", "keep_version", "delete_version", "rollback_model",
        "warm_start", "get_job", "cancel_job", "restart_job", "list_jobs", "healthz", "readyz",
        "metrics", "get_history", "get_status", "stream_model", "compare_documents", "what_if",
        "diff_versions", "list_impressions", "create_followers", "list_followers", "begin_duel",
        "get_duel", "end_duel", "promote_challenger", "beacon",
    }  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_described_with_its_scope(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    if ("operations" in operation["tags"] and name != "GET /status") or name == "POST /beacon":
        assert "security" not in operation
    else:
        needed, nothing = operation["security"]
        [scope] = needed["key"]
        assert nothing == {}  # for a service without keys
        assert scope in {"rank", "feedback", "read", "admin"}
        assert f"`{scope}`" in operation["description"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_has_a_schema(name: str) -> None:
    for status, answer in OPERATIONS[name]["responses"].items():
        assert "x-request-id" in answer["headers"]
        if status == "204":
            assert "content" not in answer
        elif status >= "400":
            [content] = answer["content"].items()
            reference = {"$ref": "#/components/schemas/ProblemBody"}
            assert content == ("application/problem+json", {"schema": reference})
            assert ("retry-after" in answer["headers"]) == (status in ("429", "503"))
        else:
            [content] = answer["content"].values()
            plain = ("GET /metrics", "GET /models/{name}/stream")
            assert "$ref" in content["schema"] or name in plain


@pytest.mark.parametrize("name", BODIES)
def test_every_body_has_a_schema_and_all_but_binary_ones_have_examples(name: str) -> None:
    assert BODIES[name]["schema"]
    if not name.endswith(("msgpack", "gzip", "xz")):
        assert all(one["summary"] and one["value"] for one in BODIES[name]["examples"].values())


def test_each_kind_of_feedback_has_an_example() -> None:
    examples = BODIES["POST /feedback application/json"]["examples"]
    assert examples.keys() >= {"clicks", "labels", "triplets", "batch"}


def test_query_parameters_have_no_defaults() -> None:
    found = [
        parameter
        for operation in OPERATIONS.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    ]
    assert len(found) >= 11
    for parameter in found:
        assert "default" not in parameter["schema"]
        assert "null" not in json.dumps(parameter)
