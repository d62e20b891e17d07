"""The calls of the service: how each is sent, and how its answer is read. No IO."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from solar_client import duels, encoding, models
from solar_client.encoding import JSON, JudgedData
from solar_client.errors import InvalidArgument, Problem, UnexpectedAnswer, service_error

T = TypeVar("T")

_MODEL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REQUEST = re.compile(
    rf"({_MODEL.pattern})[.][0-9a-f]{{8}}-[0-9a-f]{{4}}-7[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-"
    r"[0-9a-f]{12}"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body and `Retry-After` (in seconds) of an answer."""

    status: int
    body: bytes
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and how to read its answer.

    `repeatable`: it may be sent again if a kept connection was closed before the answer began.
    """

    method: str
    path: str
    decode: Callable[[bytes], T]
    body: bytes | Sequence[Path] = b""
    content_type: str = ""
    repeatable: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    def read(self, answer: Answer) -> T:
        """Return the value of an answer, or raise its error."""
        if answer.status >= 400:
            raise service_error(read_problem(answer), answer.retry_after)
        if answer.status >= 300:
            raise UnexpectedAnswer(f"{self.path}: expected an answer of SOLAR, got a redirect")
        try:
            return self.decode(answer.body)
        except (msgspec.MsgspecError, ValueError):
            raise UnexpectedAnswer(
                f"{self.path}: expected an answer of SOLAR, got {answer.status} with another body"
            ) from None


class _ProblemBody(msgspec.Struct):
    title: str = ""
    detail: str = ""
    instance: str = ""


_decode_problem = msgspec.json.Decoder(_ProblemBody).decode


def read_problem(answer: Answer) -> Problem:
    """Return the problem details of an answer; without them, its status.

    >>> read_problem(Answer(502, b"<html>"))
    Problem(status=502, title='', detail='', instance='')
    """
    try:
        body = _decode_problem(answer.body)
    except (msgspec.MsgspecError, ValueError):
        body = _ProblemBody()
    return Problem(answer.status, body.title, body.detail, body.instance)


def check_model(name: str) -> str:
    """Return the name of a model; InvalidArgument if it cannot be one."""
    if not isinstance(name, str) or not _MODEL.fullmatch(name):
        raise InvalidArgument("model: expected 1 to 64 letters, digits, - and _")
    return name


def model_of(request_id: str) -> str | None:
    """Return the model that a generated request id names; None for an id of the caller.

    >>> model_of("books.01970000-0000-7000-8000-000000000000"), model_of("page-5")
    ('books', None)
    """
    found = _REQUEST.fullmatch(request_id)
    return found[1] if found else None


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(kind).decode


def _nothing(_body: bytes) -> None:
    return None


_decode_ranking = _decoder(models.Ranking)
_decode_model = _decoder(models.Model)
_decode_models = _decoder(models.ModelPage)
_decode_versions = _decoder(models.VersionList)
_decode_version = _decoder(models.Version)
_decode_record = _decoder(models.AppendedRecord)
_decode_job = _decoder(models.Job)
_decode_jobs = _decoder(models.JobPage)
_decode_followers = _decoder(duels.FollowerList)
_decode_duel = _decoder(duels.Duel)
decode_feedback = _decoder(models.FeedbackAnswer)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


# ---- /rank and /feedback ----


def read_ranking(body: bytes) -> models.Ranking:
    """Decode an answer of /rank; without a logged impression it has no request id."""
    ranking = _decode_ranking(body)
    return ranking if ranking.logged else msgspec.structs.replace(ranking, request_id=None)


def rank(content_type: str, body: bytes) -> Call[models.Ranking]:
    """POST /rank."""
    return Call("POST", "rank", read_ranking, body, content_type)


def feedback(body: bytes) -> Call[models.FeedbackAnswer]:
    """POST /feedback."""
    return Call("POST", "feedback", decode_feedback, body, JSON)


def submitted_order(
    ids: Sequence[str], model: str, query_id: str, top_k: int | None, reason: str
) -> models.Ranking:
    """Return the documents as submitted, for a service that gave no answer.

    >>> submitted_order(["a", "b"], "books", "", 1, "timeout").ids
    ['a']
    """
    shown = tuple(models.RankedDocument(one, at, 0.0) for at, one in enumerate(ids[:top_k], 1))
    return models.Ranking(
        request_id=None, query_id=query_id, model=model, version=None, explored=False,
        logged=False, degraded=True, documents=shown, reason=reason,
    )  # fmt: skip


# ---- models ----


def _model_path(name: str, *rest: str) -> str:
    return "/".join(["models", check_model(name), *rest])


def create_model(
    name: str, features: Sequence[str] | int, settings: Mapping[str, Any]
) -> Call[models.Model]:
    """PUT /models/{name}."""
    body = encoding.as_json({"features": features, **settings}, "settings")
    return Call("PUT", _model_path(name), _decode_model, body, JSON)


def get_model(name: str) -> Call[models.Model]:
    """GET /models/{name}."""
    return Call("GET", _model_path(name), _decode_model)


def list_models(after: str | None) -> Call[models.ModelPage]:
    """GET /models."""
    return Call("GET", f"models?{urlencode(_given(after=after))}".rstrip("?"), _decode_models)


def update_model(name: str, settings: Mapping[str, Any]) -> Call[models.AppendedRecord]:
    """PATCH /models/{name}."""
    body = encoding.as_json(settings, "settings")
    return Call("PATCH", _model_path(name), _decode_record, body, JSON, repeatable=False)


def delete_model(name: str, *, followers: bool = False) -> Call[None]:
    """DELETE /models/{name}."""
    path = _model_path(name) + ("?followers=delete" if followers else "")
    return Call("DELETE", path, _nothing, repeatable=False)


def list_versions(name: str) -> Call[list[models.Version]]:
    """GET /models/{name}/versions."""
    return Call("GET", _model_path(name, "versions"), lambda body: _decode_versions(body).versions)


def create_version(name: str, version_name: str) -> Call[models.Version]:
    """POST /models/{name}/versions."""
    body = encoding.as_json({"name": version_name})
    path = _model_path(name, "versions")
    return Call("POST", path, _decode_version, body, JSON, repeatable=False)


def delete_version(name: str, version_name: str) -> Call[None]:
    """DELETE /models/{name}/versions/{version_name}."""
    path = _model_path(name, "versions", quote(version_name, safe=""))
    return Call("DELETE", path, _nothing, repeatable=False)


def rollback(name: str, version: int | str) -> Call[models.AppendedRecord]:
    """POST /models/{name}/rollback."""
    body = encoding.as_json({"version": version})
    path = _model_path(name, "rollback")
    return Call("POST", path, _decode_record, body, JSON, repeatable=False)


# ---- followers and duels ----


def create_follower(
    name: str, leader: str, start_at: int | str, cold: bool, settings: Mapping[str, Any]
) -> Call[models.Model]:
    """PUT /models/{name} with `follows`."""
    fields = {"follows": check_model(leader), **_start(start_at, cold), **settings}
    body = encoding.as_json(fields, "settings")
    return Call("PUT", _model_path(name), _decode_model, body, JSON)


def create_followers(
    leader: str, grid: Mapping[str, Sequence[Any]], start_at: int | str, cold: bool
) -> Call[list[duels.Follower]]:
    """POST /models/{leader}/followers."""
    values = {name: list(some) for name, some in grid.items()}
    body = encoding.as_json({"grid": values, **_start(start_at, cold)}, "grid")
    return Call("POST", _model_path(leader, "followers"), _read_followers, body, JSON)


def _start(start_at: int | str, cold: bool) -> dict[str, Any]:
    return {"from": start_at, "start": "cold" if cold else "weights"}


def _read_followers(body: bytes) -> list[duels.Follower]:
    return _decode_followers(body).followers


def list_followers(leader: str) -> Call[list[duels.Follower]]:
    """GET /models/{leader}/followers."""
    return Call("GET", _model_path(leader, "followers"), _read_followers)


def begin_duel(name: str, challenger: str | int, options: Mapping[str, Any]) -> Call[duels.Duel]:
    """PUT /models/{name}/duel."""
    body = encoding.as_json({"challenger": _side(challenger), **_given(**options)})
    return Call("PUT", _model_path(name, "duel"), _decode_duel, body, JSON, repeatable=False)


def _side(challenger: str | int) -> duels.Challenger:
    """Return a challenger as the service names it: a number is a kept version."""
    return {"version": challenger} if isinstance(challenger, int) else challenger


def get_duel(name: str) -> Call[duels.Duel]:
    """GET /models/{name}/duel."""
    return Call("GET", _model_path(name, "duel"), _decode_duel)


def end_duel(name: str) -> Call[duels.Duel]:
    """DELETE /models/{name}/duel."""
    return Call("DELETE", _model_path(name, "duel"), _decode_duel, repeatable=False)


def promote(
    name: str, *, force: bool, challenger: str | int | None, duel: int | None
) -> Call[models.AppendedRecord]:
    """POST /models/{name}/duel/promote."""
    side = None if challenger is None else _side(challenger)
    body = encoding.as_json({"force": force, **_given(challenger=side, duel=duel)})
    path = _model_path(name, "duel", "promote")
    return Call("POST", path, _decode_record, body, JSON, repeatable=False)


# ---- jobs ----


def warm_start(name: str, data: JudgedData, options: Mapping[str, Any]) -> Call[models.Job]:
    """POST /models/{name}/warm-start."""
    content_type, body = encoding.judged_body(data)
    path, given = _model_path(name, "warm-start"), _given(**options)
    if content_type == JSON and given and isinstance(body, bytes):
        body = body[:-1] + b"," + encoding.as_json(given, "options")[1:]
    elif given:
        path = f"{path}?{urlencode(given)}"
    return Call("POST", path, _decode_job, body, content_type, repeatable=False)


def _job_path(job: str, *rest: str) -> str:
    return "/".join(["jobs", quote(job, safe=""), *rest])


def get_job(job: str) -> Call[models.Job]:
    """GET /jobs/{id}."""
    return Call("GET", _job_path(job), _decode_job)


def list_jobs(after: str | None) -> Call[models.JobPage]:
    """GET /jobs."""
    return Call("GET", f"jobs?{urlencode(_given(after=after))}".rstrip("?"), _decode_jobs)


def cancel_job(job: str) -> Call[models.Job]:
    """DELETE /jobs/{id}."""
    return Call("DELETE", _job_path(job), _decode_job, repeatable=False)


def restart_job(job: str) -> Call[models.Job]:
    """POST /jobs/{id}/start."""
    return Call("POST", _job_path(job, "start"), _decode_job, repeatable=False)
