"""Feedback → log: within its source's quota, and each event once, however often it is posted."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha1
from time import monotonic, time_ns

from app.domain import codec
from app.domain.facts import LogRolledBack
from app.domain.impressions import PriorFeedback, on_request
from app.domain.records import Feedback
from app.errors import Changed, InvalidInput, SolarError, Unavailable
from app.storage.batching import MicroBatcher
from app.storage.log import APPENDED, AppendResult, NewRecord, StoredImpression
from app.storage.store import Store

log = logging.getLogger("solar.ingest")

#: What no accumulation is: an event that builds on it is never appended.
NEVER = b"never"
#: So many rounds of other posts on the same request may come in between.
APPEND_ATTEMPTS = 100
#: Events that share one append, at most.
MOST_EVENTS = 2000
#: Bytes that the records of one post may take: each carries its documents and the clicks before.
MOST_BYTES = 32 << 20


class SourceQuota:
    """How much of the feedback of the last minute or two came from whom."""

    LEAST = 100  # below so many events nobody is refused

    def __init__(self, most: float, clock: Callable[[], float] = monotonic) -> None:
        self._most, self._clock = most, clock
        self._minute = 0
        self._now: Counter[str] = Counter()
        self._before: Counter[str] = Counter()

    def take(self, source: str, count: int) -> bool:
        """Whether so many more events of a source fit into its share; if so they are counted."""
        if self._most >= 1.0:
            return True
        self._turn()
        total = self._now.total() + self._before.total() + count
        mine = self._now[source] + self._before[source] + count
        if total > self.LEAST and mine > self._most * total:
            return False
        self._now[source] += count
        return True

    def _turn(self) -> None:
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._before = self._now if minute == self._minute + 1 else Counter()
            self._now, self._minute = Counter(), minute


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event as it was posted: on a request (its id is in `feedback.query`), or on its own.

    `body` is what was posted, if that is more than the feedback says; `shown` the SHA-1 (hex) of
    the impression it is about. On a request that is forgotten it can only be a repeated one.
    """

    feedback: Feedback
    on_request: bool = False
    body: bytes = b""
    shown: str = ""

    def digest(self) -> bytes:
        """The same for the same body: what tells a repeated event from a reused id."""
        return blake2b(self.body or codec.dump_record(self.feedback), digest_size=16).digest()


async def post(
    store: Store,
    model: str,
    epoch: int,
    events: Sequence[PendingEvent],
    *,
    limit: int,
    time: int,
    remembered: float = 0.0,
    wait: bool = False,
    recalled: Mapping[str, StoredImpression] | None = None,
) -> list[AppendResult]:
    """Append events of one model in their order; impressions are `remembered` so many seconds.

    `recalled` are the impressions of their requests, if they were just recalled.
    All or none. An event on a request builds on what has come of it so far; the append refuses the
    post if that has changed meanwhile, and it is built anew.
    """
    known: set[str] = set()
    if recalled is None:
        recalled = await recall(store, model, epoch, events)
    for _ in range(APPEND_ATTEMPTS):
        built = _build(events, recalled, known)
        try:
            return await store.log.append(
                model, epoch, built, limit=limit, time=time, dedupe=2 * remembered, wait=wait
            )
        except Changed as error:
            recalled = await recall(store, model, epoch, events)
            if any(_shown_anew(event, recalled) for event in events):
                raise Unavailable(f"model {model}: a request was shown anew meanwhile") from error
            known = await store.log.known(model, epoch, [event.feedback.event for event in events])
    raise Unavailable(f"model {model}: too many posts on the same request at once")


def _shown_anew(event: PendingEvent, recalled: Mapping[str, StoredImpression]) -> bool:
    """Whether an event was built on another list than there is now, or on none."""
    found = recalled.get(event.feedback.query) if event.on_request else None
    if found is None:
        return False
    unseen = event.feedback.documents.size == 0
    return unseen or (event.shown != "" and fingerprint(found.shown) != event.shown)


def fingerprint(shown: bytes) -> str:
    """What tells one impression from another; the append compares it."""
    return sha1(shown, usedforsecurity=False).hexdigest()


async def recall(
    store: Store, model: str, epoch: int, events: Sequence[PendingEvent]
) -> dict[str, StoredImpression]:
    """The impressions of the requests of some events, as far as they are remembered."""
    requests = sorted({event.feedback.query for event in events if event.on_request})
    found = await store.log.recall(model, epoch, requests) if requests else []
    return {request: one for request, one in zip(requests, found, strict=True) if one}


