"""What a learner does in a thread: apply records for a turn, and encode the state."""

from collections.abc import Callable, Iterator, Sequence

from app.domain.model import Model, ModelState
from app.domain.records import Record
from app.domain.reducer import Reducer, decoded, sound
from app.errors import StoreError
from app.learning.options import LearnerOptions
from app.storage.log import LogEntry
from app.storage.states import dump_part, dump_state

#: Records decoded before they are applied: alternating decode and apply for each record takes a
#: fifth longer for SOLAR-I, because the code of both does not fit the CPU caches.
DECODE_BATCH = 16
#: Approximate bytes of these records; larger ones are decoded one by one. A turn may end before it
#: reaches the last of them, and then they are decoded again.
DECODE_BYTES = 250_000


def encoded(reducer: Reducer, time: int, term: str) -> tuple[ModelState, list[bytes]]:
    """Return the state after the last record, and its stored fields; StoreError if unsound."""
    state = reducer.state()
    complaints = sound(state.model)
    if complaints:
        raise StoreError(f"at record {state.seq}: {'; '.join(complaints)}")
    return state, dump_state(state, time, term)


def encoded_part(reducer: Reducer) -> bytes:
    """Return the stored form of the learnt part of a record; StoreError if it is not sound."""
    part = reducer.part()
    if part is None:
        raise StoreError(f"record {reducer.seq + 1}: expected a part of it")
    complaints = sound(Model(reducer.config, part.weights, part.spread))
    if complaints:
        raise StoreError(f"in record {reducer.seq + 1}: {'; '.join(complaints)}")
    return dump_part(part)


def apply_for(
    reducer: Reducer,
    entries: Sequence[LogEntry],
    seconds: float,
    options: LearnerOptions,
    watch: Callable[[], None] = lambda: None,
) -> int:
    """Apply records for `seconds`, at least some pairs of the first; return the complete ones.

    `watch` is called after each record. The log is dense (I2).
    """
    ends, first = options.clock() + seconds, reducer.seq
    for entry, record in _decoded(entries, partly_learnt=reducer.learnt_pairs > 0):
        if entry.seq != reducer.seq + 1:
            raise StoreError(
                f"the log has a gap: expected record {reducer.seq + 1}, got {entry.seq}"
            )
        most = max(1, options.slice_work // reducer.pair_work)
        while not reducer.apply_part(entry.record, record, most):
            if options.clock() >= ends:
                return reducer.seq - first
        watch()
        if options.clock() >= ends:
            break
    return reducer.seq - first


def _decoded(
    entries: Sequence[LogEntry], *, partly_learnt: bool
) -> Iterator[tuple[LogEntry, Record | None]]:
    """Decode some records at a time; a first one that is partly learnt is not decoded again."""
    if partly_learnt:
        yield entries[0], None
        entries = entries[1:]
    for some in _batches(entries):
        yield from zip(some, [decoded(entry.record) for entry in some], strict=True)


def _batches(entries: Sequence[LogEntry]) -> Iterator[list[LogEntry]]:
    """Yield records in batches of up to DECODE_BATCH and DECODE_BYTES, or of one record."""
    batch, size = list[LogEntry](), 0
    for entry in entries:
        size += len(entry.record)
        if batch and (len(batch) == DECODE_BATCH or size > DECODE_BYTES):
            yield batch
            batch, size = [], len(entry.record)
        batch.append(entry)
    yield batch
