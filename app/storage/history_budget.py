"""The memory that all histories may use: 5 % of the store, and nothing above 80 % of it.

A sorted set has the models that have a history. A model is admitted while there is room for one
more history of the largest size, and stays in the set until its history has expired. Learners renew
the entries of their models. They never wait for an answer: a commit uses the last one.
"""

import asyncio
from contextlib import suppress
from math import inf
from typing import NamedTuple

from app.errors import SolarError
from app.storage.calls import ScriptRunner
from app.storage.health import Servers
from app.storage.history import HISTORY_BYTES
from app.storage.keys import HISTORIES

#: Share of the smallest memory limit for all histories, and the used share of the fullest server
#: above which there are no points.
HISTORY_SHARE, FULL_SHARE = 0.05, 0.8
#: Seconds for which memory figures, an admission and a refusal hold, and until a failed question is
#: repeated.
MEMORY_SECONDS, ADMITTED_SECONDS, REFUSED_SECONDS, FAILED_SECONDS = 10.0, 600.0, 60.0, 10.0
#: Models that a process remembers.
MOST_REMEMBERED = 20_000


class _Entry(NamedTuple):
    admitted: bool | None  # None: unknown
    ends: float


class HistoryBudget:
    """Which models may add points to their histories, as last seen by this process."""

    def __init__(self, calls: ScriptRunner, servers: Servers) -> None:
        self._calls, self._servers = calls, servers
        self._most = 0  # models with a history
        self._full: bool | None = None  # None: unknown
        self._next_check = -inf  # of the memory
        self._entries: dict[str, _Entry] = {}

    def is_full(self) -> bool:
        """Whether a server had too little room for any history at the last check."""
        return self._full is True

    def admits(self, model: str) -> bool:
        """Whether there was room for the history of a model at the last check."""
        entry = self._entries.get(model)
        return self._full is False and entry is not None and entry.admitted is True

    def refuses(self, model: str) -> bool:
        """Whether there was no room for it; False if that is unknown."""
        entry = self._entries.get(model)
        return self.is_full() or (entry is not None and entry.admitted is False)

    def is_stale(self, model: str) -> bool:
        """Whether the memory, or the entry of a model, is to be checked again."""
        return _now() >= min(self._next_check, self._entry_ends(model))

    async def renew(self, model: str) -> None:
        """Check the memory and the entry of a model, what of them is due; raise no error."""
        with suppress(SolarError):
            if _now() >= self._next_check:
                await self._check_memory()
            if _now() >= self._entry_ends(model):
                await self._ask(model)

    def _entry_ends(self, model: str) -> float:
        return self._entries[model].ends if model in self._entries else -inf

    async def _check_memory(self) -> None:
        self._next_check = _now() + MEMORY_SECONDS  # at once: one check for all sessions
        try:
            found = await self._servers.memory()
        except BaseException:
            self._next_check, self._full = -inf, None
            raise
        limits = [one.limit for one in found if one.limit]
        self._most = int(HISTORY_SHARE * min(limits)) // HISTORY_BYTES if limits else 1 << 53
        self._full = max(one.share for one in found) > FULL_SHARE

    async def _ask(self, model: str) -> None:
        if self._full is None:  # another session has just begun to check the memory
            return
        known = self._entries.get(model)
        self._note(model, known and known.admitted, FAILED_SECONDS)  # if the question fails
        admitted = bool(await self._calls.script("admit", [HISTORIES], [model, self._most]))
        self._note(model, admitted, ADMITTED_SECONDS if admitted else REFUSED_SECONDS)

    def _note(self, model: str, admitted: bool | None, seconds: float) -> None:
        if len(self._entries) >= MOST_REMEMBERED:
            self._entries.clear()
        self._entries[model] = _Entry(admitted, _now() + seconds)


def _now() -> float:
    return asyncio.get_running_loop().time()
