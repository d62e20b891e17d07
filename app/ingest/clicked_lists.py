"""Lists that are remembered longer because they were clicked: purchases come late.

They may use a quarter of the store's memory. What all workers have kept is counted in the store by
slices of time (`Servers.exchange_kept`); each worker adds its own since then. Beyond the quarter a
clicked list is remembered as long as the others.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import time

from app.errors import SolarError
from app.storage.store import Store

#: The share of the store's memory that clicked lists may use.
SHARE = 0.25
#: Seconds between two exchanges with other workers.
CLICKED_LISTS_SECONDS = 1.0
#: Bytes of a list in the store besides its content.
LIST_BYTES = 300


class ClickedLists:
    """How many bytes of clicked lists are kept, and for how long one may be."""

    def __init__(
        self, store: Store, seconds: float, others: float, report: Callable[[bool], None]
    ) -> None:
        """`seconds` is the lifetime of a clicked list, `others` that of any other list.

        `report` gets for each clicked list whether it is remembered longer.
        """
        self._store, self._seconds, self._report = store, seconds, report
        self._longer = seconds > others
        self._room, self._kept, self._new = 1 << 62, 0, 0

    def lifetime(self, size: int) -> int:
        """Return the milliseconds for which a list is kept from its first click; 0: as it is."""
        fits = self._kept + self._new + size + LIST_BYTES <= self._room
        return int(self._seconds * 1000) if self._longer and fits else 0

    def count(self, size: int, lifetime: int) -> None:
        """Count a list whose first click is in the log, with what `lifetime` returned for it."""
        if self._longer:
            self._report(lifetime > 0)
        if lifetime:
            self._new += size + LIST_BYTES

    def count_feedback(self, size: int) -> None:
        """Count the bytes by which what has come of a clicked list grew, also of one not kept."""
        if self._longer:
            self._new += size

    async def exchange(self) -> None:
        """Add what is new to the count of all workers, and read that count."""
        new, self._new = self._new, 0
        try:
            kept, limit = await self._store.servers.exchange_kept(time(), new, self._seconds)
        except BaseException:
            self._new += new
            raise
        self._kept, self._room = kept, int(SHARE * limit) if limit else 1 << 62

    async def exchange_repeatedly(self) -> None:
        """Exchange the counts until cancelled."""
        while True:
            with suppress(SolarError):
                await self.exchange()
            await asyncio.sleep(CLICKED_LISTS_SECONDS)
