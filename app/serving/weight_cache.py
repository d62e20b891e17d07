"""The weights in memory: found once, followed from then on, served from while the store is gone.

A `ServedModel` is immutable and replaced as a whole, so an answer comes from one committed,
checksummed vector (I13).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from app.domain.facts import Served
from app.domain.model_config import ModelConfig
from app.errors import BadBlob, NoSuchModel, SolarError, StoreError
from app.ranking.arrays import Floats
from app.storage.cancellation import end
from app.storage.rollback import rolled_back
from app.storage.states import LogPosition, StoredWeights
from app.storage.store import Store

log = logging.getLogger("solar.serving")

#: The name of the weight cache among the tasks that fail in an outage; no model has it.
OUTAGE_TASK = "weight cache"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as it is served: `version` is the seq of the last record in these weights."""

    name: str
    epoch: int
    version: int
    config: ModelConfig
    weights: Floats
    sums: Floats
    trace: float
    chain: bytes = b""
    term: str = ""

    @classmethod
    def of(cls, name: str, found: StoredWeights) -> "ServedModel":
        """What the store has."""
        return cls(
            name, found.epoch, found.seq, found.config, found.weights, found.sums,
            found.info.trace, found.chain, found.info.term,
        )  # fmt: skip

    @property
    def place(self) -> LogPosition:
        """Where in the model's history it is."""
        return self.epoch, self.version, self.chain


class WeightCache:
    """Holds what is served, and keeps it fresh."""

    def __init__(
        self,
        store: Store,
        tell: Callable[[Served], None] = lambda _: None,
        poll: float = 0.25,
        breath: float = 1.0,
    ) -> None:
        self._store, self._tell, self._poll, self._breath = store, tell, poll, breath
        self.serving: dict[str, ServedModel] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._breathing: asyncio.Task[None] | None = None
        self.started = self.reachable = False
        self.damaged: set[str] = set()
        self.memory_share = 0.0

    async def start(self) -> None:
        """Serve every model there is, if the store can be reached; it may come later."""
        with suppress(SolarError, TimeoutError):
            async with asyncio.timeout(self._breath):
                await self._look_around()
        self._breathing = asyncio.create_task(self._breathe())

    async def close(self) -> None:
        """Follow no more."""
        if self._breathing:  # first, as it finds new ones to follow
            await end([self._breathing])
        await end([*self._following.values()])

    async def find(self, model: str) -> ServedModel:
        """What is served of a model; NoSuchModel, or StoreError if that cannot be known."""
        return self.serving.get(model) or await self.look(model)

    async def look(self, model: str) -> ServedModel:
        """The same as the store has it now; it is followed from here on."""
        try:
            found, now = await self._store.states.load_weights(model), self.serving.get(model)
            if now and now.epoch == found.epoch and now.version > found.seq:
                found = await self._store.states.load_weights(model)  # it was overtaken on its way
            serving = await self._take(model, found)
        except BadBlob:
            self.damaged.add(model)
            raise
        if model not in self._following:
            self._following[model] = asyncio.create_task(self._follow(model), name=model)
        return serving

    async def reach(self, model: str, seq: int, seconds: float) -> ServedModel | None:
        """The model once it has learnt record `seq`, None if that takes longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (serving := await self.find(model)).version < seq:
                    await self._news.setdefault(model, asyncio.Event()).wait()
                return serving
        return None

    def forget(self, model: str) -> None:
        """Serve a model no more: it was deleted."""
        self.serving.pop(model, None)

    async def _take(self, model: str, found: StoredWeights) -> ServedModel:
        """Serve these weights from now on, unless they are those served already."""
        before = self.serving.get(model)
        if before and before.config == found.config:  # with what it has worked out of its features
            found = found._replace(config=before.config)
        serving = ServedModel.of(model, found)
        self.damaged.discard(model)
        if before and before.place == serving.place:
            return before
        backwards = before is not None and await self._went_back(before, serving)
        taken = self.serving.get(model)
        if before and taken and taken is not before:
            return taken  # somebody was faster
        self.serving[model] = serving
        if backwards:
            log.warning("model %s: the store went back; now at version %d", model, found.seq)
        appended = found.info.time if before else 0  # found at a start: it may be of last week
        self._tell(Served(model, appended, backwards))
        self._news.pop(model, asyncio.Event()).set()
        return serving

    async def _went_back(self, before: ServedModel, now: ServedModel) -> bool:
        """Whether the store has lost what we served (I12).

        It may have gone back and then on, past it: then another term of a learner did that.
        """
        if now.epoch == before.epoch and now.version > before.version and now.term == before.term:
            return False
        return await rolled_back(self._store, before.name, before.place, now.place)

    async def _follow(self, model: str) -> None:
        """Take every version that is committed, until the model is deleted."""
        try:
            async for _ in self._store.states.watch(model, self._poll):
                try:
                    await self._refresh(model)
                except NoSuchModel:
                    return
                except BadBlob as error:
                    self.damaged.add(model)
                    log.warning("model %s: %s", model, error)
                except StoreError:
                    self.reachable = False
        finally:
            self.serving.pop(model, None)
            self.damaged.discard(model)
            self._following.pop(model, None)
            self._news.pop(model, asyncio.Event()).set()

    async def _refresh(self, model: str) -> None:
        place, served = await self._store.states.position(model), self.serving.get(model)
        if served is None or served.place != place:
            await self._take(model, await self._store.states.load_weights(model))
        self.damaged.discard(model)

    async def _look_around(self) -> None:
        """How full the store is, and which models there are."""
        self.memory_share = await self._store.servers.memory_share()
        names = await self._store.models.names()
        self.damaged.intersection_update(names)
        for name in names:
            if name not in self._following:
                with suppress(NoSuchModel, BadBlob):
                    await self.look(name)
        self._store.outages.succeeded(OUTAGE_TASK)
        self.started = self.reachable = True

    async def _breathe(self) -> None:
        """Know whether the store is there, and how full it is."""
        while True:
            try:
                async with asyncio.timeout(self._breath):
                    await self._look_around()
            except (SolarError, TimeoutError) as error:
                late = f"{self._store.name} is unreachable: no answer within {self._breath:g} s"
                self._store.outages.failed(OUTAGE_TASK, str(error) or late)
                self.reachable = False
            await asyncio.sleep(self._poll)
