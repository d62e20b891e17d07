"""`POST /feedback`: what users did → records in the log, each event once, each refused alone."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import time

import msgspec
import numpy as np
from fastapi import APIRouter
from msgspec import UNSET, DecodeError, Raw, UnsetType

from app.api import decoding, schemas
from app.api.auth import requires
from app.api.decoding import FeedbackDecoder
from app.api.dependencies import DEFAULT, FromRoute, FromState, Service
from app.api.errors import TITLES, Problem, problem, undecodable
from app.api.examples import FEEDBACK_BODIES, PREFER
from app.api.openapi import BODY_PROBLEMS, fast_answers
from app.api.routing import Answer, Call, FastRoute, expect_json, refusal
from app.api.schemas import AnyEvent, ClicksEvent, FeedbackAnswer, RefusedEvent
from app.domain.impressions import Impression
from app.domain.model import Documents
from app.domain.records import Feedback
from app.errors import InvalidInput, NoSuchModel
from app.ingest.appender import PendingEvent, Post, fingerprint
from app.serving.weight_cache import ServedModel
from app.storage.log import APPENDED, FORGOTTEN, OTHER_BODY, AppendResult, StoredImpression

router = APIRouter(route_class=FastRoute, tags=["feedback"])

_WAIT = re.compile(rb"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,4})", re.IGNORECASE)
MODEL_REQUIRED = "model: required with a request_id of your own"
#: `Prefer: wait` waits at most so many seconds.
LONGEST_WAIT = 60.0
#: How long the store may take for a post; posting it again is safe.
APPEND_SECONDS = 5.0
#: Bytes of what has come of a request: some thousand clicks. Each record carries them all.
LARGEST_SO_FAR = 64_000


@dataclass(slots=True)
class Item:
    """One event on its way: decoded, then pending, then in the log; or refused at any of these."""

    event: AnyEvent | None
    refused: Problem | None = None
    pending: PendingEvent | None = None
    became: AppendResult | None = None

    @property
    def admitted(self) -> bool:
        """Whether it can be appended."""
        return self.pending is not None and self.refused is None


@router.post(
    "/feedback",
    operation_id="feedback",
    summary="Post feedback",
    status_code=202,
    dependencies=[requires("feedback")],
    response_model=None,
    responses=fast_answers(202, "FeedbackAnswer", *BODY_PROBLEMS, 404, 410, 429, learnt=True),
    openapi_extra={"requestBody": FEEDBACK_BODIES, "parameters": [PREFER]},
)
async def post_feedback(service: FromState, call: FromRoute) -> Answer:
    """Append clicks, preferences or labels to the log of a model: one event, or many of one model.

    Repeating an `event_id` is safe. A `request_id` of your own needs the `model` too, in the event
    or beside `events`. `Prefer: wait=5` answers 200 once the feedback is learnt.
    """
    expect_json(call.headers)
    items, single = _decode(call.body, service.settings.events)
    model = _model(items)
    if model is not None:
        if not service.weight_cache.reachable:
            raise Problem(503, "the store cannot be reached")
        try:
            async with asyncio.timeout(APPEND_SECONDS):
                await _append(service, model, items, call)
        except NoSuchModel:
            raise _no_model(items) from None
        except TimeoutError:
            raise Problem(503, "the store takes too long; post it again") from None
    if single and items[0].refused:
        _count(service, FeedbackAnswer(0, 0, 1, 0, []), items)
        return refusal(items[0].refused)
    return await _answer(service, model, items, _wait(call))


# ---- decode ----


def _decode(body: bytes, most: int) -> tuple[list[Item], bool]:
    """The events of a body, and whether it is one bare event."""
    fields = schemas.BATCH_FIELDS
    try:
        events = schemas.decode_envelope(body).events
        if events is UNSET:
            fields = schemas.EVENT_FIELDS
            return [Item(schemas.decode_event(body))], True
        batch = schemas.decode_batch(body)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error, fields) from None
    if not 1 <= len(batch.events) <= most:
        raise Problem(422, f"events: expected 1 to {most}, got {len(batch.events)}")
    return [_decode_one(raw, batch.model) for raw in batch.events], False


def _decode_one(raw: Raw, model: str | UnsetType) -> Item:
    """An event of a batch; one that says nothing of its model gets that of the batch."""
    try:
        event = schemas.decode_event(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Item(None, undecodable(error, schemas.EVENT_FIELDS))
    if model is not UNSET:
        unnamed = event.model is UNSET and _named_by_request(event) is None
        if unnamed and model != DEFAULT:
            event.model = model
        if _model_of(event) != model:
            raise Problem(422, "events: expected all of the model that stands beside them")
    return Item(event)


def _model(items: Sequence[Item]) -> str | None:
    """The one model that all events are about; None if there is nothing to be stored."""
    models = {_model_of(item.event) for item in items if item.event is not None}
    if len(models) > 1:
        raise Problem(422, "events: expected all of one model")
    return models.pop() if models else None


def _model_of(event: AnyEvent) -> str:
    """The model of an event: that of its request_id, the one it names, or the default."""
    ours = _named_by_request(event)
    if ours is None:
        return DEFAULT if event.model is UNSET else event.model
    if event.model not in (UNSET, ours):
        raise Problem(422, "model: expected that of the request_id")
    return ours


def _named_by_request(event: AnyEvent) -> str | None:
    """The model that an event's request_id names, if it is one of ours."""
    request = event.request_id
    ours = decoding.read_request_id(request) if isinstance(request, str) else None
    return ours.model if ours else None


