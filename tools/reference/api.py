"""The HTTP page: every operation and schema of the OpenAPI document."""

import json
from collections.abc import Iterator
from typing import Any

from app.config import Settings
from app.main import create_app
from tools.reference.markdown import code, table

_HEAD = """# HTTP API

All operations, bodies and answers, from the service's OpenAPI document. A running service has the same at `/docs`
(Swagger UI, to try requests) and `/openapi.json` (for code generators). [Integrate a search page](../integrate.md)
explains the two calls that matter most.

Errors are `application/problem+json` with the schema [ProblemBody](#problembody); [Errors](../integrate.md#errors) explains
each status. Every answer has an `x-request-id` header: the `request_id` of its log line.
"""
_PROBLEM = "application/problem+json"
_BOUNDS = (
    ("minimum", "≥ {}"), ("exclusiveMinimum", "> {}"), ("maximum", "≤ {}"),
    ("minLength", "≥ {} characters"), ("maxLength", "≤ {} characters"),
    ("minItems", "≥ {} items"), ("maxItems", "≤ {} items"),
)  # fmt: skip


def page() -> str:
    """Render the page."""
    document = create_app(Settings(learner=False)).openapi()
    parts = [_HEAD]
    for tag in document["tags"]:
        parts.append(f"\n## {tag['name'].capitalize()}\n\n{tag['description']}\n")
        parts += _operations(document, tag["name"])
    parts.append("\n## Schemas\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(_schema(name, schema))
    return "".join(parts)


def _operations(document: dict[str, Any], tag: str) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if tag in operation["tags"]:
                yield f"\n### {method.upper()} {path}\n\n{operation['description']}\n"
                yield from _parameters(operation)
                yield from _body(operation)
                yield from _answers(operation)


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    found = operation.get("parameters", [])
    if found:
        rows = (
            [code(one["name"]), one["in"], _type(one["schema"]), one.get("description", "")]
            for one in found
        )
        yield f"\n{table(['parameter', 'in', 'type', 'meaning'], rows)}\n"


def _body(operation: dict[str, Any]) -> Iterator[str]:
    content = operation.get("requestBody", {}).get("content", {})
    for media, about in content.items():
        yield f"\n**Body**, `{media}`: {_type(about['schema'])}\n"
        for example in about.get("examples", {}).values():
            yield f"\n{example['summary']}:\n\n{_block(media, example['value'])}\n"


def _block(media: str, value: Any) -> str:
    if media == "application/json" or isinstance(value, dict):
        return f"```json\n{_json(value)}\n```"
    return f"```text\n{str(value).strip()}\n```"


def _json(value: dict[str, Any]) -> str:
    """Render an object, a field a line if it is long."""
    short = json.dumps(value, ensure_ascii=False)
    if len(short) <= 100:
        return short
    fields = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
    return "{" + ",\n ".join(fields) + "}"


def _answers(operation: dict[str, Any]) -> Iterator[str]:
    rows, errors = [], []
    for status, answer in sorted(operation["responses"].items()):
        content = answer.get("content", {})
        if _PROBLEM in content:
            errors.append(code(status))
        else:
            bodies = {_type(about["schema"]) for about in content.values()}
            rows.append([status, answer["description"], ", ".join(sorted(bodies))])
    yield f"\n{table(['status', 'meaning', 'body'], rows)}\n\nErrors: {', '.join(errors)}.\n"


def _schema(name: str, schema: dict[str, Any]) -> str:
    about = f"\n### {name}\n\n{schema.get('description', '')}\n"
    required = schema.get("required", [])
    rows = [
        [
            code(field),
            _type(one),
            "required" if field in required else _default(one),
            one.get("description", ""),
        ]
        for field, one in schema.get("properties", {}).items()
    ]
    if not rows:
        return f"{about}\nType: {_type(schema)}\n"
    return f"{about}\n{table(['field', 'type', 'default', 'meaning'], rows)}\n"


def _default(schema: dict[str, Any]) -> str:
    return code(json.dumps(schema["default"])) if "default" in schema else ""


def _type(schema: dict[str, Any]) -> str:
    """Name the type of a schema, with its bounds; a component is a link."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_type(one) for one in schema[word])
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(json.dumps(one)) for one in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        kind = f"list of {_type(schema.get('items', {}))}" if schema.get("items") else "list"
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        kind = f"object of {_type(schema['additionalProperties'])}"
    elif schema.get("format"):
        kind = f"{kind} ({schema['format']})"
    bounds = [text.format(_number(schema[key])) for key, text in _BOUNDS if key in schema]
    return ", ".join([kind, *bounds])


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
