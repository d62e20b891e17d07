"""Weights in memory that rank only in duels: those of followers, and of kept versions in duels.

Followers are known by their addresses (`storage/keys.py`), which no user can send. A kept version
is loaded once, when its duel is first seen, so /rank reads nothing from the store.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from app.domain.duel_lists import Sides
from app.domain.duels import SUBMITTED, VERSION
from app.domain.followers import may_duel
from app.errors import NoSuchModel, SolarError, Unreadable
from app.ranking.arrays import Floats
from app.serving.served_model import ServedModel
from app.storage.keys import follower_address, follower_name, keys_of, leader_of
from app.storage.states import LogPosition, StoredWeights
from app.storage.store import Store

log = logging.getLogger("solar.serving")


class FollowerCache:
    """Holds the followers of all models and keeps them up to date; see `WeightCache`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.serving: dict[str, ServedModel] = {}  # by address
        self.leaders: dict[str, str] = {}  # by the follower's name
        self.stalled: set[str] = set()  # addresses
        self._unreadable: set[str] = set()
        self._versions: dict[str, tuple[tuple[int, int], Floats]] = {}  # by the model's name

    # ---- sides of a duel ----

    def sides(self, served: ServedModel, tail: int) -> Sides | None:
        """Return the weights of both sides of a model's duel; None if a side is not ready.

        `tail` is the last record in the model's log.
        """
        if served.duel is None or not served.duel.is_on:
            return None
        settings, champion = served.duel.settings, served.weights
        if settings.champion:
            ahead = self._ready(served, settings.champion, tail)
            if ahead is None:
                return None
            champion = ahead
        if settings.challenger == SUBMITTED:
            return Sides(champion, None)
        if settings.challenger == VERSION:
            challenger = self._version(served)
        else:
            challenger = self._ready(served, settings.challenger, tail)
        return None if challenger is None else Sides(champion, challenger)

    def _ready(self, leader: ServedModel, name: str, tail: int) -> Floats | None:
        """Return the weights of a follower that may duel."""
        address = follower_address(leader.name, name)
        found = self.serving.get(address)
        if found is None or found.weights.shape != leader.weights.shape:
            return None
        behind = max(tail, leader.version) - found.version
        return found.weights if may_duel(behind, stalled=address in self.stalled) else None

    # ---- kept versions ----

    def _version(self, served: ServedModel) -> Floats | None:
        which, weights = self._versions.get(served.name, (None, served.weights))
        same = which == _version_of(served) and weights.shape == served.weights.shape
        return weights if same else None

    async def load_version(self, served: ServedModel) -> None:
        """Load the version in a model's duel, unless it is there; forget it after the duel."""
        wanted = _version_of(served)
        if wanted is None:
            self._versions.pop(served.name, None)
        elif self._version(served) is None:
            key = keys_of(served.name).dueling(*wanted)
            with suppress(SolarError):  # the next check tries again
                found = await self._store.states.load_weights_at(served.name, key)
                self._versions[served.name] = wanted, found.weights

    # ---- followers ----

    async def load(self, address: str) -> None:
        """Load the committed weights of a follower; drop one that was deleted."""
        try:
            found = await self._store.states.load_weights(address)
            await self._read_stalled([address])
        except NoSuchModel:
            self.drop(address)
        except Unreadable as error:
            self._damage(address, error)
        else:
            self._take(address, found)

    async def addresses(self) -> Sequence[str]:
        """Read the names of all followers; return their addresses, also those to be dropped."""
        self.leaders = await self._store.followers.leaders()
        named = {follower_address(leader, name) for name, leader in self.leaders.items()}
        return [*(named | self.serving.keys())]

    async def refresh(self, addresses: Sequence[str]) -> None:
        """Compare some followers with the store, and load those that have changed."""
        if not addresses:
            return
        positions = await self._store.states.positions(addresses)
        changed = [address for address in positions if self._has_changed(address, positions)]
        await self._read_stalled(addresses)
        async for address, found in self._store.states.load_many(changed):
            if isinstance(found, Unreadable):
                self._damage(address, found)
            else:
                self._take(address, found)

    def _has_changed(self, address: str, positions: dict[str, LogPosition | None]) -> bool:
        """Whether the store has other weights of a follower; drop one that was deleted."""
        if positions[address] is None:
            self.drop(address)
            return False
        before = self.serving.get(address)
        return before is None or before.position != positions[address]

    async def _read_stalled(self, addresses: Sequence[str]) -> None:
        """Read which followers are stalled, with one read for each leader."""
        leaders = sorted({leader_of(address) for address in addresses})
        each = await asyncio.gather(*map(self._store.followers.of, leaders))
        for leader, followers in zip(leaders, each, strict=True):
            for name, stalled in followers.items():
                change = self.stalled.add if stalled else self.stalled.discard
                change(follower_address(leader, name))

    def _take(self, address: str, found: StoredWeights) -> None:
        before = self.serving.get(address)
        if before and before.config == found.config:  # reuses its cached properties
            found = found._replace(config=before.config)
        self.serving[address] = ServedModel.of(address, found)
        self.leaders[follower_name(address)] = leader_of(address)
        self._unreadable.discard(address)

    def _damage(self, address: str, error: Unreadable) -> None:
        """Log damage once; lists of duels show the weights in memory until they are too old."""
        if address not in self._unreadable:
            log.warning("follower %s: %s", address, error)
        self._unreadable.add(address)

    def drop(self, address: str) -> None:
        """Forget a deleted follower."""
        self.serving.pop(address, None)
        self.stalled.discard(address)
        self._unreadable.discard(address)
        name = follower_name(address)
        if self.leaders.get(name) == leader_of(address):
            del self.leaders[name]

    def forget_leader(self, model: str) -> None:
        """Forget what belongs to a deleted model."""
        self._versions.pop(model, None)


def _version_of(served: ServedModel) -> tuple[int, int] | None:
    """Return epoch and seq of the kept version in a model's duel; None if it has none."""
    duel = served.duel
    if duel is None or not duel.is_on or duel.settings.version is None:
        return None
    return served.epoch, duel.settings.version
