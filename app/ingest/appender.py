"""Append feedback to the log, each event exactly once."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b, sha1
from itertools import takewhile, zip_longest
from time import time_ns

from app.domain import codec
from app.domain.facts import LogRolledBack
from app.domain.impressions import PriorFeedback, all_clicks, on_request
from app.domain.records import Feedback, is_graded
from app.domain.work import most_new_pairs, record_work
from app.errors import Changed, InvalidInput, SolarError, Unreadable, WorkBacklog
from app.storage.batching import MicroBatcher
from app.storage.log import (
    APPENDED,
    DEDUPE_SECONDS,
    NOT_REPEATED,
    TOO_MANY_PAIRS,
    AppendResult,
    NewRecord,
    StoredImpression,
)
from app.storage.store import Store

log = logging.getLogger("solar.ingest")

#: A value that no stored feedback has: an event that builds on it is never appended.
IMPOSSIBLE = b"never"
#: Attempts to append while other posts on the same request are appended in between.
APPEND_ATTEMPTS = 100
#: Maximum number of events in one shared append.
MOST_EVENTS = 2000
#: Size limit of the documents in one shared append, in bytes.
MOST_SHARED_BYTES = 4 << 20
#: Bytes of a record in the store besides its documents and what was posted.
EVENT_BYTES = 400
#: Size limit of the records of one post; each contains its documents and the earlier clicks.
MOST_BYTES = 32 << 20
#: Events on one list if one of them has gains or examined positions: each is compared with all
#: earlier ones, and a list of 1,000 documents takes the learner up to 1 s with 100 of them.
MOST_GRADED_EVENTS = 100


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """A posted event: on a request (its id is in `feedback.query`), or with its own documents.

    `body` is the posted body if the feedback does not contain all of it. `shown` is the SHA-1 (hex)
    of the impression. On an expired request only a repeated event is accepted, and likewise if it
    is `repeated_only`. `time` is the time that the sender states, in ms since 1970. `pair_work` is
    the work of one pair in this model, and `counts_abandoned` its rule of counting. `keep` is the
    lifetime of the impression from its first click on, in ms (0: as it is). Once the record is in
    the log, `on_first_click` is called if it has this click, and `on_growth` with the bytes by
    which what has come of a clicked list grew. A request with `most_events` accepts no further one.
    Clicks, read by `strategy`, may give `most_pairs` pairs with those before them.
    """

    feedback: Feedback
    on_request: bool = False
    body: bytes = b""
    shown: str = ""
    repeated_only: bool = False
    time: int | None = None
    pair_work: int = 0
    counts_abandoned: bool = False
    keep: int = 0
    on_first_click: Callable[[], None] | None = None
    on_growth: Callable[[int], None] | None = None
    most_events: int | None = None
    strategy: str = ""
    most_pairs: int | None = None

    @property
    def work(self) -> int:
        """Work of the record, without earlier feedback on its request."""
        return record_work(self.feedback, self.pair_work)

    def digest(self) -> bytes:
        """Hash of the body: it distinguishes a repeated event from a reused id."""
        return blake2b(self.body or codec.dump_record(self.feedback), digest_size=16).digest()


async def post(
    store: Store,
    model: str,
    epoch: int,
    events: Sequence[PendingEvent],
    *,
    limit: int,
    work_limit: int | None = None,
    time: int,
    dedupe: float = DEDUPE_SECONDS,
    wait: bool = False,
    impressions: Mapping[str, StoredImpression] | None = None,
    tenant: str = "",
) -> list[AppendResult]:
    """Append events of one model and tenant in their order, all or none.

    `dedupe` is the window of the deduplication in seconds; `impressions` are those of the requests,
    if they are already loaded. An event on a request builds on the earlier feedback on it. If that
    feedback changed meanwhile, the append is refused and the records are rebuilt.
    """
    skipped: Set[int] = frozenset()
    if impressions is None:
        impressions = await load_impressions(store, model, epoch, events, tenant)
    for _ in range(APPEND_ATTEMPTS):
        built = _build(events, impressions, skipped, tenant)
        try:
            answers = await store.log.append(
                model, epoch, built, limit=limit, work_limit=work_limit, time=time, dedupe=dedupe,
                wait=wait,
            )  # fmt: skip
        except Changed as error:
            impressions = await load_impressions(store, model, epoch, events, tenant)
            if any(_impression_changed(event, impressions) for event in events):
                raise Changed(
                    f"model {model}: the impression of a request changed meanwhile; try again"
                ) from error
            skipped = error.skipped
        else:
            return _settled(events, built, answers)
    raise Changed(f"model {model}: too many concurrent posts on the same request; try again")


def _impression_changed(event: PendingEvent, impressions: Mapping[str, StoredImpression]) -> bool:
    """Check whether an event was built on another impression than the stored one, or on none."""
    found = impressions.get(event.feedback.query) if event.on_request else None
    if found is None:
        return False
    unseen = event.feedback.documents.size == 0
    return unseen or (event.shown != "" and fingerprint(found.shown) != event.shown)


def fingerprint(shown: bytes) -> str:
    """Hash of an impression, which the append compares."""
    return sha1(shown, usedforsecurity=False).hexdigest()


async def load_impressions(
    store: Store, model: str, epoch: int, events: Sequence[PendingEvent], tenant: str = ""
) -> dict[str, StoredImpression]:
    """Load the stored impressions of the requests of some events, those open to the tenant."""
    requests = sorted({event.feedback.query for event in events if event.on_request})
    found = await store.log.load_impressions(model, epoch, requests) if requests else []
    each = zip(requests, found, strict=True)
    return {request: one for request, one in each if one and one.is_open_to(tenant)}


def _build(
    events: Sequence[PendingEvent],
    impressions: Mapping[str, StoredImpression],
    skipped: Set[int],
    tenant: str,
) -> list[NewRecord]:
    """Build the records of events; each builds on the earlier events of the same post.

    Events at `skipped` positions will be reported as repeated or refused: nothing builds on them.
    """
    so_far = {request: found.accumulated for request, found in impressions.items()}
    built, seen, size = [], set[str](), 0
    for at, event in enumerate(events):
        if size > MOST_BYTES:
            raise InvalidInput(
                f"events: expected at most {MOST_BYTES} bytes of records; send fewer events"
            )
        name, request = event.feedback.event, event.feedback.query
        new = NewRecord(name, event.digest(), b"", tenant=tenant, time=event.time)
        if event.repeated_only:
            new = new._replace(repeated_only=True)
        elif not event.on_request:
            new = new._replace(record=codec.dump_record(event.feedback), work=event.work)
        elif request not in so_far:
            new = new._replace(request=request, expected=IMPOSSIBLE, new=IMPOSSIBLE)
        else:
            new = _on_request(new, event, so_far[request])
            if new.repeated_only:
                built.append(new)
                continue
            size += len(new.new) + len(new.record)
            if at not in skipped and name not in seen:
                so_far[request] = new.new
                seen.add(name)
        built.append(new)
    return built


def _on_request(new: NewRecord, event: PendingEvent, expected: bytes) -> NewRecord:
    """Add the record of an event that builds on the feedback on its request so far."""
    before = PriorFeedback.load(expected)
    if event.most_events is not None and len(before.rounds) >= event.most_events:
        return new._replace(repeated_only=True)
    record, after = on_request(event.feedback, before, event.counts_abandoned)
    if is_graded(record) and len(before.rounds) >= MOST_GRADED_EVENTS:
        return new._replace(repeated_only=True)
    if _gives_too_many_pairs(record, event):
        return new._replace(repeated_only=True, too_many_pairs=True)
    first_click = bool(after.clicks.size and not before.clicks.size)
    stored = after.dump()
    growth = len(stored) - (0 if first_click else len(expected))
    return new._replace(
        record=codec.dump_record(record), request=event.feedback.query, expected=expected,
        growth=growth if after.clicks.size else 0, new=stored, shown=event.shown,
        work=record_work(record, event.pair_work),
        keep=event.keep if first_click else 0, first_click=first_click,
        first_life_only=record.kind != "clicks",
    )  # fmt: skip


def _gives_too_many_pairs(record: Feedback, event: PendingEvent) -> bool:
    """Whether clicks give too many pairs for an event; counted only if that is possible."""
    if record.kind != "clicks" or event.most_pairs is None:
        return False
    if len(all_clicks(record)) * len(record.documents) <= event.most_pairs:
        return False
    return most_new_pairs(record, event.strategy) > event.most_pairs


def _settled(
    events: Sequence[PendingEvent], built: Sequence[NewRecord], answers: Sequence[AppendResult]
) -> list[AppendResult]:
    """Report the first clicks on lists that are now in the log; return the final answers."""
    found = []
    for event, new, answer in zip(events, built, answers, strict=True):
        if event.on_first_click and new.first_click and answer.outcome == APPENDED:
            event.on_first_click()
        if event.on_growth and new.growth and answer.outcome == APPENDED:
            event.on_growth(new.growth)
        refused = new.too_many_pairs and answer.outcome == NOT_REPEATED
        found.append(answer._replace(outcome=TOO_MANY_PAIRS) if refused else answer)
    return found


@dataclass(frozen=True, slots=True)
class Post:
    """Events of one request and tenant, and the impressions that were loaded for them."""

    events: Sequence[PendingEvent]
    impressions: Mapping[str, StoredImpression]
    wait: bool = False
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The impressions of the first `count` requests; unknown and expired ones are left out.

    `sizes` are the bytes of each request, if no memory was reserved.
    """

    impressions: dict[str, StoredImpression]
    count: int
    sizes: Sequence[int]


