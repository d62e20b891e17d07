"""Impressions on their way to the store: grouped, awaited, never in the way of an answer.

All requests of one moment share one round trip. A request waits `patience` seconds at most; then it
is answered without having been remembered, and feedback on it will find nothing.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from app.errors import SolarError
from app.storage.store import Store


@dataclass(slots=True)
class Group:
    """Impressions that are written together."""

    written: asyncio.Future[bool]
    shown: dict[tuple[str, int], dict[str, bytes]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def settle(self, written: bool) -> None:
        """Tell all who wait."""
        if not self.written.done():
            self.written.set_result(written)


class ImpressionWriter:
    """Writes impressions; one group is on its way while the next one gathers."""

    def __init__(self, store: Store, seconds: float, patience: float = 0.05) -> None:
        self._store, self._seconds, self._patience = store, seconds, patience
        self._next: Group | None = None
        self._writing: asyncio.Task[None] | None = None

    def remember(self, model: str, epoch: int, request: str, shown: bytes) -> asyncio.Future[bool]:
        """Whether it was written, once that is known; awaiting it is up to the caller."""
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = Group(loop.create_future())
            loop.call_later(self._patience, self._next.settle, False)
        group = self._next
        group.shown[model, epoch][request] = shown
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return group.written

    async def _write(self) -> None:
        try:
            while self._next is not None:
                group, self._next = self._next, None
                await self._write_group(group)
        finally:
            self._writing = None

    async def _write_group(self, group: Group) -> None:
        """A group whose time is over is not written any more."""
        try:
            for (model, epoch), shown in group.shown.items():
                if not group.written.done():
                    await self._store.log.remember(model, epoch, shown, self._seconds)
            group.settle(True)
        except SolarError:
            group.settle(False)

    async def close(self) -> None:
        """Let what is on its way arrive."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
