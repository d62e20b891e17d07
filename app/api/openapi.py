"""The OpenAPI document: FastAPI's, with the schemas of msgspec and of problems merged in."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api import schemas
from app.api.admin_schemas import ProblemBody, TrainingOptions
from app.api.errors import PROBLEM_MEDIA_TYPE, TITLES

DESCRIPTION = (
    "A streaming online-ranking service: it ranks, learns from every pair of documents, and "
    "measures itself. Errors are `application/problem+json`; `detail` names the field and the "
    "remedy."
)
TAGS = [
    {"name": "ranking", "description": "Rank the documents of a query."},
    {"name": "feedback", "description": "Post what users did with a ranking."},
    {"name": "models", "description": "Create, read, tune, roll back and delete models."},
    {"name": "jobs", "description": "Train a model on judged data: a warm start."},
    {"name": "operations", "description": "Health and metrics."},
]
#: Problems of every path with a key, of every path, and of paths with a body.
COMMON_PROBLEMS = (401, 403, 500, 503)
OPEN_PROBLEMS = (403, 500)
BODY_PROBLEMS = (400, 408, 413, 415, 422, *COMMON_PROBLEMS)
_REFERENCE = "#/components/schemas/"
_RETRY_AFTER = {"description": "seconds to wait", "schema": {"type": "integer"}}
_REQUEST_ID = {"description": "the request in the service's log", "schema": {"type": "string"}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a path."""
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
    """All answers of a FastRoute, whose schema is msgspec's."""
    content = {"application/json": {"schema": {"$ref": f"{_REFERENCE}{schema}"}}}
    answers: dict[int | str, dict[str, Any]] = {status: {"description": "Done", "content": content}}
    if learnt:
        answers[200] = {"description": "Learnt within `Prefer: wait`", "content": content}
    return answers | problems(*errors)


def document(app: FastAPI) -> dict[str, Any]:
    """What `/openapi.json` says."""
    if not app.openapi_schema:
        made = get_openapi(
            title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes,
            tags=TAGS,
        )  # fmt: skip
        parts = made.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):  # every 422 is a problem
            parts.pop(unused, None)
        parts |= schemas.components()
        parts["WarmStartBody"] = _warm_start()
        parts["ProblemBody"] = _problem()
        for path in made["paths"].values():
            for operation in path.values():
                _complete(operation)
        app.openapi_schema = made
    return app.openapi_schema


def _complete(operation: dict[str, Any]) -> None:
    """Say what FastAPI cannot know, and leave out what it adds and no answer has."""
    if "security" in operation:
        scope = operation["security"][0]["key"][0]
        operation["description"] += f"\n\nScope of the key: `{scope}`."
        operation["security"].append({})  # a service without keys needs none
    for parameter in operation.get("parameters", ()):
        _leave_out_default(parameter)
    answers = operation["responses"]
    if "application/json" in answers.get("422", {}).get("content", {}):  # ours is a problem
        del answers["422"]
    for answer in answers.values():
        answer.setdefault("headers", {})["x-request-id"] = _REQUEST_ID


def _leave_out_default(parameter: dict[str, Any]) -> None:
    """Clients send the defaults that they know; beside a JSON body no option is allowed."""
    schema = parameter["schema"]
    given = schema.pop("default", None)
    if given is not None:
        parameter["description"] = f"{parameter.get('description', '')} (default: {given})".strip()
    for one in schema.pop("anyOf", ()):
        if one != {"type": "null"}:  # a parameter is left out, never null
            schema.update(one)


def _problem() -> dict[str, Any]:
    """A problem; that of a batch lists its events, which msgspec has the schema of."""
    made = ProblemBody.model_json_schema(mode="serialization")
    made["properties"]["errors"]["items"] = {"$ref": f"{_REFERENCE}RefusedEvent"}
    return made


def _warm_start() -> dict[str, Any]:
    """The options, which pydantic reads, beside the judged queries, which msgspec reads."""
    made = TrainingOptions.model_json_schema()
    queries = {"type": "array", "minItems": 1, "items": {"$ref": f"{_REFERENCE}JudgedQuery"}}
    made["properties"]["queries"] = queries
    return {**made, "title": "WarmStartBody", "required": ["queries"]}
