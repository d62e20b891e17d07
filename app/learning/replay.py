"""Replay: apply the log again and compare the result bit for bit with the committed state."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

from app.domain import codec
from app.domain.impressions import PriorFeedback, on_request
from app.domain.learnt import StepWatcher
from app.domain.model import ModelState
from app.domain.records import Feedback
from app.domain.reducer import Reducer, decoded, sound
from app.errors import BadBlob, NewerFormat, NoSuchModel, Stalled, StoreError, Unavailable
from app.learning.cut_off import check_stored, is_cut_off
from app.storage.keys import follower_name, is_follower, leader_of
from app.storage.log import LogEntry
from app.storage.states import LogPosition
from app.storage.store import Store

#: Attempts to read a log that a learner trims at the same time.
REPLAY_ATTEMPTS = 10
#: Makes a watcher of a replay, given its first state and the committed state.
MakeWatcher = Callable[[ModelState, ModelState], StepWatcher]


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay from version `start`, and the committed state."""

    start: int
    end: int
    committed: ModelState
    replayed: ModelState
    skipped: int
    running: "LogReplay"

    def differences(self) -> list[str]:
        """Return the parts whose bits differ."""
        return _differences(self.replayed, self.committed)


def _differences(new: ModelState, old: ModelState) -> list[str]:
    """Return the parts of two states whose bits differ."""
    pairs = {
        "seq": (new.seq, old.seq),
        "chain": (new.chain, old.chain),
        "settings": (new.model.config, old.model.config),
        "weights": (new.model.weights.tobytes(), old.model.weights.tobytes()),
        "covariance": (new.model.spread.tobytes(), old.model.spread.tobytes()),
        "certainty": (new.model.certainty, old.model.certainty),
        "measures": (new.sums.tobytes(), old.sums.tobytes()),
        "duel": (new.duel, old.duel),
    }
    return [name for name, (one, other) in pairs.items() if one != other]


async def replay(
    store: Store,
    model: str,
    without: str | None = None,
    *,
    with_versions: bool = False,
    watch: MakeWatcher | None = None,
) -> Replay:
    """Apply the log from the oldest version that it continues, up to the committed state.

    With `without`, apply the log up to its end as if that source had never posted: skip its records
    and rebuild the records of others on the same requests. `with_versions` also compares all kept
    versions. `watch` is called at the start of each attempt. Stalled if the log has left the
    follower behind.
    """
    for _ in range(REPLAY_ATTEMPTS):
        committed = (await store.states.load(model)).state
        start = min(await store.states.versions(model), default=0)
        check = VersionCheck(store, model) if with_versions else None
        try:
            return await _replay(store, model, start, committed, without, check, watch)
        except (NoSuchModel, StoreError):  # trimmed in between?
            if await is_cut_off(store, model):
                raise Stalled(
                    f"model {follower_name(model)}: it is stalled and cannot be replayed: the log "
                    "begins after its first version; delete it and create it again"
                ) from None
            if start in await store.states.versions(model):
                raise
    raise StoreError(f"model {model}: the learner trims the log faster than it is read; try again")


async def _replay(
    store: Store,
    model: str,
    start: int,
    committed: ModelState,
    without: str | None,
    check: "VersionCheck | None",
    watch: MakeWatcher | None,
) -> Replay:
    if check:
        await check.begin(start)
    first = (await store.states.version(model, start)).state
    running = LogReplay(first, without, check, follows=is_follower(model))
    running.reducer.watcher = watch(first, committed) if watch else None
    until = committed.seq if without is None else await store.log.tail(model)
    await running.go_on(store, model, until)
    running.reducer.watcher = None
    return Replay(start, until, committed, running.reducer.state(), running.skipped, running)


