"""Events of feedback: each gets its id when it is made, so that a retry is the same event."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from solar_client.calls import check_model, model_of
from solar_client.encoding import Document, as_json, plain_documents
from solar_client.errors import InvalidArgument
from solar_client.models import Ranking

#: (preferred, other) or (preferred, other, weight), by document id.
Preference: TypeAlias = tuple[str, str] | tuple[str, str, float]
#: A ranking, or the request id of one; None or "" if the ranking has none.
About: TypeAlias = Ranking | str | None


@dataclass(slots=True)
class Event:
    """An event as it is sent: encoded once, with its id."""

    id: str
    model: str
    body: bytes
    queued: float
    number: int = 0


@dataclass(frozen=True, slots=True)
class Stamp:
    """A new event's id, and the time: of a monotonic clock, and in seconds since 1970."""

    id: str
    now: float
    since_1970: float


@dataclass(frozen=True, slots=True)
class EventFields:
    """The fields that all events may have."""

    model: str | None = None
    query_id: str = ""
    source: str | None = None
    time: datetime | int | None = None
    event_id: str | None = None


def make_event(
    kind: str,
    about: About,
    content: Mapping[str, Any],
    fields: EventFields,
    default_model: str,
    stamp: Stamp,
) -> Event | None:
    """Make an event; None if it is about a ranking without a request id.

    An event with documents gets its time: the service then refuses a retry that comes so late that
    it no longer knows the id. Other events expire with their ranking.
    """
    request = about.request_id if isinstance(about, Ranking) else about
    given = content.get("documents") is not None
    if not request and not given:
        return None
    if request and given:
        raise InvalidArgument("documents: expected documents or a ranking, not both")
    model = _model(about, request or "", fields.model, default_model)
    body: dict[str, Any] = {"event_id": fields.event_id or stamp.id, "type": kind}
    if request:
        body["request_id"] = request
    body.update(content)
    if fields.query_id:
        body["query_id"] = fields.query_id
    if fields.source is not None:
        body["source"] = fields.source
    if fields.time is not None or given:
        body["time"] = fields.time if fields.time is not None else int(1e3 * stamp.since_1970)
    return Event(body["event_id"], model, as_json(body, kind), stamp.now)


def _model(about: About, request: str, given: str | None, default: str) -> str:
    """Return the model of an event: the ranking's, or the one that the request id names."""
    named = about.model if isinstance(about, Ranking) else model_of(request)
    if named is None:
        return check_model(given or default)
    if given not in (None, named):
        raise InvalidArgument(f"model: expected {named}, the model of the ranking, got {given}")
    return named


def clicks(
    clicked: str | Sequence[str],
    gains: Mapping[str, float | str] | None = None,
    examined: int | None = None,
) -> dict[str, Any]:
    """The clicked documents, in the order of the clicks, and what is known besides."""
    found: dict[str, Any] = {"clicked": [clicked] if isinstance(clicked, str) else list(clicked)}
    if gains:
        found["gains"] = dict(gains)
    if examined is not None:
        found["examined"] = examined
    return found


def labels(labels: Mapping[str, float], documents: Iterable[Document] | None) -> dict[str, Any]:
    """Relevance labels by document id."""
    return _with_documents({"labels": dict(labels)}, documents)


def preferences(
    preferences: Iterable[Preference], documents: Iterable[Document] | None
) -> dict[str, Any]:
    """Pairs of a preferred document and another one."""
    return _with_documents({"triplets": [list(one) for one in preferences]}, documents)


def _with_documents(
    content: dict[str, Any], documents: Iterable[Document] | None
) -> dict[str, Any]:
    return content if documents is None else {**content, "documents": plain_documents(documents)}
