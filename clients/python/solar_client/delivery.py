"""What became of a batch of events: read from the answer of /feedback. No IO."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from solar_client.calls import Answer, decode_feedback, read_problem
from solar_client.events import Event
from solar_client.models import FeedbackAnswer, RefusedEvent

#: Statuses that ask for a retry. 408 is the service's word for a slow network; 502 and 504 are a
#: proxy's for a service that is down.
RETRIED = (408, 429, 502, 503, 504)
TOO_LARGE = 413
UNKNOWN_REASON = "the service rejected the event and gave no reason"


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event that the service refused; it is not sent again."""

    event_id: str
    event: dict[str, Any]
    status: int
    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """The answer for a batch. With a `reason`, the events in `again` wait for the backoff."""

    acknowledged: int = 0
    duplicates: int = 0
    rejected: Sequence[RejectedEvent] = ()
    again: Sequence[Event] = ()
    reason: str = ""
    retry_after: float = 0.0
    too_large: bool = False


def no_answer(events: Sequence[Event], reason: str) -> Delivery:
    """The batch got no answer: it may be stored or not, so it is sent again unchanged."""
    return Delivery(again=events, reason=reason)


def read_delivery(events: Sequence[Event], answer: Answer) -> Delivery:
    """Read what became of a batch."""
    if answer.status in RETRIED:
        return Delivery(again=events, reason=str(answer.status), retry_after=answer.retry_after)
    if answer.status == TOO_LARGE and len(events) > 1:
        return Delivery(again=events, too_large=True)
    try:
        found = decode_feedback(answer.body)
    except (msgspec.MsgspecError, ValueError):
        if answer.status < 300:
            return no_answer(events, "unexpected answer")
        problem = read_problem(answer)
        why = RefusedEvent(0, problem.status, problem.title, problem.detail)
        return Delivery(rejected=[rejected(event, why) for event in events])
    return _by_event(events, found)


def _by_event(events: Sequence[Event], found: FeedbackAnswer) -> Delivery:
    """Separate the events of a batch that was read.

    The answer lists as many errors as fit into 2 kB. If it lists fewer than it counts, all events
    that it does not list are sent again: those that were stored are then duplicates.
    """
    errors = {one.index: one for one in found.errors if one.index < len(events)}
    final = {at: one for at, one in errors.items() if one.status not in RETRIED}
    refused = [rejected(events[at], one) for at, one in final.items()]
    if found.rejected > len(errors):
        again = [event for at, event in enumerate(events) if at not in final]
        if not final and len(again) == 1:
            unknown = RefusedEvent(0, 422, "", UNKNOWN_REASON)
            return Delivery(rejected=[rejected(again[0], unknown)])
        return Delivery(rejected=refused, again=again, too_large=not final)
    again = [events[at] for at in sorted(errors.keys() - final.keys())]
    reason = str(errors[min(errors.keys() - final.keys())].status) if again else ""
    return Delivery(found.accepted + found.duplicates, found.duplicates, refused, again, reason)


def rejected(event: Event, why: RefusedEvent) -> RejectedEvent:
    """Describe a refused event for the caller."""
    body: dict[str, Any] = msgspec.json.decode(event.body)
    return RejectedEvent(event.id, body, why.status, why.title, why.detail)
