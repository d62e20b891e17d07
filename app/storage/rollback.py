"""Has the store gone back (I12)? A failover to a replica that lagged may have taken some of it.

A state's place is its epoch, its seq and its chain, which depends on every record before. A place
that is behind, or at the same seq with another chain, tells by itself; one that is ahead was
reached over other records if the log does not lead there.
"""

from app.domain.codec import next_chain
from app.storage.states import LogPosition
from app.storage.store import Store


async def rolled_back(store: Store, model: str, before: LogPosition, now: LogPosition) -> bool:
    """Whether a model has lost what it had `before`; what cannot be known counts as no."""
    if (now[0], now[1]) <= (before[0], before[1]):
        return now != before
    if now[0] != before[0] or await _leads(store, model, before, now):
        return False
    return (await store.states.position(model))[0] == now[0]  # else the log is that of another life


async def _leads(store: Store, model: str, before: LogPosition, now: LogPosition) -> bool:
    """Whether the log leads from one place to another; also if it does not reach so far back."""
    (_, seq, chain), (_, until, wanted) = before, now
    while seq < until:
        entries = await store.log.read(model, seq, min(256, until - seq))
        if not entries or entries[0].seq != seq + 1:
            return True
        for entry in entries:
            seq, chain = entry.seq, next_chain(chain, entry.record)
    return chain == wanted
