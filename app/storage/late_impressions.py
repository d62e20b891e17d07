"""Removal of impressions that the store wrote after their requests were answered."""

from collections.abc import Sequence
from hashlib import sha1
from typing import Any, NamedTuple

from app.storage.calls import ScriptRunner
from app.storage.keys import keys_of
from app.storage.log import NewImpression


class LateImpression(NamedTuple):
    """An impression without its content: its request, its tenant and its SHA-1 (hex)."""

    request: str
    tenant: str
    digest: str

    @classmethod
    def of(cls, shown: NewImpression) -> "LateImpression":
        """Return an impression without its content."""
        digest = sha1(shown.shown, usedforsecurity=False).hexdigest()
        return cls(shown.request, shown.tenant, digest)


class LateImpressions:
    """The late impressions of all models."""

    def __init__(self, calls: ScriptRunner) -> None:
        self._calls = calls

    async def forget(
        self, model: str, epoch: int, late: Sequence[LateImpression], expire: int
    ) -> None:
        """Remove impressions of one write, which expire at `expire`; safe to resend.

        One stays if it has feedback, or if its request has another one by now, or the same again.
        """
        keys, values = keys_of(model), list[Any]([expire])
        for one in late:
            values += (one.tenant, one.digest)
        names = [keys.impression(epoch, one.request) for one in late]
        await self._calls.script("forget", names, values)
