"""Errors as `application/problem+json` (RFC 9457): at most 2 kB, names repeated, values never."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.domain.names import listed, unknown_name
from app.errors import (
    Backlog,
    BadBlob,
    Changed,
    InvalidInput,
    ModelExists,
    NoSuchModel,
    StoreError,
)

PROBLEM_MEDIA_TYPE = "application/problem+json"
#: Characters of a place.
LONGEST_PLACE = 100
#: Characters of a detail, at most: an answer stays below 2 kB.
LONGEST_DETAIL = 400

#: The phrases of RFC 9110 (and RFC 6585 for 429); those of http.HTTPStatus change with Python.
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
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Problem(Exception):
    """An answer that says what is wrong, and what to do about it."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail[:LONGEST_DETAIL]
        self.headers = {**(headers or {})}
        if status in (429, 503):
            self.headers.setdefault("retry-after", "1")

    def body(self, more: Mapping[str, Any]) -> bytes:
        """The problem as it is sent, with more members if there are any."""
        title = TITLES.get(self.status, "Error")
        known = {"type": "about:blank", "title": title, "status": self.status}
        return msgspec.json.encode({**known, "detail": self.detail, **more})


def problem(error: Exception) -> Problem | None:
    """The problem that an error is; None for a bug, of which nothing is told."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidInput):
        return Problem(422, str(error))
    for kind, (status, detail) in _KNOWN.items():
        if isinstance(error, kind):
            return Problem(status, detail)
    return None


_KNOWN: dict[type[Exception], tuple[int, str]] = {
    NoSuchModel: (404, "model: no model of this name; create it with PUT /models/{name}"),
    ModelExists: (409, "model: this name is taken by a model with other settings"),
    Backlog: (503, "the backlog of records that wait to be learnt is full; post again later"),
    Changed: (503, "the request got other feedback at the same moment; post again"),
    StoreError: (503, "the store is unavailable; try again"),
    BadBlob: (503, "the model's state is damaged and is being rebuilt; try again later"),
}


def too_slow(seconds: float) -> Problem:
    """The answer to a body that does not come in time."""
    return Problem(408, f"body: expected all of it within {seconds:g} s", {"connection": "close"})


def too_large(most: int) -> Problem:
    """The answer to a body over its limit."""
    return Problem(413, f"body: expected at most {most} bytes", {"connection": "close"})


def unreadable() -> Problem:
    """The answer to a body that is no JSON or msgpack."""
    return Problem(400, "body: expected valid JSON or msgpack in UTF-8, without NaN or Infinity")


#: Where msgspec found something: fields of ours, and places in lists and objects.
_PLACE = re.compile(r" - at `\$((?:\.\w+|\[(?:\d+|\.\.\.)])*)`$", re.ASCII)
_NAMED = re.compile(r"`(.*)`", re.DOTALL)


def undecodable(error: Exception, fields: Mapping[str, Sequence[str]], within: str = "") -> Problem:
    """The answer to a body that msgspec refuses: unreadable (400), or of another shape (422).

    `fields` are the field names of the objects of a body, by place: "" for the body itself,
    "documents" for each of its documents. `within` is where the body stands in a larger one.
    """
    if not isinstance(error, msgspec.ValidationError):
        return unreadable()
    said = str(error)
    found = _PLACE.search(said)
    place, said = (found[1].lstrip("."), said[: found.start()]) if found else ("", said)
    named = _NAMED.search(said)
    if said.startswith("Object contains unknown field") and named:
        known = fields.get(re.sub(r"\[[^]]*]", "", place).lstrip("."), ())
        said = unknown_name("field", named[1], known)
    elif said.startswith("Object missing required field") and named:
        said = f"missing field {named[1]}"
    elif said.startswith("Invalid"):  # a tag: msgspec would repeat the value
        said = f"expected {listed(fields.get('type', ()))}"
    place = within + ("." if within and place and place[0] != "[" else "") + place
    said = said[:1].lower() + said[1:].replace("`", "")
    return Problem(422, f"{place[:LONGEST_PLACE]}: {said}" if place else said)


#: Parts of pydantic's places that are no fields.
_TAGS = ("names", "count")


def invalid(errors: Sequence[Any], root: Sequence[str] = ("body", "query", "path")) -> Problem:
    """The answer to what pydantic refuses: its first error, without the value."""
    first = errors[0]
    parts = [part for part in first["loc"] if part not in (*root, *_TAGS)]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    said = first["msg"].replace("Input should be", "expected").replace("'", "")
    if first["type"] == "missing":
        said = "required"
    elif first["type"] == "too_long":
        said = f"expected at most {first['ctx']['max_length']}"
    place = place.lstrip(".")[:LONGEST_PLACE]
    return Problem(422, f"{place}: {said}" if place else said)
