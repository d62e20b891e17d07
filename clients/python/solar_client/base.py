"""What `Solar` and `AsyncSolar` share: arguments to calls and events, and the fallback of rank."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from solar_client import calls, encoding, events
from solar_client.calls import Call
from solar_client.encoding import Document, SupportsArray
from solar_client.errors import (
    JobFailed,
    SolarError,
    TimedOut,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from solar_client.events import About, Event, EventFields, Preference, Stamp
from solar_client.models import Job, Ranking
from solar_client.queue import Counters

RANK_SECONDS = 0.2
CALL_SECONDS = 30.0
UPLOAD_SECONDS = 3600.0
FLUSH_SECONDS = 10.0
POLL_SECONDS = 0.2  # between two looks at a job
#: A job is looked at again for so long while the service gives no answer.
OUTAGE_SECONDS = 60.0


def new_event_id() -> str:
    """Return 128 random bits, of the system: no two processes have the same, also after a fork."""
    return os.urandom(16).hex()


@dataclass(frozen=True, slots=True)
class RankRequest:
    """A call of /rank, and what the submitted order is made of."""

    call: Call[Ranking]
    ids: list[str]
    model: str
    query_id: str
    top_k: int | None

    def submitted_order(self, error: SolarError) -> Ranking:
        """Return the documents as submitted."""
        return calls.submitted_order(self.ids, self.model, self.query_id, self.top_k, str(error))


class SolarBase(ABC):
    """The parts of a client that do no IO."""

    def __init__(self, model: str, source: str | None) -> None:
        self._model, self._source = calls.check_model(model), source
        self._ignored = self._degraded = 0

    @abstractmethod
    def _put(self, event: Event) -> None:
        """Queue an event."""

    @property
    @abstractmethod
    def counters(self) -> Counters:
        """Counts of events and of degraded rankings."""

    def _forget_counts(self) -> None:
        self._ignored = self._degraded = 0

    # ---- feedback ----

    def click(
        self,
        ranking: About,
        clicked: str | Sequence[str],
        *,
        gains: Mapping[str, float | str] | None = None,
        examined: int | None = None,
        model: str | None = None,
        query_id: str = "",
        source: str | None = None,
        time: datetime | int | None = None,
        event_id: str | None = None,
    ) -> str | None:
        """Queue the clicks of a user on a ranking; return the id of the event.

        `ranking` is the answer of `rank`, or its request id. Name the `model` with a request id of
        your own. A ranking without a request id is ignored, counted, and None is returned.

        `gains` are numbers from 0 to 10, or names of actions of the model such as "purchase", by
        document; 1 if omitted. `examined` is how many documents from the top the user has seen.
        """
        fields = EventFields(model, query_id, source, time, event_id)
        content = events.clicks(clicked, gains, examined)
        return self._queue_event("clicks", ranking, content, fields)

    def label(
        self,
        ranking: About,
        labels: Mapping[str, float],
        *,
        documents: Iterable[Document] | None = None,
        model: str | None = None,
        query_id: str = "",
        source: str | None = None,
        time: datetime | int | None = None,
        event_id: str | None = None,
    ) -> str | None:
        """Queue relevance labels, 0 to 30, by document id; return the id of the event.

        They are about a ranking, or, if `ranking` is None, about `documents` with their features.
        """
        fields = EventFields(model, query_id, source, time, event_id)
        return self._queue_event("labels", ranking, events.labels(labels, documents), fields)

    def prefer(
        self,
        ranking: About,
        preferences: Iterable[Preference],
        *,
        documents: Iterable[Document] | None = None,
        model: str | None = None,
        query_id: str = "",
        source: str | None = None,
        time: datetime | int | None = None,
        event_id: str | None = None,
    ) -> str | None:
        """Queue pairs (preferred, other) or (preferred, other, weight), by document id.

        They are about a ranking, or, if `ranking` is None, about `documents` with their features.
        """
        fields = EventFields(model, query_id, source, time, event_id)
        content = events.preferences(preferences, documents)
        return self._queue_event("triplets", ranking, content, fields)

    def _queue_event(
        self, kind: str, about: About, content: dict[str, Any], fields: EventFields
    ) -> str | None:
        if fields.source is None and self._source is not None:
            fields = EventFields(
                fields.model, fields.query_id, self._source, fields.time, fields.event_id
            )
        stamp = Stamp(fields.event_id or new_event_id(), time.monotonic(), time.time())
        event = events.make_event(kind, about, content, fields, self._model, stamp)
        if event is None:
            self._ignored += 1
            return None
        self._put(event)
        return event.id

    # ---- rank ----

    def _rank_request(
        self,
        documents: Sequence[Document] | Sequence[str],
        features: SupportsArray | Sequence[Sequence[float]] | None,
        model: str | None,
        query_id: str,
        top_k: int | None,
        options: dict[str, Any],
    ) -> RankRequest:
        model = self._model if model is None else calls.check_model(model)
        fields: dict[str, Any] = {"model": model}
        if query_id:
            fields["query_id"] = query_id
        if top_k is not None:
            fields["top_k"] = top_k
        fields.update(options)
        content_type, body, ids = encoding.rank_body(documents, features, fields)
        return RankRequest(calls.rank(content_type, body), ids, model, query_id, top_k)

    def _fall_back(self, request: RankRequest, error: SolarError) -> Ranking:
        self._degraded += 1
        return request.submitted_order(error)


def rank_options(
    request_id: str | None, explore: bool | None, pinned: Sequence[str], explain: bool, log: bool,
    min_seq: int | None, version: int | str | None, viewer: str,
) -> dict[str, Any]:  # fmt: skip
    """Return the options of /rank that differ from their defaults."""
    given = {
        "request_id": request_id, "explore": explore, "pinned": list(pinned) or None,
        "explain": explain or None, "log": None if log else False, "min_seq": min_seq,
        "version": version, "viewer": viewer or None,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def duel_options(
    share: float | None, alpha: float | None, max_lists: int | None, promote: bool | None
) -> dict[str, Any]:
    """Return the options of a duel that differ from their defaults."""
    given = {"share": share, "alpha": alpha, "max_lists": max_lists, "promote": promote}
    return {name: value for name, value in given.items() if value is not None}


def finished(job: Job) -> bool:
    """Whether a job is done; JobFailed if it failed or was cancelled."""
    if job.state in ("failed", "cancelled"):
        raise JobFailed(f"job {job.id}: {job.state}: {job.error or 'stopped on request'}")
    return job.state == "done"


def not_finished(job: Job, timeout: float | None) -> TimedOut:
    """The error of a job that is still running."""
    return TimedOut(f"job {job.id}: not done within {timeout:g} s, it goes on")


def is_outage(error: SolarError) -> bool:
    """Whether the same call may succeed later."""
    return isinstance(error, Unreachable | Unavailable | TooManyRequests)
