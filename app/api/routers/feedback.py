"""`POST /feedback`: append events to the log, each exactly once, each accepted separately."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any

import msgspec
import numpy as np
from fastapi import APIRouter
from msgspec import UNSET, DecodeError, Raw, UnsetType

from app.api import decoding, memory, schemas
from app.api.auth import Key, requires
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
from app.domain.work import pair_work
from app.errors import Backlog, Changed, Full, InvalidInput, NoSuchModel
from app.ingest.appender import Loaded, PendingEvent, Post, fingerprint, stored_bytes
from app.serving.served_model import ServedModel
from app.storage.batching import LARGE, SMALL, Held
from app.storage.keys import AHEAD_SECONDS
from app.storage.log import (
    APPENDED,
    NO_IMPRESSION,
    NOT_REPEATED,
    ONLY_CLICKS,
    OTHER_BODY,
    TOO_FAR_AHEAD,
    TOO_MANY_PAIRS,
    TOO_OLD,
    AppendResult,
    StoredImpression,
)

router = APIRouter(route_class=FastRoute, tags=["feedback"])

_WAIT = re.compile(rb"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,4})", re.IGNORECASE)
FEEDBACK_LIMIT = "request_id: this request has reached its feedback limit"
MODEL_REQUIRED = "model: required with your own request_id"
OVER_SHARE = (
    "this API key (without keys: this source) is over its share of the work of the last minute "
    "(SOLAR_SOURCE_SHARE); retry after 60 seconds"
)
RETRY = {"retry-after": "60"}
OVER_MEMORY = (
    "the store is nearly full, and this API key has stored more than its share; retry after 60 "
    "seconds"
)
#: The longest `Prefer: wait`.
MAX_WAIT_SECONDS = 60.0
#: Timeout of the store for a post; a retry is safe.
APPEND_SECONDS = 5.0
#: Size limit of the impressions of one part, in bytes of float32: 2 million feature values.
PART_BYTES = 8_000_000
#: Copies of an impression in memory while its record is appended: loaded, encoded, sent.
RECORD_COPIES = 3
#: The most bytes of earlier feedback on a request, a few thousand clicks: each record carries them.
MAX_ACCUMULATED_BYTES = 64_000


@dataclass(slots=True)
class Item:
    """One event: decoded, then pending, then appended; it can be refused at each step."""

    event: AnyEvent | None
    refused: Problem | None = None
    pending: PendingEvent | None = None
    result: AppendResult | None = None
    counted: tuple[str, int] | None = None  # its sender and work, in the quota of the sender
    most_events: int | None = None  # on one request
    clamps_examined: bool = False

    @property
    def admitted(self) -> bool:
        """Whether the event can be appended."""
        return self.pending is not None and self.refused is None


@router.post(
    "/feedback",
    operation_id="feedback",
    summary="Post feedback",
    status_code=202,
    dependencies=[requires("feedback")],
    response_model=None,
    responses=fast_answers(202, "FeedbackAnswer", *BODY_PROBLEMS, 404, 409, 410, 429, learnt=True),
    openapi_extra={"requestBody": FEEDBACK_BODIES, "parameters": [PREFER]},
)
async def post_feedback(service: FromState, call: FromRoute) -> Answer:
    """Append clicks, preferences or labels to the log of a model: one event, or a batch.

    Repeating an `event_id` is safe. Your own `request_id` also needs the `model`, in the event or
    next to `events`. `Prefer: wait=5` answers 200 once the feedback is learnt.
    """
    expect_json(call.headers)
    if len(call.body) > SMALL:
        memory.hold_decoded(call.body, call.held, element_bytes=72)
    items, single = _decode(call.body, service.settings.events)
    call.body = b""
    model = _model(items)
    if model is not None:
        cache = service.weight_cache
        if not cache.reachable:
            raise Problem(503, "the store is unreachable; retry after 1 second")
        quota = service.store_quota
        if quota is not None and not quota.admits_feedback(call.key.name, cache.memory_share):
            raise Problem(429, OVER_MEMORY, RETRY)
        try:
            await append_events(service, model, items, call)
            service.metrics.used(model)
        except NoSuchModel:
            raise _no_model(items) from None
        except TimeoutError:
            raise Problem(
                503, f"the store did not answer within {APPEND_SECONDS:g} s; retry after 1 second"
            ) from None
    if single and items[0].refused:
        _count(service, FeedbackAnswer(0, 0, 1, 0, []), items)
        return refusal(items[0].refused)
    return await _answer(service, model, items, _wait(call))


# ---- decode ----


def _decode(body: bytes, most: int) -> tuple[list[Item], bool]:
    """Decode the events of a body, and whether it is a single event."""
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
    """Decode an event of a batch; an event that names no model gets the batch's model."""
    try:
        event = schemas.decode_event(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Item(None, undecodable(error, schemas.EVENT_FIELDS))
    if model is not UNSET:
        unnamed = event.model is UNSET and _named_by_request(event) is None
        if unnamed and model != DEFAULT:
            event.model = model
        if _model_of(event) != model:
            raise Problem(422, "events: expected events of the batch's model only")
    return Item(event)


def _model(items: Sequence[Item]) -> str | None:
    """Return the model of all events; None if no event could be decoded."""
    models = {_model_of(item.event) for item in items if item.event is not None}
    if len(models) > 1:
        raise Problem(422, "events: expected events of one model; send one batch per model")
    return models.pop() if models else None


def _model_of(event: AnyEvent) -> str:
    """Return the model of an event: from its request_id, from `model`, or the default."""
    model = _named_by_request(event)
    if model is None:
        return DEFAULT if event.model is UNSET else event.model
    if event.model not in (UNSET, model):
        raise Problem(422, "model: expected the model of the request_id")
    return model


def _named_by_request(event: AnyEvent) -> str | None:
    """Return the model that a generated request_id names."""
    request = event.request_id
    generated = decoding.read_request_id(request) if isinstance(request, str) else None
    return generated.model if generated else None


# ---- append ----


async def append_events(service: Service, model: str, items: Sequence[Item], call: Call) -> None:
    """Append the events in their order: all at once, or in parts that fit into memory."""
    before, first = call.held.size, 0
    while first < len(items):
        part = list(items[first:])
        try:
            async with asyncio.timeout(APPEND_SECONDS):
                await _append_part(service, model, part, call)
        finally:
            call.held.keep(before)
        first += len(part)


async def _append_part(service: Service, model: str, part: list[Item], call: Call) -> None:
    """Append a part; retry once if the model was deleted and created again meanwhile."""
    before = call.held.size
    try:
        await _append_once(service, model, part, call)
    except NoSuchModel:
        call.held.keep(before)
        await service.weight_cache.load(model)
        await _append_once(service, model, part, call)


async def _append_once(service: Service, model: str, part: list[Item], call: Call) -> None:
    served, post = await service.resolve(model, partial(_resolve, service, part, call))
    if post is None:
        return
    admitted = [item for item in part if item.admitted]
    try:
        results = await service.appender.post((model, served.epoch), post)
    except (Backlog, Changed, Full, NoSuchModel):
        _give_back(service, admitted)
        raise
    except InvalidInput as error:  # the records are too large; earlier parts are stored
        _give_back(service, admitted)
        for item in admitted:
            item.refused = problem(error)
        return
    for item, result in zip(admitted, results, strict=True):
        item.result = result
        if result.outcome != APPENDED:
            _give_back(service, [item])
        if service.store_quota and result.outcome == APPENDED and item.pending is not None:
            service.store_quota.add(call.key.name, stored_bytes(item.pending))
        item.pending = None  # frees its documents
        item.refused = _refused(service, item, result.outcome)


async def _resolve(
    service: Service, part: list[Item], call: Call, served: ServedModel
) -> Post | None:
    """Build the post of all valid events with their impressions; None if no event is valid.

    `part` keeps the first events only, if the impressions of all do not fit into memory.
    """
    await _hold_documents(service, served, part, call.held)
    tenant, loaded = call.key.tenant, await _load_impressions(service, served, part, call.held)
    stored = {request: one for request, one in loaded.items() if one.is_open_to(tenant)}
    shown = {request: Impression.load(one.shown) for request, one in stored.items()}
    for item in part:
        if item.event is not None and item.refused is None:
            try:
                _build(service, served, item, call.key, shown, stored)
            except (InvalidInput, Problem) as error:
                item.refused = problem(error)
    _check_quota(service, part, call.key)
    pending = [item.pending for item in part if item.pending is not None and item.refused is None]
    return Post(pending, stored, _wait(call) > 0, tenant) if pending else None


async def _hold_documents(
    service: Service, served: ServedModel, part: Sequence[Item], held: Held
) -> None:
    """Hold the memory of the documents in the events; 413 if they have too many values."""
    given = [getattr(item.event, "documents", UNSET) for item in part]
    documents = [one for some in given if some is not UNSET for one in some]
    if documents:
        limits = service.settings
        numbers = decoding.feature_values(documents, served.config, limits)
        await memory.hold_rows(numbers, limits, held)


async def _load_impressions(
    service: Service, served: ServedModel, part: list[Item], held: Held
) -> dict[str, StoredImpression]:
    """Load the impressions of the first events, and remove the other events from `part`.

    Afterwards the memory of their records is held. A model that is not created yet has no
    impressions.
    """
    asked = [item.event.request_id for item in part if item.event is not None]
    requests = list(dict.fromkeys(one for one in asked if isinstance(one, str)))
    if not (requests and served.epoch):
        return {}
    before = held.size
    loaded = await load_first(service, served, requests, held)
    size = _shorten(part, requests[: loaded.count], loaded.impressions)
    held.keep(before + (RECORD_COPIES * size if size > SMALL else 0))
    if size > LARGE:
        await held.budget.turn(size)
    return loaded.impressions


async def load_first(
    service: Service, served: ServedModel, requests: Sequence[str], held: Held
) -> Loaded:
    """Load the impressions of the first requests, at least one.

    Small ones take one call. For others the first call returns the sizes, and the memory is held.
    """
    appender, key = service.appender, (served.name, served.epoch)
    loaded = await appender.load_small_impressions(key, requests, LARGE)
    if loaded.count == len(requests):
        return loaded
    most = min(sum(loaded.sizes), max(loaded.sizes[0], PART_BYTES))
    held.add(most)
    loaded = await appender.load_impressions(key, requests, most)
    while not loaded.count:  # the requests of other posts took the room
        loaded = await appender.load_impressions(key, requests, most)
    return loaded


def _shorten(
    part: list[Item], loaded: Sequence[str], impressions: Mapping[str, StoredImpression]
) -> int:
    """Keep the first events whose impressions are loaded; return the size of their records.

    A record carries the earlier clicks on its request, and they are stored after it once more.
    """
    size, clicks = 0, dict.fromkeys(loaded, 0)
    for at, item in enumerate(part):
        request = item.event.request_id if item.event is not None else None
        if not isinstance(request, str):
            continue
        found, before = impressions.get(request), clicks.get(request, 0)
        record = len(found.shown) + 2 * (len(found.accumulated) + 8 * before) if found else 0
        if request not in clicks or (at and size + record > PART_BYTES):
            del part[at:]
            break
        size += record
        clicks[request] = before + 1 + len(getattr(item.event, "clicked", ()))
    return size


def _build(
    service: Service,
    served: ServedModel,
    item: Item,
    key: Key,
    shown: dict[str, Impression],
    stored: dict[str, StoredImpression],
) -> None:
    """Build the pending event of an item; raises InvalidInput or a Problem if it is invalid."""
    event, limits = item.event, service.settings
    assert event is not None  # noqa: S101  # mypy
    given = "" if event.source is UNSET else event.source
    texts = [event.event_id, given, event.query_id]
    decoding.check_texts("event_id, source, query_id", texts, limits)
    source, request = _source(given, key), event.request_id
    documents = UNSET if isinstance(event, ClicksEvent) else event.documents
    about: dict[str, Any] = {
        "body": _posted(event, key), "time": decoding.since_1970(event.time),
        "pair_work": pair_work(served.config), "counts_abandoned": served.config.counts_abandoned,
    }  # fmt: skip
    decoder = FeedbackDecoder(served, limits, item.clamps_examined)
    if not isinstance(request, str):
        if documents is UNSET:
            raise InvalidInput("expected a request_id, or documents")
        item.pending = PendingEvent(decoder.on_documents(event, documents, source), **about)
        return
    if documents is not UNSET:
        raise InvalidInput("documents: expected documents or a request_id, not both")
    nothing = Feedback(event.event_id, "clicks", _NO_DOCUMENTS, query=request, source=source)
    if request not in shown:
        if not served.epoch:
            raise _no_impression(service, item)
        item.pending = PendingEvent(nothing, on_request=True, **about)
    elif len(stored[request].accumulated) > MAX_ACCUMULATED_BYTES:
        item.pending = PendingEvent(nothing, repeated_only=True, **about)
    else:
        built = decoder.on_impression(event, shown[request], source)
        about["shown"] = fingerprint(stored[request].shown)
        about["most_events"] = item.most_events
        about |= {"strategy": served.config.clicks, "most_pairs": decoder.most_pairs()}
        about["on_growth"] = service.clicked_lists.count_feedback
        if isinstance(event, ClicksEvent) and event.clicked:
            size, lists = len(stored[request].shown), service.clicked_lists
            keep = about["keep"] = lists.lifetime(size)
            about["on_first_click"] = partial(lists.count, size, keep)
        item.pending = PendingEvent(built, on_request=True, **about)


def _source(given: str, key: Key) -> str:
    """Return the source of feedback: with a key `KEY/given`, without keys as given."""
    if not key.digest:
        return given
    return f"{key.name}/{given}" if given else key.name


def _posted(event: AnyEvent, key: Key) -> bytes:
    """Return what distinguishes a repeated event from another one with its id."""
    sender = key.name if key.digest and event.source is UNSET else event.source
    return schemas.encode(["" if sender is UNSET else sender, event])


def _check_quota(service: Service, items: Sequence[Item], key: Key) -> None:
    """Refuse with 429 the events of a key that exceeds its share; without keys, of a source."""
    if service.source_quota is None:
        return
    senders: dict[str, list[Item]] = {}
    for item in items:
        if item.pending is not None and item.refused is None:
            sender = key.name if key.digest else item.pending.feedback.source
            senders.setdefault(sender, []).append(item)
    for sender, of_sender in senders.items():
        work = sum(item.pending.work for item in of_sender if item.pending is not None)
        if not service.source_quota.take(sender, work):
            for item in of_sender:
                item.refused = Problem(429, OVER_SHARE, RETRY)
            continue
        for item in of_sender:
            item.counted = (sender, item.pending.work) if item.pending is not None else None


def _give_back(service: Service, items: Sequence[Item]) -> None:
    """Do not count events that were not stored: refused or repeated ones take no work."""
    for item in items:
        if service.source_quota is not None and item.counted is not None:
            service.source_quota.give_back(*item.counted)
            item.counted = None


def _no_impression(service: Service, item: Item) -> Problem:
    """Build the answer to an expired request (410) or an unknown one (404)."""
    generated = decoding.read_request_id(str(item.event.request_id)) if item.event else None
    lifetime, clicked = service.settings.impression_seconds, service.settings.token_seconds
    if generated is not None and generated.time + lifetime <= time():
        kept = f"{lifetime:g} s, after a click at most {clicked:g} s"
        return Problem(410, f"request_id: the impression has expired, it is kept {kept}")
    if generated is None and item.event is not None and item.event.model is UNSET:
        return Problem(404, MODEL_REQUIRED)
    return Problem(404, "request_id: no impression is logged for this id")


def _refused(service: Service, item: Item, outcome: int) -> Problem | None:
    """Return why an event was refused, by the outcome of its append; None if it was not."""
    if outcome == NO_IMPRESSION:
        return _no_impression(service, item)
    if outcome == ONLY_CLICKS:
        lifetime = f"{service.settings.impression_seconds:g} s after the ranking"
        return Problem(
            410,
            f"request_id: labels and triplets are accepted for {lifetime}, later only clicks",
        )
    return Problem(422, _REFUSED[outcome]) if outcome in _REFUSED else None


def _no_model(items: Sequence[Item]) -> Exception:
    """Build the answer to an unknown model; the events may only lack its name."""
    events = [item.event for item in items if item.event is not None]
    own = any(
        event.model is UNSET and isinstance(event.request_id, str) and not _named_by_request(event)
        for event in events
    )
    return Problem(404, MODEL_REQUIRED) if own else NoSuchModel()


_NO_DOCUMENTS: Documents = np.zeros((0, 0), np.float32)
#: Why an event was refused, by the outcome of its append.
_REFUSED = {
    NOT_REPEATED: FEEDBACK_LIMIT,
    TOO_MANY_PAIRS: (
        "clicked: with what came before on this request these are more pairs than SOLAR_PAIRS or "
        "SOLAR_BACKLOG_WORK allow"
    ),
    OTHER_BODY: "event_id: already used with another body; use a new event_id",
    TOO_OLD: "time: before the deduplication window (SOLAR_DEDUPE_SECONDS); it may be in the log",
    TOO_FAR_AHEAD: f"time: expected at most {AHEAD_SECONDS:g} s ahead of the store's clock",
}


# ---- answer ----


async def _answer(service: Service, model: str | None, items: list[Item], wait: float) -> Answer:
    stored = [item.result for item in items if item.result is not None and item.refused is None]
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
        over = {item.refused.status for item in items if item.refused is not None} == {429}
        rejected = (
            Problem(429, OVER_SHARE, RETRY)
            if over
            else Problem(422, "events: no event was accepted; see errors")
        )
        return refusal(rejected, msgspec.to_builtins(received))
    status = 202
    if wait and model is not None:
        served = await service.weight_cache.reach(model, seq, wait)
        if served is not None:
            status, received.version = 200, served.version
    headers = {"preference-applied": "wait"} if status == 200 else {}
    return Answer(status, schemas.encode(received), headers=headers)


def _count(service: Service, received: FeedbackAnswer, items: Sequence[Item]) -> None:
    """Count the events by outcome; those of a source over its share count separately."""
    over = sum(item.refused is not None and item.refused.status == 429 for item in items)
    service.metrics.events("accepted", received.accepted)
    service.metrics.events("duplicates", received.duplicates)
    service.metrics.events("rejected", received.rejected - over)
    service.metrics.events("over-share", over)


def _shortened(errors: list[RefusedEvent]) -> list[RefusedEvent]:
    """Return the first errors that fit into an answer of 2 kB."""
    room, kept = 1600, []
    for one in errors:
        room -= 1 + len(schemas.encode(one))
        if room < 0:
            break
        kept.append(one)
    return kept


def _wait(call: Call) -> float:
    """Return the seconds of `Prefer: wait` (RFC 7240)."""
    preferred = _WAIT.search(call.headers.get(b"prefer", b""))
    return min(float(preferred[1]), MAX_WAIT_SECONDS) if preferred else 0.0
