"""Weights in memory: loaded once, kept up to date, served while the store is unreachable.

A `ServedModel` is immutable and replaced as a whole, so an answer uses one committed, checksummed
vector (I13).
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

#: The most time that a process loads models before it serves.
FIRST_LOAD_SECONDS = 30.0
#: The name of the weight cache among the tasks that fail in an outage; no model has it.
OUTAGE_TASK = "weight cache"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model for serving; `version` is the seq of the last record in these weights."""

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
        """Create from stored weights."""
        return cls(
            name, found.epoch, found.seq, found.config, found.weights, found.sums,
            found.info.trace, found.chain, found.info.term,
        )  # fmt: skip

    @property
    def position(self) -> LogPosition:
        """Position in the log: epoch, version and chain."""
        return self.epoch, self.version, self.chain


class WeightCache:
    """Holds the served models and keeps them up to date."""

    def __init__(
        self,
        store: Store,
        report: Callable[[Served], None] = lambda _: None,
        poll: float = 0.25,
        check_timeout: float = 1.0,
    ) -> None:
        self._store, self._report = store, report
        self._poll, self._check_timeout = poll, check_timeout
        self.serving: dict[str, ServedModel] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._checking: asyncio.Task[None] | None = None
        self.started = self.reachable = False
        self.damaged: set[str] = set()
        self.memory_share = 0.0

    async def start(self, timeout: float = FIRST_LOAD_SECONDS) -> None:
        """Load every model; those that take longer, or need an unreachable store, follow later."""
        loaded = asyncio.Event()
        self._checking = asyncio.create_task(self._load_and_check(loaded))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await loaded.wait()

    async def _load_and_check(self, loaded: asyncio.Event) -> None:
        """Load models until all are loaded, or a check has loaded no further one."""
        before = -1
        while not self.started and before < len(self._following):
            before = len(self._following)
            with suppress(SolarError, TimeoutError):
                async with asyncio.timeout(self._check_timeout):
                    await self._discover()
        loaded.set()
        await self._check_store()

    async def close(self) -> None:
        """Stop all updates."""
        if self._checking:  # first, as this task starts new followers
            await end([self._checking])
        await end([*self._following.values()])

    async def find(self, model: str) -> ServedModel:
        """Find the served model; NoSuchModel, or StoreError if the store is needed and fails."""
        return self.serving.get(model) or await self.load(model)

    async def load(self, model: str) -> ServedModel:
        """Load the current weights from the store, and follow the model from now on."""
        try:
            found, now = await self._store.states.load_weights(model), self.serving.get(model)
            if now and now.epoch == found.epoch and now.version > found.seq:
                found = await self._store.states.load_weights(
                    model
                )  # a newer version arrived meanwhile
            serving = await self._take(model, found)
        except BadBlob:
            self.damaged.add(model)
            raise
        if model not in self._following:
            self._following[model] = asyncio.create_task(self._follow(model), name=model)
        return serving

    async def reach(self, model: str, seq: int, seconds: float) -> ServedModel | None:
        """Wait until record `seq` is served; None if that takes longer than `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (serving := await self.find(model)).version < seq:
                    await self._news.setdefault(model, asyncio.Event()).wait()
                return serving
        return None

    def drop(self, model: str) -> None:
        """Stop serving a deleted model."""
        self.serving.pop(model, None)

    async def _take(self, model: str, found: StoredWeights) -> ServedModel:
        """Serve these weights from now on, unless they are already served."""
        before = self.serving.get(model)
        if before and before.config == found.config:  # reuses its cached properties
            found = found._replace(config=before.config)
        serving = ServedModel.of(model, found)
        self.damaged.discard(model)
        if before and before.position == serving.position:
            return before
        backwards = before is not None and await self._rolled_back(before, serving)
        taken = self.serving.get(model)
        if before and taken and taken is not before:
            return taken  # another task was faster
        self.serving[model] = serving
        if backwards:
            log.warning(
                "model %s: version rollback in the store; now at version %d", model, found.seq
            )
        appended = found.info.time if before else 0  # at startup the last record may be a week old
        self._report(Served(model, appended, backwards))
        self._news.pop(model, asyncio.Event()).set()
        return serving

    async def _rolled_back(self, before: ServedModel, now: ServedModel) -> bool:
        """Check whether the store has lost records that were served (I12).

        The version may be higher after a rollback; then another learner term has committed it.
        """
        if now.epoch == before.epoch and now.version > before.version and now.term == before.term:
            return False
        return await rolled_back(self._store, before.name, before.position, now.position)

    async def _follow(self, model: str) -> None:
        """Serve every committed version, until the model is deleted."""
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
        position, served = await self._store.states.position(model), self.serving.get(model)
        if served is None or served.position != position:
            await self._take(model, await self._store.states.load_weights(model))
        self.damaged.discard(model)

    async def _discover(self) -> None:
        """Read the memory share and the models of the store."""
        self.memory_share = await self._store.servers.memory_share()
        names = await self._store.models.names()
        self.damaged.intersection_update(names)
        for name in names:
            if name not in self._following:
                with suppress(NoSuchModel, BadBlob):
                    await self.load(name)
        self._store.outages.succeeded(OUTAGE_TASK)
        self.started = self.reachable = True

    async def _check_store(self) -> None:
        """Check repeatedly whether the store is reachable, and how full it is."""
        while True:
            try:
                async with asyncio.timeout(self._check_timeout):
                    await self._discover()
            except (SolarError, TimeoutError) as error:
                timeout = f"no answer within {self._check_timeout:g} s"
                reason = str(error) or f"{self._store.name} is unreachable or slow: {timeout}"
                self._store.outages.failed(OUTAGE_TASK, reason)
                self.reachable = False
            await asyncio.sleep(self._poll)