# ---- append ----


async def _append(service: Service, model: str, items: list[Item], call: Call) -> None:
    """Append what can be; once more if the model was deleted, and made again, since we looked."""
    try:
        await _append_once(service, model, items, call)
    except NoSuchModel:
        await service.weight_cache.look(model)
        await _append_once(service, model, items, call)


async def _append_once(service: Service, model: str, items: list[Item], call: Call) -> None:
    served, post = await service.resolve(model, partial(_resolve, service, items, call))
    if post is None:
        return
    results = await service.appender.post((model, served.epoch), post)
    going = [item for item in items if item.admitted]
    for item, became in zip(going, results, strict=True):
        item.became = became
        if became.outcome == OTHER_BODY:
            item.refused = Problem(422, _OTHER_BODY)
        elif became.outcome == FORGOTTEN:
            item.refused = _forgotten(service, item)


async def _resolve(
    service: Service, items: list[Item], call: Call, served: ServedModel
) -> Post | None:
    """What is posted of the events, with the impressions that they are about; None if nothing."""
    recalled = await _recall(service, served, items)
    shown = {request: Impression.load(one.shown) for request, one in recalled.items()}
    key_name = call.key.name if call.key.digest else ""
    for item in items:
        if item.event is not None and item.refused is None:
            try:
                _build(service, served, item, key_name, shown, recalled)
            except (InvalidInput, Problem) as error:
                item.refused = problem(error)
    _check_quota(service, items)
    pending = [item.pending for item in items if item.pending is not None and item.refused is None]
    return Post(pending, recalled, _wait(call) > 0) if pending else None


async def _recall(
    service: Service, served: ServedModel, items: Sequence[Item]
) -> dict[str, StoredImpression]:
    """The impressions of all requests that the events name; a model still to be made has none."""
    named = (item.event.request_id for item in items if item.event is not None)
    requests = sorted({request for request in named if isinstance(request, str)})
    if not (requests and served.epoch):
        return {}
    return await service.appender.recall((served.name, served.epoch), requests)


def _build(
    service: Service,
    served: ServedModel,
    item: Item,
    key_name: str,
    shown: dict[str, Impression],
    recalled: dict[str, StoredImpression],
) -> None:
    """Turn an event into what is posted; InvalidInput or a Problem says why not."""
    event, limits = item.event, service.settings
    assert event is not None  # noqa: S101  # mypy
    source = key_name if event.source is UNSET else event.source
    texts = [event.event_id, source, event.query_id]
    decoding.check_texts("event_id, source, query_id", texts, limits)
    body, request = schemas.encode([source, event]), event.request_id
    documents = UNSET if isinstance(event, ClicksEvent) else event.documents
    decoder = FeedbackDecoder(served, limits)
    if not isinstance(request, str):
        if documents is UNSET:
            raise InvalidInput("expected a request_id, or documents")
        item.pending = PendingEvent(decoder.on_documents(event, documents, source), body=body)
        return
    if documents is not UNSET:
        raise InvalidInput("documents: expected these or a request_id, not both")
    if request in shown:
        if len(recalled[request].accumulated) > LARGEST_SO_FAR:
            raise InvalidInput("request_id: expected one with less feedback so far")
        built = decoder.on_impression(event, shown[request], source)
        seen = fingerprint(recalled[request].shown)
        item.pending = PendingEvent(built, on_request=True, body=body, shown=seen)
    elif served.epoch:  # the append knows whether this is a repeated one
        nothing = Feedback(event.event_id, "clicks", _NO_DOCUMENTS, query=request, source=source)
        item.pending = PendingEvent(nothing, on_request=True, body=body)
    else:
        raise _forgotten(service, item)


