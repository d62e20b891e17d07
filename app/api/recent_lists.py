"""Recent lists of a model that are still remembered, for a tenant, in bounded memory."""

from collections.abc import Sequence
from typing import NamedTuple

from app.api.dependencies import Service
from app.domain.impressions import Impression, PriorFeedback
from app.domain.model import Positions
from app.errors import Unreadable
from app.serving.served_model import ServedModel
from app.storage.batching import Held
from app.storage.log import StoredImpression

#: The most bytes of impressions that are loaded for one answer; larger lists are left out.
RECENT_BYTES = 4_000_000
#: Copies of an impression in memory: as received, and the answer.
RECENT_COPIES = 2


class RecentList(NamedTuple):
    """A list as it was shown, and the positions of the clicks on it so far."""

    request: str
    shown: Impression
    clicks: Positions


async def recent_lists(
    service: Service, served: ServedModel, tenant: str, limit: int, held: Held
) -> list[RecentList]:
    """Return up to `limit` recent lists that the tenant may see, newest first.

    Expired and damaged ones are left out.
    """
    model, log = (served.name, served.epoch), service.store.log
    requests = await log.recent_requests(*model)
    held.add(RECENT_COPIES * RECENT_BYTES if requests else 0)
    found: list[RecentList] = []
    most = RECENT_BYTES
    while requests and len(found) < limit:
        next_ones, requests = requests[:limit], requests[limit:]
        stored = await log.load_small_impressions(*model, next_ones, most)
        read = [one for one in stored if isinstance(one, StoredImpression)]
        most -= sum(len(one.shown) + len(one.accumulated) for one in read)
        found += _readable(next_ones, stored, tenant, served.config.n)
    return found[:limit]


def _readable(
    requests: Sequence[str],
    stored: Sequence[StoredImpression | int | None],
    tenant: str,
    n: int,
) -> list[RecentList]:
    """Decode the lists of a tenant; leave out the others and damaged ones."""
    found = []
    for request, one in zip(requests, stored, strict=True):
        if isinstance(one, StoredImpression) and one.is_open_to(tenant):
            try:
                shown = Impression.load(one.shown)
                clicks = PriorFeedback.load(one.accumulated).clicks
            except (Unreadable, KeyError):
                continue
            if _fits(shown, n):
                found.append(RecentList(request, shown, clicks))
    return found


def _fits(shown: Impression, n: int) -> bool:
    count = len(shown.ids)
    return shown.documents.shape == (count, n) and shown.submitted.shape == (count,) and count > 0