class Appender:
    """Groups concurrent posts, and concurrent loads of impressions, into one store call each.

    Every post gets a separate answer. If posts of a group conflict (two on one request), each is
    appended alone. Likewise if their records take too much work together, so that a post of little
    work is not refused for that of another one.
    """

    def __init__(
        self,
        store: Store,
        limit: int,
        dedupe: float,
        report: Callable[[LogRolledBack], None] = lambda _: None,
        clock: Callable[[], int] | None = None,
        work_limit: int | None = None,
    ) -> None:
        self._store, self._limit, self._dedupe = store, limit, dedupe
        self._work_limit = work_limit
        self._report, self._now = report, clock or now
        self._acknowledged: dict[tuple[str, int], int] = {}  # highest acknowledged seq
        self.post = MicroBatcher(self._post)
        self._loads = MicroBatcher(partial(self._load_impressions, reserved=True))
        self._small_loads = MicroBatcher(partial(self._load_impressions, reserved=False))

    def load_impressions(
        self, model: tuple[str, int], requests: Sequence[str], most: int = 1 << 40
    ) -> asyncio.Future[Loaded]:
        """Load the impressions of the first requests: `most` bytes of them, or none yet.

        The caller has reserved this memory. If the first one alone takes more, it is loaded.
        """
        return self._loads(model, (requests, most))

    def load_small_impressions(
        self, model: tuple[str, int], requests: Sequence[str], most: int
    ) -> asyncio.Future[Loaded]:
        """Load the impressions of the first requests up to `most` bytes, and the sizes of all."""
        return self._small_loads(model, (requests, most))

    async def _load_impressions(
        self, model: tuple[str, int], asked: list[tuple[Sequence[str], int]], *, reserved: bool
    ) -> list[Loaded | Exception]:
        """Load the impressions of several posts in turn: the first of each, then the second."""
        turns = zip_longest(*(requests for requests, _ in asked))
        requests = list(dict.fromkeys(one for turn in turns for one in turn if one is not None))
        most, log = sum(most for _, most in asked), self._store.log
        load = log.load_impressions if reserved else log.load_small_impressions
        found = dict(zip(requests, await load(*model, requests, most), strict=False))
        return [_loaded(found, *one, reserved=reserved) for one in asked]

    async def _post(
        self, model: tuple[str, int], posts: list[Post]
    ) -> list[list[AppendResult] | Exception]:
        events = [event for one in posts for event in one.events]
        size = sum(event.feedback.documents.nbytes for event in events)
        if len(posts) == 1 or len(events) > MOST_EVENTS or size > MOST_SHARED_BYTES:
            return [await self._alone(model, one) for one in posts]
        built: list[list[NewRecord] | Exception] = [_built(one) for one in posts]
        together = [event for events in built if isinstance(events, list) for event in events]
        acknowledged = self._acknowledged.get(model, 0)
        try:
            answers = await self._store.log.append(
                *model, together, limit=self._limit, work_limit=self._work_limit,
                time=self._now(), dedupe=self._dedupe, wait=any(one.wait for one in posts),
            )  # fmt: skip
        except (Changed, WorkBacklog, InvalidInput):
            return [await self._alone(model, one) for one in posts]
        self._note(model, acknowledged, answers)
        remaining, found = iter(answers), list[list[AppendResult] | Exception]()
        for one, records in zip(posts, built, strict=True):
            if isinstance(records, list):
                own = [next(remaining) for _ in records]
                found.append(_settled(one.events, records, own))
            else:
                found.append(records)
        return found

    async def _alone(self, model: tuple[str, int], one: Post) -> list[AppendResult] | Exception:
        acknowledged = self._acknowledged.get(model, 0)
        try:
            answers = await post(
                self._store, *model, one.events, limit=self._limit, work_limit=self._work_limit,
                time=self._now(), dedupe=self._dedupe, wait=one.wait,
                impressions=one.impressions, tenant=one.tenant,
            )  # fmt: skip
        except (SolarError, ValueError) as error:
            return error
        self._note(model, acknowledged, answers)
        return answers

    def _note(
        self, model: tuple[str, int], acknowledged: int, answers: Sequence[AppendResult]
    ) -> None:
        """Detect a log rollback: a new record has a seq that was already acknowledged (I12)."""
        new = [answer.seq for answer in answers if answer.outcome == APPENDED]
        if not new:
            return
        if min(new) <= acknowledged:
            log.warning(
                "model %s: the log was rolled back from record %d to %d",
                model[0], acknowledged, min(new) - 1,
            )  # fmt: skip
            self._acknowledged[model] = 0
            self._report(LogRolledBack(model[0]))
        self._acknowledged[model] = max(*new, self._acknowledged.get(model, 0))


