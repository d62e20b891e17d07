"""What is said when something cannot be done: `application/problem+json`, small, no echo."""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.errors import Backlog, BadBlob, Changed, ModelExists, NoSuchModel, SolarError, StoreError

PROBLEM_MEDIA_TYPE = "application/problem+json"
#: Characters of a message, at most: an answer stays below 2 kB.
LONGEST = 400

TITLES = {
    400: "The body cannot be read",
    401: "An API key is needed",
    403: "This key may not do that",
    404: "There is no such thing",
    405: "This path has no such method",
    408: "The body took too long",
    409: "That is already otherwise",
    410: "The request is too long ago",
    413: "The body is too large",
    415: "The body is of a type that is not understood",
    422: "The body is not what was expected",
    429: "Too much from this source",
    503: "Not now",
}


class Problem(Exception):
    """An answer that says what is wrong."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail[:LONGEST]
        self.headers = {**(headers or {})}
        if status in (429, 503):
            self.headers.setdefault("retry-after", "1")

    def body(self, more: Mapping[str, Any]) -> bytes:
        """As it is sent."""
        title = TITLES.get(self.status, "It cannot be done")
        return msgspec.json.encode(
            {
                "type": "about:blank",
                "title": title,
                "status": self.status,
                "detail": self.detail,
                **more,
            }
        )


def problem(error: Exception) -> Problem:
    """The answer to an error of ours; for any other one an answer that gives nothing away."""
    if isinstance(error, Problem):
        return error
    for kind, (status, detail) in _KNOWN.items():
        if isinstance(error, kind):
            return Problem(status, detail)
    if isinstance(error, SolarError | ValueError):
        return Problem(422, str(error))
    return Problem(503, "something went wrong here")


_KNOWN: dict[type[Exception], tuple[int, str]] = {
    NoSuchModel: (404, "model: expected one that exists"),
    ModelExists: (409, "model: expected a new name, got one that exists"),
    Backlog: (503, "more records wait to be learnt than may"),
    Changed: (503, "the request got other feedback meanwhile"),
    StoreError: (503, "the store cannot do its work now"),
    BadBlob: (503, "the model's state is damaged; it is being rebuilt"),
}


def too_slow(seconds: float) -> Problem:
    """The answer to a body that does not come in time."""
    return Problem(408, f"expected the whole body in {seconds:g} s", {"connection": "close"})


def undecodable(error: Exception) -> Problem:
    """The answer to a body that is no JSON or msgpack (400), or not of the right shape (422)."""
    if not isinstance(error, msgspec.ValidationError):
        return Problem(400, "expected a whole, valid body in UTF-8 without NaN or Infinity")
    said = str(error)
    if "unknown field" in said:  # it would name it
        place = said.rpartition(" - at `")[2].rstrip("`") if " - at `" in said else "$"
        return Problem(422, f"{place}: expected only fields that there are")
    if said.startswith("Invalid"):  # value, enum value: it would repeat it
        said = "Expected one of the allowed values" + said[said.find(" - at ") :]
    return Problem(422, said)