class LogReplay:
    """A replay that can continue when more records arrive."""

    def __init__(
        self,
        state: ModelState,
        without: str | None,
        check: "VersionCheck | None" = None,
        *,
        follows: bool = False,
    ) -> None:
        self.reducer = Reducer(state, follows=follows)
        self.at, self.skipped = state.seq, 0
        self.check = check
        self.kept_by_replacement = 0  # records that were skipped before a replacement
        rule = state.model.config.counts_abandoned
        self._filter = None if without is None else SourceFilter(without, rule)

    async def go_on(self, store: Store, model: str, until: int) -> None:
        """Apply the records up to and including `until`, except those that are skipped."""
        async for entry in entries(store, model, self.at, until):
            refuse_newer_entry(entry)
            record = entry.record if self._filter is None else self._filter.keep(entry.record)
            if record is None:
                self.skipped += 1
            else:
                if entry.replaces:
                    self.kept_by_replacement = self.skipped
                self.reducer.apply(record)
            self.at = entry.seq
            if self.check:
                await self.check.compare(self.reducer)


class VersionCheck:
    """Compares the kept versions of a model with a replay.

    Hourly and named versions from before the start of the replay are only decoded: the log does not
    lead to them.
    """

    def __init__(self, store: Store, model: str) -> None:
        self._store, self._model = store, model
        self._at: dict[int, list[str]] = {}  # seq → keys of its versions
        self.problems: list[str] = []

    async def begin(self, start: int) -> None:
        """Find the versions; decode those from before the start."""
        for one in await self._store.versions.placed(self._model):
            self._at.setdefault(one.seq, []).append(one.key)
        for seq in [one for one in sorted(self._at) if one < start]:
            await self._decoded(seq)

    async def compare(self, reducer: Reducer) -> None:
        """Compare the versions after the last record of a replay."""
        if reducer.seq in self._at:
            for state in await self._decoded(reducer.seq):
                if _differences(reducer.state(), state):
                    self.problems.append(f"version {state.seq}: the replay differs from it")

    async def _decoded(self, seq: int) -> list[ModelState]:
        found = []
        for key in self._at[seq]:
            try:
                state = (await self._store.states.load_at(self._model, key)).state
            except BadBlob as error:
                self.problems.append(f"version {seq}: {error}")
            except NoSuchModel:  # dropped in between
                continue
            else:
                found += [state] if state.seq == seq else []  # else the name was used again
        return found


async def leads_to(store: Store, model: str, state: ModelState, position: LogPosition) -> bool:
    """Whether the log leads from a state to a position; False if it lacks a record between them."""
    chain = state.chain
    try:
        async for entry in entries(store, model, state.seq, position[1]):
            chain = codec.next_chain(chain, entry.record)
    except Unavailable:
        raise
    except StoreError:
        return False
    return state.seq <= position[1] and chain == position[2]


async def batches(
    store: Store, model: str, after: int, until: int
) -> AsyncIterator[list[LogEntry]]:
    """Yield the records after seq `after` up to `until`; StoreError if one is missing (I2)."""
    while after < until:
        batch = await store.log.read(model, after, min(256, until - after))
        dense = [entry for at, entry in enumerate(batch, start=after + 1) if entry.seq == at]
        after += len(dense)
        yield dense
        if not batch or len(dense) < len(batch):
            raise StoreError(f"the log has a gap: expected record {after + 1}")


async def entries(store: Store, model: str, after: int, until: int) -> AsyncIterator[LogEntry]:
    """Yield the same records one by one."""
    async for batch in batches(store, model, after, until):
        for entry in batch:
            yield entry


def refuse_newer_entry(entry: LogEntry) -> None:
    """Raise NewerFormat with the seq of the record if a newer release wrote it."""
    try:
        codec.refuse_newer(entry.record)
    except NewerFormat as error:
        raise NewerFormat(f"record {entry.seq}: {error}") from None


#: The fields of a record that come from earlier feedback on its request.
_NO_PRIOR: dict[str, Any] = dict.fromkeys(
    ("clicked_before", "rounds", "counted", "gains_before", "examined_before")
)


