"""Copies of beacon events: left out before a list is loaded or a record is built."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from app.api.auth import read_keys
from app.api.beacon_events import NamedEvent
from app.api.dependencies import Service
from app.api.routers.feedback import APPEND_SECONDS
from app.errors import NoSuchModel
from app.serving.served_model import ServedModel
from app.storage.log import NOT_REPEATED, NewRecord

#: For fewer events it is not worth to ask the store first whether it knows them.
MANY = 20


def without_recent(
    service: Service, served: ServedModel, events: Sequence[NamedEvent], counts: Counter[str]
) -> list[NamedEvent]:
    """Return the events that are no copies of recent ones of this worker."""
    found = []
    for one in events:
        outcome = service.beacon_limits.outcome_of_copy(recent_name(served, one.event_id))
        if outcome is None:
            found.append(one)
        else:
            counts[outcome] += 1
    return found


async def without_stored(
    service: Service, served: ServedModel, events: Sequence[NamedEvent], counts: Counter[str]
) -> list[NamedEvent]:
    """Return the events that the store does not know: copies cost no list and no record.

    With several tenants it is not known yet whose events they are: none is left out.
    """
    tenant = _only_tenant(service.settings.keys)
    if tenant is None or not served.epoch:
        return list(events)
    asked = [NewRecord(one.event_id, b"", b"", "", tenant=tenant, repeated_only=True)
             for one in events]  # fmt: skip
    window = service.settings.dedupe_window
    try:
        async with asyncio.timeout(APPEND_SECONDS):
            answers = await service.store.log.append(
                served.name, served.epoch, asked, limit=0, time=0, dedupe=window
            )
    except NoSuchModel:  # it may have been created again
        return list(events)
    found = []
    for one, answer in zip(events, answers, strict=True):
        if answer.outcome == NOT_REPEATED:
            found.append(one)
        else:
            counts["duplicate"] += 1
            service.beacon_limits.note(recent_name(served, one.event_id), "duplicate")
    return found


@lru_cache(maxsize=1)
def _only_tenant(keys: str) -> str | None:
    """Return the tenant of all API keys; None if there are several."""
    tenants = {key.tenant for key in read_keys(keys)} or {""}
    return tenants.pop() if len(tenants) == 1 else None


def recent_name(served: ServedModel, event_id: str) -> str:
    """Return the name of a recent event; a model that is created again has none."""
    return f"{served.epoch} {served.name} {event_id}"
