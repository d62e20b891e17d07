"""The OpenAPI document: FastAPI's document plus the schemas of msgspec and of problems."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api import schemas
from app.api.admin_schemas import ProblemBody, ShardsBody, TrainingOptions
from app.api.descriptions import describe, describe_parameter
from app.api.errors import PROBLEM_MEDIA_TYPE, TITLES
from app.api.question_schemas import question_components

DESCRIPTION = (
    "A streaming online-ranking service. It ranks documents, learns from every pair of documents, "
    "and measures its rankings. Errors are `application/problem+json`; `detail` names the field "
    "and the remedy. Every path answers 400, 408 or 431 to headers that are invalid, slow or large."
)
TAGS = [
    {"name": "ranking", "description": "Rank the documents of a query."},
    {"name": "feedback", "description": "Post clicks, preferences and labels."},
    {"name": "models", "description": "Create, read, tune, roll back and delete models."},
    {"name": "duels", "description": "Followers of a model, and which of two sides ranks better."},
    {"name": "jobs", "description": "Train a model on judged data: a warm start."},
    {"name": "operations", "description": "Health and metrics."},
]
#: Problem statuses: of paths that need a key, of open paths, and of paths with a body.
COMMON_PROBLEMS = (401, 403, 421, 431, 500, 503)
OPEN_PROBLEMS = (403, 421, 431, 500)
BODY_PROBLEMS = (400, 408, 413, 415, 422, *COMMON_PROBLEMS)
_REFERENCE = "#/components/schemas/"
_RETRY_AFTER = {"description": "seconds to wait before a retry", "schema": {"type": "integer"}}
_REQUEST_ID = {"description": "id of the request in the log", "schema": {"type": "string"}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the error answers of a path."""
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": f"{_REFERENCE}ProblemBody"}}}
    answers: dict[int | str, dict[str, Any]] = {
        status: {"description": TITLES[status], "content": content} for status in sorted(statuses)
    }
    for status in {429, 503} & set(statuses):
        answers[status]["headers"] = {"retry-after": _RETRY_AFTER}
    return answers


def fast_answers(
    status: int, schema: str, *errors: int, learnt: bool = False
) -> dict[int | str, dict[str, Any]]:
    """Describe all answers of a FastRoute; msgspec has the schema."""
    content = {"application/json": {"schema": {"$ref": f"{_REFERENCE}{schema}"}}}
    answers: dict[int | str, dict[str, Any]] = {
        status: {"description": HTTPStatus(status).phrase, "content": content}
    }
    if learnt:
        answers[200] = {"description": "Learnt within `Prefer: wait`", "content": content}
    return answers | problems(*errors)


def document(app: FastAPI) -> dict[str, Any]:
    """Build the document for `/openapi.json`, once per application."""
    if not app.openapi_schema:
        built = get_openapi(
            title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes,
            tags=TAGS,
        )  # fmt: skip
        parts = built.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):  # every 422 is a problem
            parts.pop(unused, None)
        parts |= schemas.components() | question_components()
        parts["WarmStartBody"] = _warm_start()
        parts["ShardsBody"] = ShardsBody.model_json_schema()
        parts["ProblemBody"] = _problem()
        for name, part in parts.items():
            describe(name, part)
        for path in built["paths"].values():
            for operation in path.values():
                _complete(operation)
        app.openapi_schema = built
    return app.openapi_schema


def _complete(operation: dict[str, Any]) -> None:
    """Add what FastAPI cannot know, and remove answers that the service never sends."""
    if "security" in operation:
        scope = operation["security"][0]["key"][0]
        operation["description"] += f"\n\nRequired scope of the API key: `{scope}`."
        operation["security"].append({})  # a service without keys needs none
    for parameter in operation.get("parameters", ()):
        describe_parameter(parameter)
        _remove_default(parameter)
    answers = operation["responses"]
    if "application/json" in answers.get("422", {}).get("content", {}):  # FastAPI's own 422
        del answers["422"]
    for status, answer in answers.items():
        if answer["description"] == "Successful Response":
            answer["description"] = HTTPStatus(int(status)).phrase
        answer.setdefault("headers", {})["x-request-id"] = _REQUEST_ID


def _remove_default(parameter: dict[str, Any]) -> None:
    """Move a default to the description: clients send defaults, which a JSON body forbids."""
    schema = parameter["schema"]
    given = schema.pop("default", None)
    if given not in (None, ""):
        parameter["description"] = f"{parameter.get('description', '')} (default: {given})".strip()
    for one in schema.pop("anyOf", ()):
        if one != {"type": "null"}:  # a query parameter is omitted, never null
            schema.update(one)


def _problem() -> dict[str, Any]:
    """Build the schema of a problem; msgspec has the schema of a batch's refused events."""
    schema = ProblemBody.model_json_schema(mode="serialization")
    schema["properties"]["errors"]["items"] = {"$ref": f"{_REFERENCE}RefusedEvent"}
    return schema


def _warm_start() -> dict[str, Any]:
    """Build the schema of a warm start: pydantic's options plus msgspec's judged queries."""
    schema = TrainingOptions.model_json_schema()
    queries = {"type": "array", "minItems": 1, "items": {"$ref": f"{_REFERENCE}JudgedQuery"}}
    schema["properties"]["queries"] = queries
    return {**schema, "title": "WarmStartBody", "required": ["queries"]}
