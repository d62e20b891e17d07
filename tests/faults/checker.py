"""Looks at a model after all that happened to it: is anything lost, doubled, or not what it says?

It reads the log as raw bytes and folds it in a loop of its own, from the oldest version on.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from redis.exceptions import RedisError

from app.domain import codec
from app.domain.codec import next_chain
from app.domain.model import ModelState
from app.domain.records import Feedback, Replace
from app.domain.reducer import Reducer, sound
from app.ingest.appender import PendingEvent
from app.learning import replay
from app.storage.connection import connect
from app.storage.keys import Keys
from app.storage.store import Store
from tests.faults.invented import MODEL
from tests.faults.posters import Ledger
from tests.faults.waiting import until


class Commit(NamedTuple):
    """A state as somebody saw it."""

    epoch: int
    seq: int
    chain: bytes
    fence: int


class Watch:
    """Sees commits as they are announced, and what the state is then."""

    def __init__(self, url: str, model: str = MODEL) -> None:
        self._client: Any = connect(url)
        self._keys = Keys(model)
        self.announced: list[int] = []
        self.states: list[Commit] = []
        self._done = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done = True  # not cancelled: redis-py may swallow that
        await asyncio.wait_for(self._task, 10)
        await self._client.aclose()

    async def _run(self) -> None:
        while not self._done:
            with contextlib.suppress(RedisError, OSError):
                await self._listen()
            await asyncio.sleep(0.01)

    async def _listen(self) -> None:
        async with self._client.pubsub() as subscription:
            await subscription.subscribe(self._keys.channel)
            while not self._done:
                hint = await subscription.get_message(timeout=0.1)
                if hint is not None and hint["type"] == "message":
                    self.announced.append(int(hint["data"]))
                await self._look()

    async def _look(self) -> None:
        names = ["epoch", "seq", "chain", "fence"]
        epoch, seq, chain, fence = await self._client.hmget(self._keys.state, names)
        if epoch is not None:
            self.states.append(Commit(int(epoch), int(seq), chain, int(fence)))

    def check(self, chains: dict[int, bytes]) -> None:
        """I9: no commit goes back behind another. I3, I10: chain and fence say so too."""
        assert self.announced == sorted(self.announced)
        for before, now in zip(self.states, self.states[1:], strict=False):
            assert before.seq <= now.seq, f"the state went back: {before} {now}"
            assert before.fence <= now.fence, f"an earlier learner came back: {before} {now}"
        for state in self.states:
            assert chains.get(state.seq, state.chain) == state.chain, f"not of this log: {state}"


@dataclass(frozen=True)
class Found:
    """What is in the store, as it is there."""

    start: ModelState
    tail: int
    records: dict[int, bytes]
    fields: dict[bytes, bytes]

    def feedback(self) -> dict[int, Feedback]:
        """All feedback in the log, by seq."""
        loaded = {seq: codec.load_record(blob) for seq, blob in self.records.items()}
        return {seq: one for seq, one in loaded.items() if isinstance(one, Feedback)}


async def check(
    url: str,
    ledger: Ledger,
    title: str,
    *,
    model: str = MODEL,
    watch: Watch | None = None,
    **happened: int,
) -> Found:
    """All that must hold once everything is learnt; prints the numbers."""
    await learnt(url, model)
    found = await look(url, model)
    feedback = found.feedback()
    lost, doubled = missing(ledger, feedback, found.start.seq), repeated(feedback)
    numbers = {"records": len(found.records), **happened, "repeats": ledger.repeats}
    numbers |= {"lost": len(lost), "doubled": len(doubled)}
    print(f"\n{title}: " + ", ".join(f"{k} {v}" for k, v in numbers.items()))  # noqa: T201
    assert (lost, doubled) == ([], [])
    check_log(found)
    check_nothing_foreign(ledger, feedback)
    check_requests(found, feedback)
    chains = check_state(found)
    if watch is not None:
        watch.check(chains)
    await check_replay(url, model)
    return found


async def learnt(url: str, model: str = MODEL, seconds: float = 60.0) -> None:
    """Wait until all of the log is committed; a learner may take its time, but not stand still."""
    store, committed = Store.open(url), -1

    async def further() -> bool:
        return (await store.states.position(model))[1] > committed

    try:
        while committed < await store.log.tail(model):
            await until(further, f"more than {committed} records are learnt", seconds)
            committed = (await store.states.position(model))[1]
    finally:
        await store.close()


async def look(url: str, model: str = MODEL) -> Found:
    """Read everything, past the store's own code where that is possible."""
    client: Any = connect(url)
    store = Store.open(url)
    try:
        return await _look(client, store, model)
    finally:
        await store.close()
        await client.aclose()