def _build(
    events: Sequence[PendingEvent], recalled: Mapping[str, StoredImpression], known: set[str]
) -> list[NewRecord]:
    """Records of events, each on top of those before it in the same post.

    Events that are `known` to be in the log will be answered as repeated: nothing builds on them.
    """
    so_far = {request: found.accumulated for request, found in recalled.items()}
    built, known, size = [], set(known), 0
    for event in events:
        if size > MOST_BYTES:
            raise InvalidInput("events: expected fewer at once, their records are too large")
        feedback, digest = event.feedback, event.digest()
        if not event.on_request:
            built.append(NewRecord(feedback.event, digest, codec.dump_record(feedback)))
            continue
        if feedback.query not in recalled:
            built.append(NewRecord(feedback.event, digest, b"", feedback.query, NEVER, NEVER))
            continue
        expected = so_far[feedback.query]
        record, after = on_request(feedback, PriorFeedback.load(expected))
        new, dumped = after.dump(), codec.dump_record(record)
        size += len(new) + len(dumped)
        if feedback.event not in known:
            so_far[feedback.query] = new
            known.add(feedback.event)
        about = (feedback.query, expected, new, event.shown)
        built.append(NewRecord(feedback.event, digest, dumped, *about))
    return built


@dataclass(frozen=True, slots=True)
class Post:
    """Events that are posted together, and the impressions that were recalled for them."""

    events: Sequence[PendingEvent]
    recalled: Mapping[str, StoredImpression]
    wait: bool = False


class Appender:
    """Posts and recalls of one moment share one call each; a post still has an answer of its own.

    If posts of a group get in each other's way (two on one request), each is made alone.
    """

    def __init__(
        self,
        store: Store,
        limit: int,
        remembered: float,
        tell: Callable[[LogRolledBack], None] = lambda _: None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._store, self._limit, self._remembered = store, limit, remembered
        self._tell, self._now = tell, clock or now
        self._told: dict[tuple[str, int], int] = {}  # the highest seq that somebody was told
        self.post = MicroBatcher(self._post)
        self.recall = MicroBatcher(self._recall)

    async def _recall(
        self, model: tuple[str, int], asked: list[Sequence[str]]
    ) -> list[dict[str, StoredImpression] | Exception]:
        requests = sorted({request for some in asked for request in some})
        found = dict(zip(requests, await self._store.log.recall(*model, requests), strict=True))
        return [{one: seen for one in some if (seen := found[one])} for some in asked]

    async def _post(
        self, model: tuple[str, int], posts: list[Post]
    ) -> list[list[AppendResult] | Exception]:
        if len(posts) == 1 or sum(len(one.events) for one in posts) > MOST_EVENTS:
            return [await self._alone(model, one) for one in posts]
        built: list[list[NewRecord] | Exception] = [_built(one) for one in posts]
        together = [event for events in built if isinstance(events, list) for event in events]
        told = self._told.get(model, 0)
        try:
            answers = await self._store.log.append(
                *model, together, limit=self._limit, time=self._now(),
                dedupe=2 * self._remembered, wait=any(one.wait for one in posts),
            )  # fmt: skip
        except Changed:
            return [await self._alone(model, one) for one in posts]
        self._note(model, told, answers)
        became = iter(answers)
        return [
            [next(became) for _ in events] if isinstance(events, list) else events
            for events in built
        ]

    async def _alone(self, model: tuple[str, int], one: Post) -> list[AppendResult] | Exception:
        told = self._told.get(model, 0)
        try:
            answers = await post(
                self._store, *model, one.events, limit=self._limit, time=self._now(),
                remembered=self._remembered, wait=one.wait, recalled=one.recalled,
            )  # fmt: skip
        except (SolarError, ValueError) as error:
            return error
        self._note(model, told, answers)
        return answers

    def _note(self, model: tuple[str, int], told: int, answers: Sequence[AppendResult]) -> None:
        """A new record at a seq that was `told` before it was sent: the log went back (I12)."""
        new = [answer.seq for answer in answers if answer.outcome == APPENDED]
        if not new:
            return
        if min(new) <= told:
            log.warning("model %s: the log went back from %d to %d", model[0], told, min(new) - 1)
            self._told[model] = 0
            self._tell(LogRolledBack(model[0]))
        self._told[model] = max(*new, self._told.get(model, 0))


def _built(one: Post) -> list[NewRecord] | Exception:
    try:
        return _build(one.events, one.recalled, set())
    except ValueError as error:
        return error


def now() -> int:
    """Milliseconds since 1970."""
    return time_ns() // 1_000_000