def _check_quota(service: Service, items: Sequence[Item]) -> None:
    """429 for the events of a source that is over its share."""
    sources: dict[str, list[Item]] = {}
    for item in items:
        if item.pending is not None and item.refused is None:
            sources.setdefault(item.pending.feedback.source, []).append(item)
    for source, theirs in sources.items():
        if not service.quota.take(source, len(theirs)):
            for item in theirs:
                item.refused = Problem(429, "source: over its share", {"retry-after": "60"})


def _forgotten(service: Service, item: Item) -> Problem:
    """Too long ago (410), or never there (404)."""
    ours = decoding.read_request_id(str(item.event.request_id)) if item.event else None
    if ours is not None and ours.time + service.settings.impression_seconds <= time():
        return Problem(410, "request_id: its list has expired")
    if ours is None and item.event is not None and item.event.model is UNSET:
        return Problem(404, MODEL_REQUIRED)
    return Problem(404, "request_id: no list is remembered under it")


def _no_model(items: Sequence[Item]) -> Exception:
    """What is wrong where there is no such model: perhaps only that none was named."""
    events = [item.event for item in items if item.event is not None]
    own = any(
        event.model is UNSET and isinstance(event.request_id, str) and not _named_by_request(event)
        for event in events
    )
    return Problem(404, MODEL_REQUIRED) if own else NoSuchModel()


_NO_DOCUMENTS: Documents = np.zeros((0, 0), np.float32)
_OTHER_BODY = "event_id: was posted before with another body; expected a new one"


# ---- answer ----


async def _answer(service: Service, model: str | None, items: list[Item], wait: float) -> Answer:
    stored = [item.became for item in items if item.became is not None and item.refused is None]
    accepted = sum(one.outcome == APPENDED for one in stored)
    seq = max((one.seq for one in stored), default=0)
    errors = [
        RefusedEvent(at, item.refused.status, TITLES[item.refused.status], item.refused.detail)
        for at, item in enumerate(items)
        if item.refused is not None
    ]
    received = FeedbackAnswer(
        accepted, len(stored) - accepted, len(errors), seq, _shortened(errors)
    )
    _count(service, received, items)
    if not stored:
        told = Problem(422, "events: expected at least one that can be accepted")
        return refusal(told, msgspec.to_builtins(received))
    status = 202
    if wait and model is not None:
        served = await service.weight_cache.reach(model, seq, wait)
        if served is not None:
            status, received.version = 200, served.version
    headers = {"preference-applied": "wait"} if status == 200 else {}
    return Answer(status, schemas.encode(received), headers=headers)


def _count(service: Service, received: FeedbackAnswer, items: Sequence[Item]) -> None:
    """Tell what became of the events; those of a source over its share are counted apart."""
    over = sum(item.refused is not None and item.refused.status == 429 for item in items)
    service.metrics.events("accepted", received.accepted)
    service.metrics.events("duplicates", received.duplicates)
    service.metrics.events("rejected", received.rejected - over)
    service.metrics.events("over-share", over)


def _shortened(errors: list[RefusedEvent]) -> list[RefusedEvent]:
    """As many as fit into an answer of 2 kB."""
    room, kept = 1600, []
    for one in errors:
        room -= 1 + len(schemas.encode(one))
        if room < 0:
            break
        kept.append(one)
    return kept


def _wait(call: Call) -> float:
    """How long the caller would wait to see the feedback learnt (RFC 7240)."""
    asked = _WAIT.search(call.headers.get(b"prefer", b""))
    return min(float(asked[1]), LONGEST_WAIT) if asked else 0.0
