"""An operator who creates and deletes followers, and begins, ends and decides duels."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from app.domain import codec
from app.domain.duels import SUBMITTED, VERSION, Duel, DuelState, EndDuel, Tournament
from app.domain.followers import follower_config, follower_state
from app.domain.model import ModelState, initial_state
from app.domain.records import Record, Replace
from app.errors import SolarError
from app.learning.duel_upkeep import fold_in_turns
from app.learning.fair_queue import FairQueue
from app.learning.promotion import promote
from app.storage.keys import follower_address, internal_event
from app.storage.log import NewRecord
from tests.faults.duel_generator import SETTINGS, possible

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("b", "c", "d", "e")
ALPHAS = (0.05, 0.1, 0.2)


class DuelOperator:
    """Acts on the followers and the duels of one model until the faults end."""

    def __init__(self, world: "World", model: str) -> None:
        self._world, self._model = world, model
        self._rng = Random(f"duels {world.seed}")  # noqa: S311
        self._store = world.store()
        self._records = 0
        self._actions: dict[Callable[[], Awaitable[None]], int] = {
            self._create: 8, self._delete: 1, self._begin_over: 2, self._begin: 3,
            self._begin_tournament: 8, self._end: 1, self._warm_start: 1, self._promote: 1,
        }  # fmt: skip

    async def work(self, seconds: float) -> None:
        """Act for some time; errors of the store are part of it."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while loop.time() < ends:
            await asyncio.sleep(self._rng.expovariate(3.0))
            [act] = self._rng.choices([*self._actions], [*self._actions.values()])
            self._world.say(act.__name__)
            with suppress(SolarError):
                await act()

    # ---- followers ----

    async def _create(self) -> None:
        """Create followers at the committed state, or at a version, warm or cold."""
        epoch, state = await self._start()
        free = sorted({*NAMES} - (await self._store.followers.of(self._model)).keys())
        names = self._rng.sample(free, min(len(free), self._rng.choice((1, 1, 2))))
        states = {name: self._first_state(state) for name in names}
        if states:
            self._world.say(f"followers {names} from {state.seq}")
            await self._store.followers.create(self._model, epoch, states)

    async def _start(self) -> tuple[int, ModelState]:
        found = await self._store.states.load(self._model)
        chosen = self._rng.random()
        if chosen < 0.5:
            return found.epoch, found.state
        versions = await self._store.states.versions(self._model) or [0]
        seq = versions[0] if chosen < 0.75 else self._rng.choice(versions)
        found = await self._store.states.version(self._model, seq)
        return found.epoch, found.state

    def _first_state(self, leader: ModelState) -> ModelState:
        config = leader.model.config
        changes = self._rng.choice([one for one in SETTINGS if possible(config, one)])
        own = follower_config(config, **changes)
        return follower_state(leader, own, cold=self._rng.random() < 0.3)

    async def _delete(self) -> None:
        found = sorted(await self._store.followers.of(self._model))
        if found:
            address = follower_address(self._model, self._rng.choice(found))
            await self._store.followers.delete(address)

    async def _begin_over(self) -> None:
        """Delete a follower and create one of the same name; a stalled one before others."""
        found = await self._store.followers.of(self._model)
        if not found:
            return
        name = max(sorted(found), key=lambda one: found[one])
        await self._store.followers.delete(follower_address(self._model, name))
        epoch, state = await self._start()
        await self._store.followers.create(self._model, epoch, {name: self._first_state(state)})

    # ---- duels ----

    async def _duel(self) -> DuelState | None:
        found = (await self._store.states.load_weights(self._model)).duel
        return found if found is not None and found.is_on else None

    async def _able(self) -> list[str]:
        found = await self._store.followers.of(self._model)
        return [name for name, stalled in found.items() if not stalled]

    async def _begin(self) -> None:
        """Begin a duel; sometimes while another one is on, which changes nothing."""
        if await self._duel() is not None and self._rng.random() < 0.8:
            return
        share, alpha = self._rng.choice((0.2, 0.5)), self._rng.choice(ALPHAS)
        challengers, version = [*await self._able(), SUBMITTED, VERSION], None
        challenger = self._rng.choice(challengers)
        if challenger == VERSION:
            epoch, *_ = await self._store.states.position(self._model)
            version = self._rng.choice(await self._store.states.versions(self._model) or [0])
            await self._store.versions.keep_for_duel(self._model, epoch, version)
        await self._append(Duel(challenger, share, alpha, version))

    async def _begin_tournament(self) -> None:
        names = await self._able()
        if len(names) < 2 or await self._duel() is not None:
            return
        lists, alpha = self._rng.choice((2, 8, 20)), 0.2
        of = Tournament(0, 0, tuple(names), lists * len(names), alpha, self._rng.random() < 0.5)
        await self._append(Duel(names[0], 0.5, of.alpha_each, tournament=of))

    async def _end(self) -> None:
        duel = await self._duel()
        if duel is not None:
            await self._append(EndDuel(duel.id))

    async def _warm_start(self) -> None:
        """Append a model that was trained elsewhere."""
        found = await self._store.states.load(self._model)
        model = found.state.model
        weights = np.random.default_rng(self._rng.randrange(1 << 30)).normal(size=model.config.n)
        trained = replace(initial_state(model.config).model, weights=weights)
        await self._append(Replace(trained, "warm start"), found.epoch)

    async def _promote(self) -> None:
        """Promote a challenger, with or without a verdict; sometimes a follower out of a duel."""
        duel, able = await self._duel(), await self._able()
        sides = [] if duel is None else [duel.settings.version, duel.settings.challenger]
        found = [one for one in sides if isinstance(one, int) or one in able]
        challengers: list[int | str] = [one for one in found if one is not None] or [*able]
        if not challengers:
            return
        self._records += 1
        name = internal_event("promotion", str(self._records))
        self._world.checker.sent.add(name)
        chosen = self._rng.choice(challengers)
        begin = partial(fold_in_turns, FairQueue(), self._model)
        seq = await promote(self._store, self._model, chosen, begin, name, duel)
        self._world.say(f"promoted {chosen} at {seq}")

    async def _append(self, record: Record, epoch: int | None = None) -> None:
        """Append a record, to the model of an epoch or to the present one."""
        if epoch is None:
            epoch, *_ = await self._store.states.position(self._model)
        self._records += 1
        name = internal_event("duel", str(self._records))
        self._world.checker.sent.add(name)
        event = NewRecord(name, b"", codec.dump_record(record))
        await self._store.log.append(
            self._model, epoch, [event], limit=self._world.limit, time=self._world.now()
        )
        self._world.say(f"appended {record}")
