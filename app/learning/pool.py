"""How many models a process should learn: as many as any other, rounded up.

Who learns says so in the store, with a lease; the store counts. A process that has more than its
share gives some back, and others take them. Nobody decides for all, and nothing depends on it: a
model that nobody else takes is taken again.
"""

import logging
from collections.abc import Callable
from math import inf
from time import monotonic
from uuid import uuid4

from app.errors import SolarError
from app.storage.store import Store

log = logging.getLogger("solar.sharing")


class LearnerShare:
    """The share of one process, looked at again several times a lease."""

    def __init__(self, store: Store, lease: float, clock: Callable[[], float] = monotonic) -> None:
        self._store, self._lease, self._name = store, lease, str(uuid4())
        self._clock = clock
        self._next, self._learners = 0.0, 1
        self._works = True

    async def most(self, models: int) -> float:
        """So many models it may have; all of them while nobody can tell."""
        if self._clock() >= self._next:
            self._next = self._clock() + self._lease / 5
            self._works = await self._count()
        return -(-models // self._learners) if self._works else inf

    async def _count(self) -> bool:
        try:
            self._learners = max(1, await self._store.leases.present(self._name, self._lease))
        except SolarError as error:
            if self._works:
                log.warning("models are not shared out: %s", error)
            return False
        return True

    async def leave(self) -> None:
        """Its share is for the others now."""
        try:
            await self._store.leases.absent(self._name)
        except SolarError as error:
            log.info("%s", error)
