"""Promotion: a challenger takes the place of its leader's model.

A follower must first learn what its leader has learnt since, else these records would be forgotten.
So its committed state goes on with the records up to the end of the log, and the record that
replaces the model is appended only if the log still ends there. It is refused if one of the records
that the leader has not learnt yet replaces the model, or begins or ends a duel: such a change was
acknowledged, and the challenger was judged before it. Needs no compiler: the caller says where
records are folded.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import time
from typing import TypeAlias
from uuid import uuid4

from app.domain import codec
from app.domain.duels import DuelState
from app.domain.model import Model
from app.domain.model_config import ModelConfig, check_config
from app.domain.records import Replace, Retune
from app.errors import BadBlob, Changed, Fenced, StoreError
from app.storage.keys import follower_address, internal_event
from app.storage.log import REPEATED, AppendResult, LogEntry, NewRecord
from app.storage.states import StoredState
from app.storage.store import Store

#: Seconds that a promotion may take.
PROMOTION_SECONDS = 10.0
#: Records that are folded at once.
FOLDED_RECORDS = 256
#: Kinds of the records that no promotion passes over.
CHANGES = ("replace", "duel", "end-duel")
#: Kind of the blob that asks the process of trials for a fold.
FOLD = "fold"
#: Folds further records, and returns the record that replaces a leader of a config, for a reason.
FoldRecords: TypeAlias = Callable[[Sequence[bytes], ModelConfig, str], Awaitable[bytes]]
#: Begins a fold of records onto a model.
BeginFold: TypeAlias = Callable[[Model], AbstractAsyncContextManager[FoldRecords]]
#: Exchanges blobs for an answer, several times with the same process.
Exchanges: TypeAlias = Callable[
    [], AbstractAsyncContextManager[Callable[[Sequence[bytes]], Awaitable[bytes]]]
]


@asynccontextmanager
async def fold_in_process(exchanges: Exchanges, model: Model) -> AsyncIterator[FoldRecords]:
    """Fold in the process of trials; the model is sent once."""
    first = [codec.dump_record(Replace(model, FOLD))]
    async with exchanges() as ask:

        async def further(records: Sequence[bytes], leader: ModelConfig, reason: str) -> bytes:
            config = codec.dump_config(leader)
            fields = {"records": len(records), "leader": config, "reason": reason}
            sent = first.pop() if first else b""
            return await ask([sent, codec.dump_blob(FOLD, fields, {}), *records])

        yield further


async def promote(
    store: Store,
    leader: str,
    challenger: str | int,
    begin: BeginFold,
    event: str = "",
    judged: DuelState | None = None,
) -> int:
    """Replace a model by its follower, or by a version of its own; return the seq of the record.

    NoSuchModel or NoSuchVersion without a challenger, Fenced if records arrive faster than they are
    learnt. Changed if the model or its duel has changed since the duel was `judged`. With the same
    `event` it happens once.
    """
    event = event or internal_event("promotion", str(uuid4()))
    try:
        async with asyncio.timeout(PROMOTION_SECONDS) as limit:
            stored = await store.states.load(leader, with_part=False)
            before = await _append(
                store, leader, stored, NewRecord(event, b"", b"", repeated_only=True)
            )
            if before.outcome == REPEATED:
                return before.seq
            _check_duel(leader, judged, stored.state.duel)
            return await _promote(store, leader, stored, challenger, begin, event, limit)
    except TimeoutError:
        raise Fenced(
            f"model {leader}: feedback arrives faster than the challenger learns it; try again"
        ) from None


def _check_duel(leader: str, judged: DuelState | None, found: DuelState | None) -> None:
    """Raise Changed unless the duel is the one that was judged, and as much on as it was."""
    if judged is None:
        return
    if found is None or (found.id, found.ended) != (judged.id, judged.ended):
        raise Changed(f"model {leader}: the duel has changed since it was judged")


async def _promote(
    store: Store,
    leader: str,
    stored: StoredState,
    challenger: str | int,
    begin: BeginFold,
    event: str,
    limit: asyncio.Timeout,
) -> int:
    """Append the promotion; TimeoutError at the limit.

    It looks at the limit itself: before Python 3.12 a cancellation that arrives together with an
    answer of the store is lost (`storage/cancellation.py`).
    """
    committed, config = stored.state.seq, stored.state.model.config
    follows = isinstance(challenger, str)
    model, after, reason = await _challenger(store, leader, challenger, committed)
    async with begin(model) as fold:
        while not limit.expired():
            blob, tail = await fold([], config, reason), await store.log.tail(leader)
            while after < tail and not limit.expired():
                batch = await _next_records(store, leader, after, tail)
                for entry in [one for one in batch if one.seq > committed]:
                    config = _config_after(config, entry)
                records = [one.record for one in batch] if follows else []
                blob, after = await fold(records, config, reason), batch[-1].seq
            with suppress(Fenced):  # else more records have arrived
                record = NewRecord(event, b"", blob)
                return (await _append(store, leader, stored, record, after)).seq
        raise TimeoutError


async def _append(
    store: Store, leader: str, stored: StoredState, record: NewRecord, tail: int | None = None
) -> AppendResult:
    """Append a record to the log of this epoch; with `tail` only if the log ends there."""
    [appended] = await store.log.append(
        leader, stored.epoch, [record], limit=1 << 40, time=int(time() * 1000), tail=tail
    )
    return appended


async def _challenger(
    store: Store, leader: str, challenger: str | int, committed: int
) -> tuple[Model, int, str]:
    """Return the model of a challenger, the last record that it has learnt, and the reason."""
    if isinstance(challenger, int):
        version = (await store.versions.load(leader, challenger)).state
        return version.model, committed, f"promotion of version {challenger}"
    address = follower_address(leader, challenger)
    state = (await store.states.load(address, with_part=False)).state
    return state.model, state.seq, f"promotion of {challenger}"


async def _next_records(store: Store, leader: str, after: int, tail: int) -> list[LogEntry]:
    """Return the next records; StoreError if one is missing, NewerFormat for a newer release's."""
    batch = await store.log.read(leader, after, min(FOLDED_RECORDS, tail - after))
    codec.refuse_newer(*(entry.record for entry in batch))
    if [entry.seq for entry in batch] != [*range(after + 1, after + 1 + len(batch))] or not batch:
        raise StoreError(f"the log has a gap: expected record {after + 1}")
    return batch


def _config_after(config: ModelConfig, entry: LogEntry) -> ModelConfig:
    """Return the leader's config after a record that it has not learnt yet.

    Changed if the record replaces the model, or begins or ends a duel.
    """
    if any(codec.kind_is(entry.record, kind) for kind in CHANGES):
        raise Changed(f"record {entry.seq} changes the model or its duel, and is not learnt yet")
    with suppress(BadBlob, ValueError):  # the leader refuses a record that is not valid
        record = codec.load_record(entry.record)
        if isinstance(record, Retune):
            return check_config(record.retuned(config))
    return config
