"""`POST /beacon`: clicks from web pages, on the lists that tokens name.

A browser cannot keep an API key. What it has is the token of a list that it was shown
(`app/api/tokens.py`). The answer is 204 whatever the tokens are, so it tells nothing. The metric
`solar_beacon_events_total` counts what became of the events.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from time import monotonic

from fastapi import APIRouter
from starlette.types import Message, Receive, Scope, Send

from app.api.auth import Key
from app.api.beacon_copies import MANY, recent_name, without_recent, without_stored
from app.api.beacon_events import BEACON_BYTES, NamedEvent, split_events, verified_events
from app.api.dependencies import FromRoute, FromState, Service
from app.api.errors import Problem
from app.api.examples import BEACON_BODIES
from app.api.openapi import OPEN_PROBLEMS, problems
from app.api.routers import feedback
from app.api.routers.feedback import Item
from app.api.routing import (
    HELD,
    JSON,
    TEXT,
    Answer,
    Call,
    FastRoute,
    Headers,
    Reply,
    media_type,
    read_body,
)
from app.api.schemas import ClicksEvent
from app.api.tokens import SENDER
from app.domain.impressions import PriorFeedback
from app.errors import IsFollower, NoSuchModel, SolarError, Unreadable
from app.ingest.appender import Loaded
from app.serving.served_model import ServedModel
from app.storage.log import (
    APPENDED,
    NOT_REPEATED,
    OTHER_BODY,
    REPEATED,
    TOO_MUCH_WORK,
    StoredImpression,
)

#: The most events on one list.
MOST_ON_LIST = 20
_DIGEST = b"beacon"  # not empty: the sender is a key of its own
#: Pages of any origin may post; no cookie or key is part of it.
_OPEN = (b"access-control-allow-origin", b"*")
_PREFLIGHT = {
    "access-control-allow-methods": "POST",
    "access-control-allow-headers": "content-type",
    "access-control-max-age": "86400",
}
_NO_KEYS = "path: unknown; set SOLAR_TOKEN_KEYS to accept beacons (`solar key --token` makes a key)"


class BeaconRoute(FastRoute):
    """A route for pages of any origin, with a small body."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; every answer, also that to an error, is open to all origins."""

        async def send_open(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], _OPEN]
            await send(message)

        await super().handle(scope, receive, send_open)

    async def work(
        self, scope: Scope, receive: Receive, _reply: Reply, headers: Headers, key: Key, /
    ) -> Answer:
        """Read the body and call the endpoint."""
        service, held = scope["app"].state.service, scope[HELD]
        address = (scope.get("client") or ("",))[0]
        try:
            body = await read_body(receive, headers, service.settings, held, BEACON_BYTES)
            answer: Answer = await self.endpoint(service, Call(body, key, headers, held, address))
        except Problem as refused:
            if refused.status == 413:  # its events are not read: it counts as one
                service.metrics.beacon_events({"too-large": 1})
            raise
        return answer


router = APIRouter(route_class=BeaconRoute, tags=["feedback"])


@router.options("/beacon", include_in_schema=False)
async def preflight(service: FromState, _call: FromRoute) -> Answer:
    """Allow pages of any origin to post JSON."""
    if service.tokens is None:
        raise Problem(404, _NO_KEYS)
    return Answer(204, b"", headers=_PREFLIGHT)


@router.post(
    "/beacon",
    operation_id="beacon",
    summary="Post clicks from a web page",
    status_code=204,
    response_model=None,
    responses=problems(*OPEN_PROBLEMS, 404, 408, 413, 415, 429, 503),
    openapi_extra={"requestBody": BEACON_BODIES},
)
async def post_beacon(service: FromState, call: FromRoute) -> Answer:
    """Post clicks on lists that tokens name, as `text/plain` or JSON. Needs no API key.

    The answer is 204 whatever the tokens are.
    """
    if service.tokens is None:
        raise Problem(404, _NO_KEYS)
    if media_type(call.headers) not in (TEXT, JSON):
        raise Problem(415, f"content-type: expected {TEXT} or {JSON}")
    events, counts = split_events(call.body), Counter[str]()
    try:
        _check_rate(service, call.address, len(events), counts)
        _check_store(service)
        failures = Failures()
        for model, named in verified_events(service.tokens, events, counts).items():
            with failures.kept():
                await _post(service, model, named, call, counts, failures)
        failures.check()
    finally:
        counts["refused"] += len(events) - counts.total()
        service.metrics.beacon_events(counts)
    return Answer(204, b"")