def _loaded(
    found: Mapping[str, StoredImpression | int | None],
    requests: Sequence[str],
    most: int,
    *,
    reserved: bool,
) -> Loaded:
    """Return the impressions of one post, within its own limit."""
    seen = [found[one] for one in takewhile(found.__contains__, requests)]
    sizes = [one if isinstance(one, int) else _size(one) for one in seen]
    count, size = 0, 0
    for one, more in zip(seen, sizes, strict=True):
        size += more
        if isinstance(one, int) or (size > most and not (reserved and count == 0)):
            break
        count += 1
    first = zip(requests, seen[:count], strict=False)
    return Loaded({name: one for name, one in first if isinstance(one, tuple)}, count, sizes)


def _size(one: StoredImpression | None) -> int:
    return len(one.shown) + len(one.accumulated) if one else 0


def stored_bytes(event: PendingEvent) -> int:
    """Estimate the bytes that an event takes in the store: its record and its dedupe entry."""
    return event.feedback.documents.nbytes + len(event.body) + EVENT_BYTES


def _built(one: Post) -> list[NewRecord] | Exception:
    try:
        return _build(one.events, one.impressions, frozenset(), one.tenant)
    except (Unreadable, ValueError) as error:
        return error


def now() -> int:
    """Milliseconds since 1970."""
    return time_ns() // 1_000_000
