"""Apply the log again, and compare bit for bit with what was committed."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from app.domain import codec
from app.domain.impressions import PriorFeedback, on_request
from app.domain.model import ModelState
from app.domain.records import Feedback
from app.domain.reducer import Reducer, sound
from app.errors import BadBlob, NoSuchModel, StoreError, Unavailable
from app.storage.log import LogEntry
from app.storage.store import Store

#: A live log may be trimmed so often while it is read.
REPLAY_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Replay:
    """What applying the log from version `start` gave, next to what is committed."""

    start: int
    end: int
    committed: ModelState
    replayed: ModelState
    skipped: int
    running: "LogReplay"

    def differences(self) -> list[str]:
        """Where the two are not the same bits; empty if they are."""
        ours, theirs = self.replayed, self.committed
        pairs = {
            "seq": (ours.seq, theirs.seq),
            "chain": (ours.chain, theirs.chain),
            "settings": (ours.model.config, theirs.model.config),
            "weights": (ours.model.weights.tobytes(), theirs.model.weights.tobytes()),
            "covariance": (ours.model.spread.tobytes(), theirs.model.spread.tobytes()),
            "measures": (ours.sums.tobytes(), theirs.sums.tobytes()),
        }
        return [name for name, (one, other) in pairs.items() if one != other]


async def replay(store: Store, model: str, without: str | None = None) -> Replay:
    """Apply the log from the oldest kept version up to the committed state.

    With `without`, up to the end of the log, as if that source had never posted: its records are
    left out, and what others did on the same requests is built anew.
    """
    for _ in range(REPLAY_ATTEMPTS):
        committed = (await store.states.load(model)).state
        start = min(await store.states.versions(model), default=0)
        try:
            return await _replay(store, model, start, committed, without)
        except (NoSuchModel, StoreError):  # trimmed away meanwhile?
            if start in await store.states.versions(model):
                raise
    raise StoreError(f"model {model}: its log is trimmed faster than it can be read")


async def _replay(
    store: Store, model: str, start: int, committed: ModelState, without: str | None
) -> Replay:
    running = LogReplay((await store.states.version(model, start)).state, without)
    until = committed.seq if without is None else await store.log.tail(model)
    await running.go_on(store, model, until)
    return Replay(start, until, committed, running.reducer.state(), running.skipped, running)


class LogReplay:
    """A replay under way: it can go on when more records have come."""

    def __init__(self, state: ModelState, without: str | None) -> None:
        self.reducer, self.at, self.skipped = Reducer(state), state.seq, 0
        self._without = None if without is None else Without(without)

    async def go_on(self, store: Store, model: str, until: int) -> None:
        """Apply the records up to and with `until`, less those that are left out."""
        async for entry in entries(store, model, self.at, until):
            record = entry.record if self._without is None else self._without.keep(entry.record)
            if record is None:
                self.skipped += 1
            else:
                self.reducer.apply(record)
            self.at = entry.seq


async def batches(
    store: Store, model: str, after: int, until: int
) -> AsyncIterator[list[LogEntry]]:
    """The records after one seq up to another; StoreError if one is missing (I2)."""
    while after < until:
        batch = await store.log.read(model, after, min(256, until - after))
        dense = [entry for at, entry in enumerate(batch, start=after + 1) if entry.seq == at]
        after += len(dense)
        yield dense
        if not batch or len(dense) < len(batch):
            raise StoreError(f"the log has a gap: expected record {after + 1}")


async def entries(store: Store, model: str, after: int, until: int) -> AsyncIterator[LogEntry]:
    """The same, one by one."""
    async for batch in batches(store, model, after, until):
        for entry in batch:
            yield entry


class Without:
    """Leaves a source out of a log; what others did on requests that it touched is built anew."""

    def __init__(self, source: str) -> None:
        self._source = source
        #: What has come of each request, and whether the source touched it.
        self._requests: dict[str, tuple[PriorFeedback, bool]] = {}

    def keep(self, blob: bytes) -> bytes | None:
        """The record as it would have been, None if it would not."""
        try:
            record = codec.load_record(blob)
        except BadBlob:
            return blob
        if not isinstance(record, Feedback):
            return blob
        if record.submitted is None:
            return None if record.source == self._source else blob
        return self._on_request(record, blob)

    def _on_request(self, record: Feedback, blob: bytes) -> bytes | None:
        so_far, touched = self._before(record)
        if record.source == self._source:
            self._requests[record.query] = (so_far, True)
            return None
        try:
            bare = replace(record, clicked_before=None, rounds=None, counted=None)
            rebuilt, after = on_request(bare, so_far)
        except ValueError:  # it was rejected then, and would be now
            return blob
        self._requests[record.query] = (after, touched)
        return codec.dump_record(rebuilt) if touched else blob

    def _before(self, record: Feedback) -> tuple[PriorFeedback, bool]:
        """What had come of a request before this record; its first one starts anew."""
        nothing = PriorFeedback.load(b"")
        if record.counted is None:
            return nothing, False
        clicks = nothing.clicks if record.clicked_before is None else record.clicked_before
        rounds = nothing.rounds if record.rounds is None else record.rounds
        so_far = PriorFeedback(clicks, rounds, record.counted)
        return self._requests.get(record.query, (so_far, False))


async def verify(store: Store, model: str) -> list[str]:
    """What is wrong with a model on a live store: I2, I3, I4, I5, I16; empty if nothing is."""
    try:
        found = await replay(store, model)
        tail = await store.log.tail(model)
        async for _ in entries(store, model, found.end, tail):
            pass
    except (BadBlob, StoreError) as error:
        if isinstance(error, Unavailable):
            raise
        return [str(error)]
    complaints = [f"{name}: the replay gives other bits" for name in found.differences()]
    if found.committed.seq > tail:
        complaints.append(f"seq: the state is at {found.committed.seq}, the log ends at {tail}")
    return complaints + sound(found.committed)
