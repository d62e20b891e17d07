"""The OpenAPI document, and `/docs`: a page made of it that needs nothing from elsewhere."""

import json
from functools import cache
from html import escape
from typing import Any

from app.api import schemas
from app.api.errors import PROBLEM_MEDIA_TYPE, TITLES
from app.api.routes import ROUTES
from app.api.routing import JSON, Answer, Route

_OPS = {
    "/healthz": "The process lives.",
    "/readyz": "It can do its work.",
    "/metrics": "For Prometheus.",
}
_NAME, _UUID7 = "[A-Za-z0-9_-]{1,64}", "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
_PLACES = {
    "name": {"pattern": f"^{_NAME}$"},
    "id": {"pattern": f"^{_NAME}[.]{_UUID7}[0-9a-f]{{12}}$"},
}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}  # fmt: skip


@cache
def document() -> dict[str, Any]:
    """What `/openapi.json` says."""
    _, parts = schemas.components()
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    for path, says in _OPS.items():
        paths[path] = {"get": {"summary": says, "responses": _responses((200, 503), None)}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "SOLAR",
            "version": "1",
            "description": "A streaming online-ranking service. Where an object has a key twice, "
            "the last one counts.",
        },
        "paths": paths,
        "components": {
            "schemas": {**parts, "Problem": _PROBLEM},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    said: dict[str, Any] = {
        "summary": route.says,
        "description": f"Needs the scope `{route.scope}` where keys are needed.",
        "security": [{"key": []}, {}],
        "responses": _responses(route.statuses, route.answer),
    }
    said["parameters"] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", **schema}}
        for name, schema in _PLACES.items()
        if f"{{{name}}}" in route.path
    ]
    if route.bodies:
        said["requestBody"] = {"required": True, "content": _content(route)}
    return said


def _content(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for media_type, names in route.bodies.items():
        if not names:
            found[media_type] = {"schema": {"type": "string"}}
            continue
        references = [{"$ref": f"#/components/schemas/{name}"} for name in names]
        found[media_type] = {"schema": references[0] if len(names) == 1 else {"anyOf": references}}
        if media_type == JSON and route.example is not None:
            found[media_type]["example"] = route.example
    return found


def _responses(statuses: tuple[int, ...], answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in statuses:
        if status < 400:
            content = {JSON: {"example": answer}} if answer is not None else {}
            found[str(status)] = {
                "description": "Done",
                **({"content": content} if content else {}),
            }
        else:
            problem = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
            found[str(status)] = {"description": TITLES[status], "content": problem}
    return found


@cache
def page() -> bytes:
    """`/docs` as HTML."""
    parts = [_section(route) for route in ROUTES]
    ops = "".join(f"<li><code>GET {path}</code>: {says}</li>" for path, says in _OPS.items())
    return _PAGE.format(routes="".join(parts), ops=ops).encode()


def _section(route: Route) -> str:
    title = f"<h2><code>{route.method} {escape(route.path)}</code></h2>"
    answers = ", ".join(map(str, route.statuses))
    shown = [
        title,
        f"<p>{escape(route.says)} <small>Scope: {route.scope}. Answers: {answers}.</small></p>",
    ]
    for title, example in (("Body", route.example), ("Answer", route.answer)):
        if example is not None:
            shown.append(f"<h3>{title}</h3><pre>{escape(json.dumps(example, indent=1))}</pre>")
    return "".join(shown)


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>SOLAR</title>
<style>body{{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em}}
pre{{background:#f4f4f4;padding:.7em;overflow:auto}}h2{{margin-top:2em}}h3{{margin:0}}</style>
<h1>SOLAR</h1><p>Every body and answer with its schema: <a href="/openapi.json">/openapi.json</a>.
Keys go into <code>Authorization: Bearer …</code>.</p>{routes}
<h2>Without a key</h2><ul>{ops}</ul></html>"""


async def _docs() -> Answer:
    return Answer(200, page(), "text/html; charset=utf-8")


async def _openapi() -> Answer:
    return Answer(200, schemas.encode(document()))


PATHS = {"/docs": _docs, "/openapi.json": _openapi}
