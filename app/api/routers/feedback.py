"""`POST /feedback`: what users did → records in the log, each event once, each refused alone."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import time

import msgspec
import numpy as np
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType

from app.api import decoding, schemas
from app.api.calls import Answer, Call, refusal
from app.api.dependencies import DEFAULT, Service
from app.api.errors import Problem, problem, undecodable
from app.api.schemas import AnyEvent, Clicks, Labels, Triplets
from app.domain.impressions import Impression
from app.domain.model import Documents, Positions
from app.domain.records import Feedback
from app.errors import NoSuchModel
from app.ingest.appender import PendingEvent, Post, fingerprint
from app.ranking.clicks import STRATEGIES
from app.ranking.limits import LEAST, MOST
from app.serving.weight_cache import ServedModel
from app.storage.log import APPENDED, FORGOTTEN, OTHER_BODY, AppendResult, StoredImpression

_WAIT = re.compile(rb"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,4})", re.IGNORECASE)
#: `Prefer: wait` waits at most so many seconds.
LONGEST_WAIT = 60.0
#: How long the store may take for a post; posting it again is safe.
STORE_SECONDS = 5.0
#: Bytes of what has come of a request: some thousand clicks. Each record carries them all.
MOST_SO_FAR = 64_000


class Refused(Struct):
    """Why an event of a batch was not stored."""

    index: int
    status: int
    title: str


class Received(Struct):
    """The answer to /feedback."""

    accepted: int
    duplicates: int
    rejected: int
    seq: int
    errors: list[Refused]
    version: int | UnsetType = UNSET


@dataclass(slots=True)
class Item:
    """One event on its way: what it is, or why it is refused, and then what became of it."""

    event: AnyEvent | None
    refused: Problem | None = None
    posted: PendingEvent | None = None
    became: AppendResult | None = None


async def feedback(service: Service, call: Call) -> Answer:
    """Read the events, build their records, append them in one call, answer for each."""
    call.expect_json()
    items, single = _read(call, service.settings.events)
    model = _model(items)
    if model is not None:
        if not service.weight_cache.reachable:
            raise Problem(503, "the store cannot be reached")
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await _store_once_or_twice(service, model, items, call)
        except TimeoutError:
            raise Problem(503, "the store takes too long; post it again") from None
    if single and items[0].refused:
        _count(service, Received(0, 0, 1, 0, []), items)
        return refusal(items[0].refused)
    return await _answer(service, model, items, _wait(call))


async def _store_once_or_twice(service: Service, model: str, items: list[Item], call: Call) -> None:
    source, waits = call.key.name if call.key.digest else "", _wait(call) > 0
    try:
        await _store(service, model, items, source, waits=waits)
    except NoSuchModel:  # deleted, perhaps created again, since we looked
        await service.weight_cache.look(model)
        await _store(service, model, items, source, waits=waits)


def _read(call: Call, most: int) -> tuple[list[Item], bool]:
    try:
        events = schemas.decode_envelope(call.body).events
        if events is UNSET:
            return [Item(schemas.decode_event(call.body))], True
        events = schemas.decode_batch(call.body).events
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error) from None
    if not 1 <= len(events) <= most:
        raise Problem(422, f"events: expected 1 to {most}, got {len(events)}")
    return [_read_one(raw) for raw in events], False


def _read_one(raw: Raw) -> Item:
    try:
        return Item(schemas.decode_event(raw))
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Item(None, undecodable(error))


def _model(items: Sequence[Item]) -> str | None:
    """The one model that all events are about; None if there is nothing to be stored."""
    models = {_model_of(item.event) for item in items if item.event is not None}
    if len(models) > 1:
        raise Problem(422, "events: expected all of one model")
    return models.pop() if models else None


def _model_of(event: AnyEvent) -> str:
    request = event.request_id
    ours = decoding.read_request_id(request) if isinstance(request, str) else None
    named = DEFAULT if event.model is UNSET else event.model
    if ours is None:
        return named
    if event.model is not UNSET and event.model != ours.model:
        raise Problem(422, "model: expected that of the request_id")
    return ours.model


async def _store(
    service: Service, model: str, items: list[Item], default_source: str, *, waits: bool
) -> None:
    """Build what can be built and append it; what cannot is refused, each for itself."""
    serving = await service.serving(model)
    recalled = await _recall(service, serving, items)
    builder = _Builder(service, serving, recalled, default_source)
    for item in items:
        if item.event is not None and item.refused is None:
            builder.build(item)
    _check_shares(service, items)
    going = [item for item in items if item.posted is not None and item.refused is None]
    if not serving.epoch:  # a `default` still to be made has answered no request
        for item in going:
            if item.posted is not None and item.posted.on_request:
                item.refused = builder.forgotten(item)
        going = [item for item in going if item.refused is None]
        if going:
            serving = await service.made(serving)
    posted = [item.posted for item in going if item.posted is not None]
    post = Post(posted, recalled, waits)
    became = await service.appender.post((model, serving.epoch), post) if posted else []
    for item, appended in zip(going, became, strict=True):
        item.became = appended
        item.refused = builder.refusal(item)


async def _recall(
    service: Service, serving: ServedModel, items: Sequence[Item]
) -> dict[str, StoredImpression]:
    requests = sorted(
        {
            item.event.request_id
            for item in items
            if item.event is not None and isinstance(item.event.request_id, str)
        }
    )
    if not requests:
        return {}
    return await service.appender.recall((serving.name, serving.epoch), requests)


def _check_shares(service: Service, items: Sequence[Item]) -> None:
    """429 for the events of a source that is over its share."""
    sources: dict[str, list[Item]] = {}
    for item in items:
        if item.posted is not None and item.refused is None:
            sources.setdefault(item.posted.feedback.source, []).append(item)
    for source, theirs in sources.items():
        if not service.shares.take(source, len(theirs)):
            for item in theirs:
                item.refused = Problem(429, "source: over its share", {"retry-after": "60"})


class _Builder:
    """Events → feedback, as the model sees it."""

    def __init__(
        self,
        service: Service,
        serving: ServedModel,
        recalled: dict[str, StoredImpression],
        default_source: str,
    ) -> None:
        self._limits, self._ttl = service.settings, service.settings.impression_seconds
        self._serving, self._recalled, self._source = serving, recalled, default_source
        self._shown = {request: Impression.load(one.shown) for request, one in recalled.items()}

    def build(self, item: Item) -> None:
        """Turn an event into what is posted, or say why not."""
        try:
            item.posted = self._posted(item)
        except (ValueError, Problem) as error:
            item.refused = problem(error)

    def _posted(self, item: Item) -> PendingEvent:
        event = item.event
        assert event is not None  # noqa: S101  # mypy
        source = self._source if event.source is UNSET else event.source
        decoding.check_texts("event_id, source, query_id", [event.event_id, source, event.query_id],
                         self._limits)  # fmt: skip
        body = schemas.encode([source, event])
        documents = UNSET if isinstance(event, Clicks) else event.documents
        request = event.request_id
        if isinstance(request, str):
            if documents is not UNSET:
                raise ValueError("documents: expected these or a request_id, not both")
            return self._on_request(event, request, source, body)
        if documents is UNSET:
            raise ValueError("expected a request_id, or documents")
        slate = decoding.of_documents(documents, self._serving, self._limits)
        own = Impression(tuple(slate.ids), slate.documents, np.zeros(0, np.int64))
        return PendingEvent(self._feedback(event, own, None, event.query_id, source), body=body)

    def _on_request(self, event: AnyEvent, request: str, source: str, body: bytes) -> PendingEvent:
        shown = self._shown.get(request)
        if shown is None:  # the append knows whether this is a repeated one
            nothing = Feedback(
                event.event_id, "clicks", _NO_DOCUMENTS, query=request, source=source
            )
            return PendingEvent(nothing, on_request=True, body=body)
        if len(self._recalled[request].accumulated) > MOST_SO_FAR:
            raise ValueError("request_id: expected one with less feedback so far")
        built = self._feedback(event, shown, shown.submitted, request, source)
        built = replace(built, odds=shown.odds, swaps=shown.swaps)
        seen = fingerprint(self._recalled[request].shown)
        return PendingEvent(built, on_request=True, body=body, shown=seen)

    def _feedback(
        self,
        event: AnyEvent,
        shown: Impression,
        submitted: Positions | None,
        query: str,
        source: str,
    ) -> Feedback:
        documents, name = shown.documents, event.event_id
        if isinstance(event, Clicks):
            clicks = shown.positions(event.clicked)
            self._check_clicks(clicks, len(shown.ids))
            return Feedback(
                name, "clicks", documents, submitted, clicks=clicks, query=query, source=source
            )
        if isinstance(event, Labels):
            labels = np.zeros(len(shown.ids))
            labels[shown.positions(list(event.labels))] = list(event.labels.values())
            self._check_pairs(_label_pairs(labels))
            return Feedback(
                name, "labels", documents, submitted, labels=labels, query=query, source=source
            )
        return self._triplets(event, shown, submitted, query, source)

    def _triplets(
        self,
        event: Triplets,
        shown: Impression,
        submitted: Positions | None,
        query: str,
        source: str,
    ) -> Feedback:
        self._check_pairs(len(event.triplets))
        preferred = shown.positions([one.preferred for one in event.triplets])
        other = shown.positions([one.other for one in event.triplets])
        weights = np.array([one.weight for one in event.triplets], dtype=np.float64)
        if not ((weights >= LEAST) & (weights <= MOST)).all():
            raise ValueError(f"triplets: expected weights from {LEAST} to {MOST}")
        if (preferred == other).any():
            raise ValueError("triplets: expected two documents in each")
        return Feedback(
            event.event_id, "triplets", shown.documents, submitted,
            preferred=preferred, other=other, weights=weights, query=query, source=source,
        )  # fmt: skip

    def _check_clicks(self, clicks: Positions, shown: int) -> None:
        if len(clicks) > shown:
            raise ValueError(f"clicked: expected at most {shown}, each once")
        if len(clicks) * shown <= self._limits.pairs:
            return
        reading, places = self._serving.config.clicks, np.unique(clicks)
        if reading == "click-skip-above":  # counted, not made: 240,000 pairs take 0.1 s
            self._check_pairs(int((places - np.arange(len(places))).sum()))
        elif reading == "debiased":
            self._check_pairs(len(places) * (min(shown, int(places[-1]) + 2) - len(places)))
        elif reading in STRATEGIES:
            self._check_pairs(len(STRATEGIES[reading](clicks.tolist(), shown)))

    def _check_pairs(self, count: int) -> None:
        if count > self._limits.pairs:
            raise ValueError(f"expected at most {self._limits.pairs} pairs, got {count}")

    def refusal(self, item: Item) -> Problem | None:
        """Why the append refused an event, None if it did not."""
        if item.became is None or item.event is None:
            return None
        if item.became.outcome == OTHER_BODY:
            return Problem(422, "event_id: expected a new one, got one with another body before")
        return self.forgotten(item) if item.became.outcome == FORGOTTEN else None

    def forgotten(self, item: Item) -> Problem:
        """Too long ago (410), or never there (404)."""
        ours = decoding.read_request_id(str(item.event.request_id)) if item.event else None
        if ours is not None and ours.time + self._ttl <= time():
            return Problem(410, "request_id: its answer is too long ago")
        return Problem(404, "request_id: expected one that was answered and remembered")


_NO_DOCUMENTS: Documents = np.zeros((0, 0), np.float32)


def _label_pairs(labels: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> int:
    """How many pairs labels give: all, less those of equal labels."""
    _, counts = np.unique(labels, return_counts=True)
    return int(len(labels) ** 2 - (counts**2).sum()) // 2


async def _answer(
    service: Service, model: str | None, items: Sequence[Item], seconds: float
) -> Answer:
    stored = [item.became for item in items if item.became is not None and item.refused is None]
    accepted = sum(one.outcome == APPENDED for one in stored)
    seq = max((one.seq for one in stored), default=0)
    errors = [
        Refused(at, item.refused.status, item.refused.detail)
        for at, item in enumerate(items)
        if item.refused is not None
    ]
    received = Received(accepted, len(stored) - accepted, len(errors), seq, _shortened(errors))
    _count(service, received, items)
    if not stored:
        told = Problem(422, "events: expected at least one that can be accepted")
        return refusal(told, msgspec.to_builtins(received))
    status = 202
    if seconds and model is not None:
        serving = await service.weight_cache.reach(model, seq, seconds)
        if serving is not None:
            status, received.version = 200, serving.version
    headers = {"preference-applied": "wait"} if status == 200 else {}
    return Answer(status, schemas.encode(received), headers=headers)


def _count(service: Service, received: Received, items: Sequence[Item]) -> None:
    """Tell what became of the events; those of a source over its share are counted apart."""
    over = sum(item.refused is not None and item.refused.status == 429 for item in items)
    service.metrics.events("accepted", received.accepted)
    service.metrics.events("duplicates", received.duplicates)
    service.metrics.events("rejected", received.rejected - over)
    service.metrics.events("over-share", over)


def _shortened(errors: list[Refused]) -> list[Refused]:
    """As many as fit into an answer of 2 kB."""
    room, kept = 1600, []
    for one in errors:
        room -= 45 + len(one.title.encode())
        if room < 0:
            break
        kept.append(one)
    return kept


def _wait(call: Call) -> float:
    """How long the caller would wait to see the feedback learnt (RFC 7240)."""
    asked = _WAIT.search(call.headers.get(b"prefer", b""))
    return min(float(asked[1]), LONGEST_WAIT) if asked else 0.0
