"""Generated lists of duels, and users who prefer one side of them."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import numpy as np

from app.domain.duel_lists import Sides, interleaved, with_id
from app.domain.duels import SUBMITTED, VERSION, DuelState
from app.domain.impressions import Impression
from app.domain.model_config import ModelConfig
from app.errors import SolarError
from app.ingest.appender import PendingEvent
from app.ranking.arrays import Floats
from app.storage.keys import follower_address, keys_of
from app.storage.store import Store
from tests.faults.event_generator import MODEL, SHOWN, VISITS, EventGenerator, N, Visits

#: Share of the events that are clicks on lists of duels, and of those the share on the newest list.
CLICKS, NEWEST = 0.8, 0.5
#: The id of a duel, the weights of its model, and both sides.
DuelSides: TypeAlias = tuple[int, Floats, Sides]
SidesOf: TypeAlias = Callable[[Store, str, int], Awaitable[DuelSides | None]]
NO_PINNED = np.zeros(0, np.int64)


class DuelGenerator(EventGenerator):
    """A generator that shows lists of the duel that is on, and clicks on them, early and late.

    `bias` is the probability that a click is on a document of the champion.
    """

    shows, keeps = 0.8, 30

    def __init__(
        self, seed: int, name: str = "d", n: int = N, tenant: str = "",
        visits: Visits = VISITS, bias: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__(seed, name, n, tenant, visits)
        self._bias = bias
        self.sides_of: SidesOf = stored_sides  # what ranks

    def event(self) -> PendingEvent:
        """Return clicks on a list of a duel, or any other event."""
        lists = [name for name, one in self.rankings.items() if one.duel is not None]
        if not lists or self.rng.random() > CLICKS:
            return super().event()
        newest = self.rng.random() < NEWEST
        return self.in_duel(lists[-1] if newest else str(self.rng.choice(lists)))

    def in_duel(self, request: str) -> PendingEvent:
        """Return up to two clicks on a list of a duel, or none."""
        shown = self.rankings[request]
        assert shown.duel is not None
        places = []
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            side = 1 if self.rng.random() < self._bias else -1
            of_side = np.flatnonzero(shown.duel[1:] == side)
            places += [int(self.rng.choice(of_side))] if of_side.size else []
        return self.clicks(request, shown, places)

    async def show(self, store: Store, epoch: int, count: int, model: str = MODEL) -> list[str]:
        """Show lists of the duel that is on; other rankings if there is none."""
        found = await self.sides_of(store, model, epoch)
        if found is None:
            return await super().show(store, epoch, count, model)
        made = {self._next_list(): self._interleaved(*found) for _ in range(count)}
        await self._store_lists(store, epoch, made, model)
        return list(made)

    def _interleaved(self, duel: int, weights: Floats, sides: Sides) -> Impression:
        """Return a list of a duel, sometimes with a pinned document, sometimes cut off."""
        documents, top_k = self._documents(SHOWN), int(self.rng.choice((SHOWN, 5)))
        coins: Floats = self.rng.random(SHOWN)
        pinned = np.array([1]) if self.rng.random() < 0.2 else NO_PINNED
        uniforms: Callable[[int], Floats] = lambda most: coins[:most]  # noqa: E731
        found = interleaved(documents, weights, sides, top_k, uniforms, pinned)
        assert found.teams is not None
        ids = tuple(f"d{at}" for at in found.shown)
        teams = with_id(duel, found.teams)
        shown = documents[found.shown]
        return Impression(ids, shown, found.shown, swaps=found.swaps, duel=teams)


async def stored_sides(store: Store, model: str, epoch: int) -> DuelSides | None:
    """Return the duel that is on, by the store; None if there is none, or a side is not there."""
    found = await store.states.load_weights(model)
    duel = found.duel
    if duel is None or not duel.is_on or found.epoch != epoch:
        return None
    try:
        sides = await _sides(store, model, epoch, duel, found.weights)
    except SolarError:
        return None
    return duel.id, found.weights, sides


async def _sides(store: Store, model: str, epoch: int, duel: DuelState, weights: Floats) -> Sides:
    settings = duel.settings
    champion = await _follower(store, model, settings.champion) if settings.champion else weights
    if settings.challenger == SUBMITTED:
        return Sides(champion, None)
    if settings.challenger == VERSION and settings.version is not None:
        key = keys_of(model).dueling(epoch, settings.version)
        return Sides(champion, (await store.states.load_weights_at(model, key)).weights)
    return Sides(champion, await _follower(store, model, settings.challenger))


async def _follower(store: Store, model: str, name: str) -> Floats:
    found: Floats = (await store.states.load_weights(follower_address(model, name))).weights
    return found


#: Changes of settings that make followers of a model unlike it and each other.
SETTINGS: tuple[dict[str, Any], ...] = (
    {"gamma": 100.0}, {"clicks": "click-inversion"}, {"algorithm": "solar-i", "C": 1e-4},
    {"covariance": "diagonal"}, {"clicks": "debiased"}, {"forgetting": 0.1},
)  # fmt: skip


def possible(leader: ModelConfig, changes: dict[str, Any]) -> bool:
    """Whether a follower of a model can have these settings."""
    algorithm: str = changes.get("algorithm", leader.algorithm)
    unused = {"solar-i": ("gamma", "covariance", "forgetting"), "solar-ii": ("C",)}
    return not any(name in changes for name in unused[algorithm])