class SourceFilter:
    """Drops the records of a source and rebuilds those of others on the same requests.

    `NAME` is a source of this name, of any API key too (`KEY/NAME`). `KEY/` is all that a key sent.
    `counts_abandoned` is the rule of the model.
    """

    def __init__(self, source: str, counts_abandoned: bool = False) -> None:
        self._source, self._counts_abandoned = source, counts_abandoned
        #: The feedback of each request, and whether the source was part of it.
        self._requests: dict[str, tuple[PriorFeedback, bool]] = {}

    def keep(self, blob: bytes) -> bytes | None:
        """Return the record as it would be without the source; None to drop it."""
        try:
            record = codec.load_record(blob)
        except BadBlob:
            return blob
        if not isinstance(record, Feedback):
            return blob
        if record.submitted is None:
            return None if self._is_dropped(record.source) else blob
        return self._on_request(record, blob)

    def _on_request(self, record: Feedback, blob: bytes) -> bytes | None:
        so_far, touched = self._before(record)
        if self._is_dropped(record.source):
            self._requests[record.query] = (so_far, True)
            return None
        try:
            bare = replace(record, **_NO_PRIOR)
            rebuilt, after = on_request(bare, so_far, self._counts_abandoned)
        except ValueError:  # rejected, with and without the source
            return blob
        self._requests[record.query] = (after, touched)
        return codec.dump_record(rebuilt) if touched else blob

    def _is_dropped(self, source: str) -> bool:
        key, slash, name = source.partition("/")
        if self._source.endswith("/"):
            return key == self._source[:-1]
        return self._source == source or (slash != "" and self._source == name)

    def _before(self, record: Feedback) -> tuple[PriorFeedback, bool]:
        """Return the feedback of a request before this record; a first record has none."""
        nothing = PriorFeedback.load(b"")
        if record.counted is None:
            return nothing, False
        clicks = nothing.clicks if record.clicked_before is None else record.clicked_before
        rounds = nothing.rounds if record.rounds is None else record.rounds
        prior = record.counted, record.gains_before, record.examined_before
        so_far = PriorFeedback(clicks, rounds, *prior)
        return self._requests.get(record.query, (so_far, False))


async def verify(store: Store, model: str, watch: MakeWatcher | None = None) -> list[str]:
    """Check a model and its versions on a live store (I2, I3, I4, I5, I16); return what is wrong.

    A stalled follower that the log has left behind is checked without the log. NewerFormat if a
    newer release wrote a part of it: only that release can check it.
    """
    problems = await _compared(store, model, watch)
    if problems and await is_cut_off(store, model):
        return await check_stored(store, model)
    return problems


async def _compared(store: Store, model: str, watch: MakeWatcher | None) -> list[str]:
    """Compare a model with the replay of its log; return what is wrong."""
    try:
        found = await replay(store, model, with_versions=True, watch=watch)
        tail = await store.log.tail(model)
        async for entry in entries(store, model, found.end, tail):
            refuse_newer_entry(entry)
    except (BadBlob, StoreError) as error:
        if isinstance(error, Unavailable):
            raise
        return [str(error)]
    complaints = [
        f"{name}: the replay differs from the committed state" for name in found.differences()
    ]
    if found.committed.seq > tail:
        complaints.append(f"seq: the state is at {found.committed.seq}, but the log ends at {tail}")
    complaints += found.running.check.problems if found.running.check else []
    if is_follower(model):
        complaints += await _check_leader(store, model, found.committed)
    complaints += await _check_part(store, model, found)
    return complaints + sound(found.committed.model)


async def _check_leader(store: Store, model: str, committed: ModelState) -> list[str]:
    """Check that the log leads from the state of a follower to that of its leader."""
    leader = await store.followers.progress(leader_of(model))
    if await leads_to(store, model, committed, leader.position):
        return []
    return ["chain: the log does not lead to the state of the leader"]


async def _check_part(store: Store, model: str, found: Replay) -> list[str]:
    """Compare the committed part of the next record with a replay.

    Learners ignore the part of a record that the log has lost.
    """
    part, reducer = found.committed.part, found.running.reducer
    if part is None:
        return []
    for entry in await store.log.read(model, found.end, 1):
        if codec.next_chain(reducer.chain, entry.record) == part.chain:
            reducer.apply_part(entry.record, decoded(entry.record), part.pairs)
            if not part.equals(reducer.part()):
                return [f"record {entry.seq}: the replay differs from its committed part"]
    return []