class Failures:
    """What went wrong with parts of a post: the page sends none again, so the others go on."""

    def __init__(self) -> None:
        self._first: Exception | None = None
        self._end = monotonic() + feedback.APPEND_SECONDS

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep an error for the answer; raise it at once if the store has had its time."""
        try:
            yield
        except _GONE:
            raise
        except (Problem, SolarError, TimeoutError) as error:
            self._first = self._first or error
            if monotonic() > self._end:
                self.check()

    def check(self) -> None:
        """Raise the first error that was kept."""
        if isinstance(self._first, TimeoutError):
            raise Problem(503, "the store did not answer in time; retry after 1 second")
        if self._first is not None:
            raise self._first


def _check_rate(service: Service, address: str, events: int, counts: Counter[str]) -> None:
    """Raise 429 if an address, or all of them, send too much; a post without events is one."""
    if not service.beacon_limits.take(address, max(1, events)):
        counts["over-rate"] += events
        raise Problem(429, "too many events (SOLAR_BEACON_RATE); retry after 1 second")


def _check_store(service: Service) -> None:
    """Raise 503 or 429 if the store takes no beacons now, whatever their tokens are."""
    cache, quota = service.weight_cache, service.store_quota
    if not cache.reachable:
        raise Problem(503, "the store is unreachable; retry after 1 second")
    if quota is not None and not quota.admits_feedback(SENDER, cache.memory_share):
        raise Problem(429, feedback.OVER_MEMORY, feedback.RETRY)


async def _post(
    service: Service,
    model: str,
    events: Sequence[NamedEvent],
    call: Call,
    counts: Counter[str],
    failures: Failures,
) -> None:
    """Append the events on the lists of one model, in parts whose lists fit into memory."""
    before, own = call.held.size, Counter[str]()
    try:
        served = await service.weight_cache.find(model)
        left = without_recent(service, served, events, own)
        if len(left) >= MANY:
            left = await without_stored(service, served, left, own)
        while left:
            left = left[await _post_first(service, served, left, call, own, failures) :]
            call.held.keep(before)
        service.metrics.used(model)
    except _GONE:
        own["unknown"] += len(events) - own.total()
    finally:
        counts.update(own)


async def _post_first(
    service: Service,
    served: ServedModel,
    events: Sequence[NamedEvent],
    call: Call,
    counts: Counter[str],
    failures: Failures,
) -> int:
    """Append the first events, each for the tenant of its list; return how many."""
    requests = list(dict.fromkeys(one.request for one in events))
    served, loaded = await _load_first(service, served, requests, call)
    known = set(requests[: loaded.count])
    first = list(takewhile(lambda one: one.request in known, events))
    for tenant, items in _by_tenant(service, served, first, loaded.impressions, counts).items():
        with failures.kept():
            try:
                await _append(service, served.name, tenant, items, call)
            finally:
                _count(service, served, items, counts)
    return len(first)


async def _load_first(
    service: Service, served: ServedModel, requests: Sequence[str], call: Call
) -> tuple[ServedModel, Loaded]:
    """Load the lists of the first requests; again if the model was created again meanwhile."""
    loaded = await feedback.load_first(service, served, requests, call.held)
    if len(loaded.impressions) < loaded.count:
        epoch, *_ = await service.store.states.position(served.name)
        if epoch != served.epoch:
            served = await service.weight_cache.load(served.name)
            loaded = await feedback.load_first(service, served, requests, call.held)
    return served, loaded


def _by_tenant(
    service: Service,
    served: ServedModel,
    events: Sequence[NamedEvent],
    impressions: Mapping[str, StoredImpression],
    counts: Counter[str],
) -> dict[str, list[Item]]:
    """Return the events on lists that are remembered and have few events, by tenant."""
    found: dict[str, list[Item]] = {}
    for one in events:
        stored = impressions.get(one.request)
        if stored is None:
            counts["unknown"] += 1
        elif len(PriorFeedback.load(stored.accumulated).rounds) >= MOST_ON_LIST:
            counts["over-limit"] += 1
            service.beacon_limits.note(recent_name(served, one.event_id), "over-limit")
        else:
            event = ClicksEvent(
                event_id=one.event_id, model=served.name, request_id=one.request,
                clicked=one.event.clicked, gains=one.event.gains, examined=one.event.examined,
            )  # fmt: skip
            item = Item(event, most_events=MOST_ON_LIST, clamps_examined=True)
            found.setdefault(stored.tenant or "", []).append(item)
    return found


async def _append(service: Service, model: str, tenant: str, items: list[Item], call: Call) -> None:
    """Append events in the name of a tenant, as `POST /feedback` does."""
    key = Key(SENDER, frozenset({"feedback"}), _DIGEST, tenant)
    own = Call(b"", key, {}, call.held)
    await feedback.append_events(service, model, items, own)
    refused = [one for one in items if one.refused and one.refused.detail == TOO_MUCH_WORK]
    if len(items) > 1:  # together with the others; each may be posted alone
        for item in refused:
            item.refused = None
        for item in refused:
            await feedback.append_events(service, model, [item], own)


def _count(
    service: Service, served: ServedModel, items: Sequence[Item], counts: Counter[str]
) -> None:
    """Count events by what became of them; note those whose copies would end the same way.

    After an error some have no outcome.
    """
    for item in items:
        if item.result is None and item.refused is None:
            continue
        outcome = _outcome(item)
        counts[outcome] += 1
        if outcome in _OF_COPIES and item.event is not None:
            name = recent_name(served, item.event.event_id)
            service.beacon_limits.note(name, _OF_COPIES[outcome])


def _outcome(item: Item) -> str:
    if item.result is not None and item.result.outcome in _OUTCOMES:
        return _OUTCOMES[item.result.outcome]
    return "invalid" if item.refused is None else _REFUSED.get(item.refused.status, "invalid")


#: The model is deleted, or damaged.
_GONE = (NoSuchModel, IsFollower, Unreadable)
#: An event with another body has the same clicks in another order.
_OUTCOMES = {
    APPENDED: "accepted", REPEATED: "duplicate", OTHER_BODY: "duplicate",
    NOT_REPEATED: "over-limit",
}  # fmt: skip
#: What becomes of a copy. A list that is unknown, or a sender over its share, may be taken later.
_OF_COPIES = {
    "accepted": "duplicate", "duplicate": "duplicate", "invalid": "invalid",
    "over-limit": "over-limit",
}  # fmt: skip
_REFUSED = {404: "unknown", 410: "unknown", 429: "over-share"}
