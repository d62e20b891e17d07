"""Checks of a model after a fault: no record is lost, duplicated or wrong.

The checker reads the log as raw bytes and applies it in a separate loop from the oldest version.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from redis.exceptions import RedisError

from app.domain import codec, duel_fields
from app.domain.codec import next_chain
from app.domain.model import ModelState
from app.domain.records import Feedback, Replace
from app.domain.reducer import Reducer, sound
from app.ingest.appender import PendingEvent
from app.learning import replay
from app.storage.connection import connect
from app.storage.keys import CHANGED_CHANNEL, Keys, follower_address, is_follower
from app.storage.store import Store
from tests import oracles_duel_log
from tests.faults.event_generator import MODEL
from tests.faults.feedback_clients import Ledger
from tests.faults.list_checks import check_learnt, check_lists
from tests.faults.waiting import until


class Commit(NamedTuple):
    """An observed state."""

    epoch: int
    seq: int
    chain: bytes
    fence: int


class Watch:
    """Records commit notifications and the state after each."""

    def __init__(self, url: str, model: str = MODEL) -> None:
        self._client: Any = connect(url)
        self._model, self._keys = model, Keys(model)
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
        self._done = True  # no cancellation: redis-py may swallow it
        await asyncio.wait_for(self._task, 10)
        await self._client.aclose()

    async def _run(self) -> None:
        while not self._done:
            with contextlib.suppress(RedisError, OSError):
                await self._listen()
            await asyncio.sleep(0.01)

    async def _listen(self) -> None:
        async with self._client.pubsub() as subscription:
            await subscription.subscribe(CHANGED_CHANNEL)
            while not self._done:
                hint = await subscription.get_message(timeout=0.1)
                if hint is not None and hint["type"] == "message":
                    model, _, seq = hint["data"].decode().partition(" ")
                    if model == self._model and seq:
                        self.announced.append(int(seq))
                await self._read_stored()

    async def _read_stored(self) -> None:
        names = ["epoch", "seq", "chain", "fence"]
        epoch, seq, chain, fence = await self._client.hmget(self._keys.state, names)
        if epoch is not None:
            self.states.append(Commit(int(epoch), int(seq), chain, int(fence)))

    def check(self, chains: dict[int, bytes]) -> None:
        """Check that seq and fence never decrease (I9, I10) and chains match the log (I3)."""
        assert self.announced == sorted(self.announced)
        for before, now in zip(self.states, self.states[1:], strict=False):
            assert before.seq <= now.seq, f"the state was rolled back: {before} {now}"
            assert before.fence <= now.fence, f"an earlier learner committed: {before} {now}"
        for state in self.states:
            assert chains.get(state.seq, state.chain) == state.chain, (
                f"another chain than the log: {state}"
            )


@dataclass(frozen=True)
class StoredModel:
    """The raw data of a model in the store; `lists` is what has come of each, and its ms to live.

    A list that is no longer remembered is missing.
    """

    start: ModelState
    tail: int
    records: dict[int, bytes]
    fields: dict[bytes, bytes]
    follows: bool = False
    lists: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def feedback(self) -> dict[int, Feedback]:
        """Return all feedback in the log by seq."""
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
) -> StoredModel:
    """Wait until all is learnt, check every invariant and print the counts."""
    await learnt(url, model)
    found = await read_stored(url, model)
    feedback = found.feedback()
    lost, doubled = missing(ledger, feedback, found.start.seq), repeated(feedback)
    numbers = {"records": len(found.records), **happened, "repeats": ledger.repeats}
    numbers |= {"lost": len(lost), "doubled": len(doubled)}
    print(f"\n{title}: " + ", ".join(f"{k} {v}" for k, v in numbers.items()))  # noqa: T201
    assert (lost, doubled) == ([], [])
    check_log(found)
    check_only_posted_events(ledger, feedback)
    check_requests(found, feedback)
    check_lists(found)
    chains = check_state(found)
    if watch is not None:
        watch.check(chains)
    await check_replay(url, model)
    return found


async def learnt(url: str, model: str = MODEL, seconds: float = 60.0) -> None:
    """Wait until the whole log is committed; fail if there is no progress for `seconds`."""
    store, committed = Store.open(url), -1

    async def further() -> bool:
        return (await store.states.position(model))[1] > committed

    try:
        while committed < await store.log.tail(model):
            await until(further, f"more than {committed} records are learnt", seconds)
            committed = (await store.states.position(model))[1]
    finally:
        await store.close()


async def read_stored(url: str, model: str = MODEL) -> StoredModel:
    """Read the model with a plain client where possible."""
    client: Any = connect(url)
    store = Store.open(url)
    try:
        return await _read_stored(client, store, model)
    finally:
        await store.close()
        await client.aclose()


async def _read_stored(client: Any, store: Store, model: str) -> StoredModel:
    keys = Keys(model)
    oldest = (await store.states.versions(model))[0]
    start = (await store.states.version(model, oldest)).state
    entries = await client.xrange(keys.log)
    assert all(identity.endswith(b"-0") for identity, _ in entries)
    seqs = [int(identity.split(b"-")[0]) for identity, _ in entries]
    records = dict(zip(seqs, (fields[b"r"] for _, fields in entries), strict=True))
    tail, fields = int(await client.get(keys.seq)), await client.hgetall(keys.state)
    own = {seq: record for seq, record in records.items() if seq > start.seq}
    found = StoredModel(start, tail, own, fields, is_follower(model))
    if not found.follows:
        for request in {
            one.query for one in found.feedback().values() if one.submitted is not None
        }:
            key = keys.impression(int(fields[b"epoch"]), request)
            if await client.exists(key):
                found.lists[request] = (await client.hget(key, "a"), await client.pttl(key))
    return found


def missing(ledger: Ledger, feedback: dict[int, Feedback], start: int) -> list[str]:
    """I1: return acknowledged events that are not in the log at their seq as posted."""
    return [
        event
        for event, (seq, posted) in ledger.acknowledged.items()
        if seq > start and not (seq in feedback and same(feedback[seq], posted))
    ]


def same(record: Feedback, posted: PendingEvent) -> bool:
    sent = posted.feedback
    arrays = (
        "documents", "submitted", "labels", "clicks", "preferred", "other", "weights", "odds",
        "swaps", "duel", "gains", "examined",
    )  # fmt: skip
    return (record.event, record.kind, record.query) == (sent.event, sent.kind, sent.query) and all(
        np.array_equal(getattr(record, name), getattr(sent, name)) for name in arrays
    )


def repeated(feedback: dict[int, Feedback]) -> list[str]:
    """I6: return events with more than one record."""
    counts = Counter(one.event for one in feedback.values())
    return [event for event, count in counts.items() if count > 1]


def check_log(found: StoredModel) -> None:
    """I2: check that the log is dense up to its tail."""
    assert list(found.records) == list(range(found.start.seq + 1, found.tail + 1))


def check_only_posted_events(ledger: Ledger, feedback: dict[int, Feedback]) -> None:
    """I7, I8: check that the log holds only acknowledged or unanswered events."""
    known = ledger.acknowledged.keys() | ledger.unanswered.keys()
    assert {one.event for one in feedback.values()} <= known


def check_requests(found: StoredModel, feedback: dict[int, Feedback]) -> None:
    """I5: check that each record of a request builds on all before it and only the first counts."""
    if found.start.seq:
        return  # the log no longer holds the earlier clicks
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
    sums = codec.load_blob(found.fields[b"sums"], "sums").arrays
    abandoned = sum(not clicks for clicks in clicked.values())
    if not found.start.model.config.counts_abandoned:
        abandoned = 0
    assert sums["values"][0] == len(clicked) - abandoned + alone
    assert float(sums.get("abandoned", [0.0])[0]) == abandoned


def check_state(found: StoredModel) -> dict[int, bytes]:
    """I3, I4, I16, I17, I26: check that a replay gives the same bytes; return all chains."""
    reducer, chain = Reducer(found.start, follows=found.follows), found.start.chain
    chains = {found.start.seq: chain}
    for seq, record in found.records.items():
        reducer.apply(record)
        chains[seq] = chain = next_chain(chain, record)
        if not found.follows:
            _check_replaced(reducer, record)
    state, fields = reducer.state(), found.fields
    assert (int(fields[b"seq"]), fields[b"chain"]) == (found.tail, chain)
    certainty = np.array(state.model.certainty, np.float64) if state.model.certainty[1] else None
    arrays = {"values": state.model.weights, "certainty": certainty}
    position = {"seq": state.seq, "chain": state.chain.hex()}
    assert fields[b"w"] == codec.dump_blob("w", position, arrays)
    assert fields[b"spread"] == codec.dump_blob("spread", {}, {"values": state.model.spread})
    sums = codec.load_blob(fields[b"sums"], "sums").arrays  # the blob also holds commit facts
    single = ("bounded", "mean_quality", "drift", "abandoned")
    later = [float(sums.get(name, [0.0])[0]) for name in single]
    sizes = {"squares": 26, "largest_gap": 1, "duel_lists": 6, "follower": 3}
    last = [sums.get(name, np.zeros(size)) for name, size in sizes.items()]
    stored = np.concatenate([sums["values"], later, *last])
    assert stored.tobytes() == state.sums.tobytes()
    assert sound(state.model) == []
    check_learnt(found, state.model)
    return chains


def _check_replaced(reducer: Reducer, record: bytes) -> None:
    """I17: check that a replacement sets the model that it carries."""
    loaded = codec.load_record(record)
    if isinstance(loaded, Replace):
        assert reducer.state().model.weights.tobytes() == loaded.model.weights.tobytes()
        assert reducer.state().model.spread.tobytes() == loaded.model.spread.tobytes()


async def check_replay(url: str, model: str) -> None:
    """I4: check with the service's replay and verify."""
    store = Store.open(url)
    try:
        assert (await replay.replay(store, model)).differences() == []
        assert await replay.verify(store, model) == []
    finally:
        await store.close()


async def check_followers(url: str, model: str = MODEL) -> dict[str, StoredModel]:
    """I24: check all followers; return what is stored of those that are not stalled."""
    store = Store.open(url)
    try:
        found = await store.followers.of(model)
        for name in [one for one, stalled in found.items() if stalled]:
            assert await replay.verify(store, follower_address(model, name)) == []
    finally:
        await store.close()
    checked = {}
    for name in [one for one, stalled in found.items() if not stalled]:
        address = follower_address(model, name)
        await learnt(url, address)
        checked[name] = await read_stored(url, address)
        check_state(checked[name])
        await check_replay(url, address)
    return checked


def check_duels(found: StoredModel) -> list[oracles_duel_log.OracleDuel]:
    """I25: compare the duel of a whole log with the naive oracle; return all duels."""
    assert found.start.seq == 0, "the log was trimmed"
    duels = oracles_duel_log.duels(map(codec.load_record, found.records.values()))
    fields = codec.load_blob(found.fields[b"sums"], "sums").fields
    state = duel_fields.load_duel_state(fields["duel"]) if "duel" in fields else None
    assert oracles_duel_log.differences(state, duels) == []
    return duels
