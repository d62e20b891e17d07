"""Feedback → log: each event once, whatever is posted at the same time or posted again."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from app.errors import Changed, Unavailable
from app.events import Feedback
from app.impressions import SoFar, on_request
from app.store import codec
from app.store.store import Appended, Event, Store

#: So many rounds of other posts on the same request may come in between.
ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Posted:
    """An event as it was posted: on a request (its id is in `feedback.query`), or on its own."""

    feedback: Feedback
    on_request: bool = False

    def digest(self) -> bytes:
        """The same for the same body: what tells a repeated event from a reused id."""
        return blake2b(codec.dump_record(self.feedback), digest_size=16).digest()


async def post(
    store: Store,
    model: str,
    epoch: int,
    events: Sequence[Posted],
    *,
    limit: int,
    time: int,
    remembered: float = 0.0,
    wait: bool = False,
) -> list[Appended]:
    """Append events of one model in their order; impressions are `remembered` so many seconds.

    All or none. An event on a request builds on what has come of it so far; the append refuses the
    post if that has changed meanwhile, and it is built anew.
    """
    known: set[str] = set()
    for _ in range(ROUNDS):
        built = await _build(store, model, epoch, events, known)
        try:
            return await store.append(
                model, epoch, built, limit=limit, time=time, dedupe=2 * remembered, wait=wait
            )
        except Changed:
            known = await store.known(model, epoch, [event.feedback.event for event in events])
    raise Unavailable(f"model {model}: too many posts on the same request at once")


async def _build(
    store: Store, model: str, epoch: int, events: Sequence[Posted], known: set[str]
) -> list[Event]:
    """Records of events, each on top of those before it in the same post.

    Events that are `known` to be in the log will be answered as repeated: nothing builds on them.
    """
    requests = sorted({event.feedback.query for event in events if event.on_request})
    recalled = await store.recall(model, epoch, requests) if requests else []
    so_far = {
        request: found.accumulated if found else b""
        for request, found in zip(requests, recalled, strict=True)
    }
    built, known = [], set(known)
    for event in events:
        feedback, digest = event.feedback, event.digest()
        if not event.on_request:
            built.append(Event(feedback.event, digest, codec.dump_record(feedback)))
            continue
        expected = so_far[feedback.query]
        record, after = on_request(feedback, SoFar.load(expected))
        new = after.dump()
        if feedback.event not in known:
            so_far[feedback.query] = new
            known.add(feedback.event)
        built.append(
            Event(feedback.event, digest, codec.dump_record(record), feedback.query, expected, new)
        )
    return built