async def _look(client: Any, store: Store, model: str) -> Found:
    keys = Keys(model)
    oldest = (await store.states.versions(model))[0]
    start = (await store.states.version(model, oldest)).state
    entries = await client.xrange(keys.log)
    assert all(identity.endswith(b"-0") for identity, _ in entries)
    seqs = [int(identity.split(b"-")[0]) for identity, _ in entries]
    records = dict(zip(seqs, (fields[b"r"] for _, fields in entries), strict=True))
    tail, fields = int(await client.get(keys.seq)), await client.hgetall(keys.state)
    return Found(start, tail, {s: r for s, r in records.items() if s > start.seq}, fields)


def missing(ledger: Ledger, feedback: dict[int, Feedback], start: int) -> list[str]:
    """I1: events that are not in the log at the seq that was told, as they were posted."""
    return [
        event
        for event, (seq, posted) in ledger.told.items()
        if seq > start and not (seq in feedback and same(feedback[seq], posted))
    ]


def same(record: Feedback, posted: PendingEvent) -> bool:
    sent = posted.feedback
    arrays = ("documents", "submitted", "labels", "clicks", "preferred", "other", "weights")
    return (record.event, record.kind, record.query) == (sent.event, sent.kind, sent.query) and all(
        np.array_equal(getattr(record, name), getattr(sent, name)) for name in arrays
    )


def repeated(feedback: dict[int, Feedback]) -> list[str]:
    """I6: events with more than one record."""
    counts = Counter(one.event for one in feedback.values())
    return [event for event, count in counts.items() if count > 1]


def check_log(found: Found) -> None:
    """I2: dense, each seq once, up to the tail."""
    assert list(found.records) == list(range(found.start.seq + 1, found.tail + 1))


def check_nothing_foreign(ledger: Ledger, feedback: dict[int, Feedback]) -> None:
    """I7, I8: what nobody was told is not there, save where the poster went away."""
    known = ledger.told.keys() | ledger.doubts.keys()
    assert {one.event for one in feedback.values()} <= known


def check_requests(found: Found, feedback: dict[int, Feedback]) -> None:
    """I5: on each request a record builds on all records before it, and only the first counts."""
    if found.start.seq:
        return  # what was clicked before is no longer in the log
    clicked: dict[str, list[int]] = {}
    for record in feedback.values():
        if record.submitted is None:
            continue
        before, clicks = record.clicked_before, record.clicks
        assert before is not None
        assert clicks is not None
        assert before.tolist() == clicked.get(record.query, [])
        assert (record.counted is None) == (record.query not in clicked)
        clicked[record.query] = [*before.tolist(), *clicks.tolist()]
    alone = sum(record.submitted is None for record in feedback.values())
    assert _sums(found.fields)[0] == len(clicked) + alone


def _sums(fields: dict[bytes, bytes]) -> list[float]:
    sums: list[float] = codec.load_blob(fields[b"sums"], "sums").arrays["values"].tolist()
    return sums


def check_state(found: Found) -> dict[int, bytes]:
    """I3, I4, I16, I17: the state is what folding the log gives, byte for byte; all chains."""
    fold, chain = Reducer(found.start), found.start.chain
    chains = {found.start.seq: chain}
    for seq, record in found.records.items():
        fold.apply(record)
        chains[seq] = chain = next_chain(chain, record)
        _check_replaced(fold, record)
    state, fields = fold.state(), found.fields
    assert (int(fields[b"seq"]), fields[b"chain"]) == (found.tail, chain)
    assert fields[b"w"] == codec.dump_blob(
        "w", {"seq": state.seq, "chain": state.chain.hex()}, {"values": state.model.weights}
    )
    assert fields[b"spread"] == codec.dump_blob("spread", {}, {"values": state.model.spread})
    sums = codec.load_blob(fields[b"sums"], "sums").arrays["values"]  # an aside stands beside them
    assert sums.tobytes() == state.sums.tobytes()
    assert sound(state) == []
    return chains


def _check_replaced(fold: Reducer, record: bytes) -> None:
    """I17: after a replacement the model is the one it carries."""
    loaded = codec.load_record(record)
    if isinstance(loaded, Replace):
        assert fold.state().model.weights.tobytes() == loaded.model.weights.tobytes()
        assert fold.state().model.spread.tobytes() == loaded.model.spread.tobytes()


async def check_replay(url: str, model: str) -> None:
    """I4 by the service's own words."""
    store = Store.open(url)
    try:
        assert (await replay.replay(store, model)).differences() == []
        assert await replay.verify(store, model) == []
    finally:
        await store.close()
