"""Detection of a version rollback in the store (I12), as after a failover to a lagging replica.

A position is epoch, seq and chain; the chain depends on every earlier record. A position that is
behind, or at the same seq with another chain, shows a rollback. A position that is ahead shows one
if the log does not lead to it from the earlier position.
"""

from app.domain.codec import next_chain
from app.storage.states import LogPosition
from app.storage.store import Store


async def rolled_back(store: Store, model: str, before: LogPosition, now: LogPosition) -> bool:
    """Whether a model has lost records up to `before`; False if the log is too short to know."""
    if (now[0], now[1]) <= (before[0], before[1]):
        return now != before
    if now[0] != before[0] or await _leads(store, model, before, now):
        return False
    return (await store.states.position(model))[0] == now[
        0
    ]  # else the log belongs to another epoch


async def _leads(store: Store, model: str, before: LogPosition, now: LogPosition) -> bool:
    """Whether the log leads from `before` to `now`; True if it was trimmed in between."""
    (_, seq, chain), (_, until, wanted) = before, now
    while seq < until:
        entries = await store.log.read(model, seq, min(256, until - seq))
        if not entries or entries[0].seq != seq + 1:
            return True
        for entry in entries:
            seq, chain = entry.seq, next_chain(chain, entry.record)
    return chain == wanted
