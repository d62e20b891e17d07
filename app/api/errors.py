"""Errors as `application/problem+json` (RFC 9457): at most 2 kB, with names but no values."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.domain.names import listed, unknown_name
from app.errors import (
    Backlog,
    BadBlob,
    Changed,
    Full,
    HasFollowers,
    InvalidInput,
    IsFollower,
    ModelExists,
    NewerFormat,
    NoSuchModel,
    NoSuchVersion,
    NotReplicated,
    OtherTenant,
    Overloaded,
    StoreError,
    TooManyModels,
    TooManyStreams,
    TooManyVersions,
    TrialFailed,
    Unavailable,
    VersionExists,
    WorkBacklog,
)

PROBLEM_MEDIA_TYPE = "application/problem+json"
#: The most characters of a location in a body, and of a detail: answers stay below 2 kB.
MAX_LOCATION = 100
MAX_DETAIL = 400

#: The titles of RFC 9110 (RFC 6585 for 429 and 431, RFC 4918 for 507); those of http.HTTPStatus
#: change with Python.
TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    507: "Insufficient Storage",
}


class Problem(Exception):
    """An error answer: its status, the cause and the remedy."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail[:MAX_DETAIL]
        self.headers = {**(headers or {})}
        if status in (429, 503):
            self.headers.setdefault("retry-after", "1")

    def body(self, more: Mapping[str, Any]) -> bytes:
        """Encode the problem, with additional members."""
        title = TITLES.get(self.status, "Error")
        known = {"type": "about:blank", "title": title, "status": self.status}
        return msgspec.json.encode({**known, "detail": self.detail, **more})


def problem(error: Exception) -> Problem | None:
    """Convert an error to a problem; None for a bug, whose details stay in the log."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidInput):
        return Problem(422, str(error))
    if isinstance(error, IsFollower):
        return Problem(409, str(error))
    if isinstance(error, NewerFormat):
        return Problem(503, f"stored data was {error}; upgrade the service, then retry")
    for kind, (status, detail) in _KNOWN.items():
        if isinstance(error, kind):
            return Problem(status, detail)
    return None


_KNOWN: dict[type[Exception], tuple[int, str]] = {
    NoSuchModel: (404, "model: no model of this name; create it with PUT /models/{name}"),
    ModelExists: (409, "model: exists with other settings; choose another name"),
    HasFollowers: (
        409,
        "model: has followers; delete them first, or with it by ?followers=delete",
    ),
    NoSuchVersion: (
        404,
        "version: not kept; GET /models/{name}/versions lists the kept versions",
    ),
    VersionExists: (409, "name: the model has a version of this name; choose another name"),
    TooManyVersions: (409, "name: the model has ten named versions; delete one of them"),
    OtherTenant: (409, "request_id: belongs to another tenant; choose a different id"),
    Overloaded: (503, "too many large requests (SOLAR_INFLIGHT_BYTES); retry after 1 second"),
    TooManyStreams: (503, "this worker has 50 open streams; close one, or retry later"),
    TrialFailed: (503, "the process of the trial is busy or has failed; retry after 1 second"),
    TooManyModels: (
        409,
        "model: the limit of models is reached (SOLAR_MODELS); delete a model or raise it",
    ),
    WorkBacklog: (
        503,
        "the backlog limit of work is reached (SOLAR_BACKLOG_WORK); retry after 1 second",
    ),
    Backlog: (503, "the backlog limit is reached (SOLAR_BACKLOG); retry after 1 second"),
    Changed: (503, "the request was ranked or got feedback meanwhile; retry after 1 second"),
    Full: (503, "the store is at its memory limit; retry later"),
    NotReplicated: (503, "no replica has confirmed the write yet; retry with the same event_id"),
    Unavailable: (503, "the store is unreachable or not ready; retry after 1 second"),
    StoreError: (503, "the store failed to complete the request; retry after 1 second"),
    BadBlob: (503, "the model's state is damaged and is being rebuilt; retry later"),
}


def too_slow(seconds: float) -> Problem:
    """Build the answer to a body that arrives too slowly."""
    detail = f"body: expected the complete body within {seconds:g} s"
    return Problem(408, detail, {"connection": "close"})


def too_large(most: int) -> Problem:
    """Build the answer to a body over the size limit."""
    return Problem(413, f"body: expected at most {most} bytes", {"connection": "close"})


def unreadable() -> Problem:
    """Build the answer to a body that is neither JSON nor msgpack."""
    return Problem(400, "body: expected valid JSON or msgpack in UTF-8, without NaN or Infinity")


#: The location in a msgspec message: field names, and indexes of lists and objects.
_LOCATION = re.compile(r" - at `\$((?:\.\w+|\[(?:\d+|\.\.\.)])*)`$", re.ASCII)
_NAMED = re.compile(r"`(.*)`", re.DOTALL)


def undecodable(error: Exception, fields: Mapping[str, Sequence[str]], within: str = "") -> Problem:
    """Build the answer to a body that msgspec refuses: unreadable (400), or invalid (422).

    `fields` are the known field names by location: "" for the body itself, "documents" for each of
    its documents. `within` is the location of this part in the whole body.
    """
    if not isinstance(error, msgspec.ValidationError):
        return unreadable()
    text = str(error)
    found = _LOCATION.search(text)
    where, text = (found[1].lstrip("."), text[: found.start()]) if found else ("", text)
    named = _NAMED.search(text)
    if text.startswith("Object contains unknown field") and named:
        known = fields.get(re.sub(r"\[[^]]*]", "", where).lstrip("."), ())
        text = unknown_name("field", named[1], known)
    elif text.startswith("Object missing required field") and named:
        text = f"missing field {named[1]}"
    elif where == "time":
        text = "expected RFC 3339 with an offset, or milliseconds since 1970 as an integer"
    elif text.startswith("Invalid"):  # a tag: msgspec would repeat the value
        text = f"expected {listed(fields.get('type', ()))}"
    where = within + ("." if within and where and where[0] != "[" else "") + where
    text = text[:1].lower() + text[1:].replace("`", "")
    return Problem(422, f"{where[:MAX_LOCATION]}: {text}" if where else text)


#: Parts of pydantic's locations that are not fields.
_TAGS = ("names", "count", "by number", "by name", "a version", "a model", "a follower")


def invalid(errors: Sequence[Any], root: Sequence[str] = ("body", "query", "path")) -> Problem:
    """Build the answer to input that pydantic refuses: its first error, without the value."""
    first = errors[0]
    parts = [part for part in first["loc"] if part not in (*root, *_TAGS)]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    text = first["msg"].replace("Input should be", "expected").replace("'", "")
    if first["type"] == "missing":
        text = "required"
    elif first["type"] == "too_long":
        text = f"expected at most {first['ctx']['max_length']}"
    where = where.lstrip(".")[:MAX_LOCATION]
    return Problem(422, f"{where}: {text}" if where else text)
