"""Weights in memory: loaded once, kept up to date, served while the store is unreachable.

A `ServedModel` is immutable and replaced as a whole, so an answer uses one committed, checksummed
vector (I13). Followers, which rank in duels only, are apart (`follower_cache.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from app.domain.duel_lists import Sides
from app.domain.facts import Deleted, NewerFormatFound, Served, ServingFact
from app.errors import (
    BadBlob,
    IsFollower,
    NewerFormat,
    NoSuchModel,
    SolarError,
    StoreError,
    Unreadable,
)
from app.serving.follower_cache import FollowerCache
from app.serving.lag import LAG_SECONDS, LagTimer
from app.serving.served_model import ServedModel
from app.storage.cancellation import end
from app.storage.keys import is_follower, leader_of
from app.storage.rollback import rolled_back
from app.storage.states import DAMAGED, LogPosition, StoredWeights
from app.storage.store import Store

log = logging.getLogger("solar.serving")

#: The most time that a process loads models before it serves.
FIRST_LOAD_SECONDS = 30.0
#: The name of the weight cache among the tasks that fail in an outage; no model has it.
OUTAGE_TASK = "weight cache"
#: Models that one check compares with the store: 2 ms of CPU time.
CHECKED_AT_ONCE = 80
#: The timeout of loading the changed models among these, in timeouts of a check.
LOAD_TIMEOUTS = 5
#: Models that are loaded at the same time after hints.
LOADS = 32
#: Seconds between two calls to the learners for the same damaged model.
CALL_SECONDS = 30.0


class WeightCache:
    """Holds the served models and keeps them up to date.

    Two tasks serve all models, however many there are. One hears of changed models by hints. One
    checks the store and, a slice at a time, every model, because a hint may be lost.
    """

    def __init__(
        self,
        store: Store,
        report: Callable[[ServingFact], None] = lambda _: None,
        poll: float = 0.25,
        check_timeout: float = 1.0,
        lag_limit: float = LAG_SECONDS,
    ) -> None:
        self._store, self._report = store, report
        self._lag_timer = LagTimer(lag_limit)
        self._poll, self._check_timeout = poll, check_timeout
        self.serving: dict[str, ServedModel] = {}
        self.follower_cache = FollowerCache(store)
        self.names: set[str] = set()  # all models of the store
        self.tails: dict[str, int] = {}  # the last record of each log, as last checked
        self._unchecked: list[str] = []
        self._check_all = True
        self._news: dict[str, asyncio.Event] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._load_again: set[str] = set()
        self._load_slots = asyncio.Semaphore(LOADS)
        self._tasks: list[asyncio.Task[None]] = []
        self.started = self.reachable = False
        self.damaged: set[str] = set()
        self.newer: dict[str, LogPosition] = {}  # state of a newer format → its position
        self._called: dict[str, float] = {}  # damaged model → time of the last call to the learners
        self.memory_share = 0.0

    async def start(self, timeout: float = FIRST_LOAD_SECONDS) -> None:
        """Load every model; those that take longer, or need an unreachable store, follow later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._load_all()
        self._tasks = [*map(asyncio.create_task, (self._check_store(), self._hear_changes()))]

    async def _load_all(self) -> None:
        """Load models until all are loaded, or an attempt has loaded no further one."""
        before = -1
        while not self.started and before < len(self.serving):
            before = len(self.serving)
            with suppress(SolarError, TimeoutError):
                await self._discover()

    async def close(self) -> None:
        """Stop all updates."""
        await end(self._tasks)  # first, as they start loads
        await end([*self._loading.values()])

    async def find(self, model: str) -> ServedModel:
        """Find the served model; NoSuchModel, StoreError or Unreadable if the store is needed.

        IsFollower if the name is that of a follower.
        """
        return self.serving.get(model) or await self.newest(model)

    async def newest(self, model: str) -> ServedModel:
        """Load the committed weights of a model; errors as for `find`."""
        try:
            return await self.load(model)
        except NoSuchModel:
            await self.refuse_follower(model)
            raise

    async def refuse_follower(self, name: str) -> None:
        """Raise IsFollower if a follower has this name."""
        address = await self._store.followers.address(name)
        if address is not None:
            raise IsFollower(name, leader_of(address))

    async def load(self, model: str) -> ServedModel:
        """Load the current weights from the store, and serve the model from now on."""
        try:
            while True:  # until no other task loads a version at the same time
                before = self.serving.get(model)
                found = await self._store.states.load_weights(model)
                if self.serving.get(model) is before:
                    taken = await self._take(model, found)
                    if taken.position == (found.epoch, found.seq, found.chain):
                        return taken
        except BadBlob as error:
            await self._damage(model, error)
            raise

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
        if model in self.serving or model in self.damaged or model in self.newer:
            self._report(Deleted(model))
        self.serving.pop(model, None)
        self._readable(model)
        self.names.discard(model)
        self.tails.pop(model, None)
        self._called.pop(model, None)
        self._lag_timer.forget(model)
        self.follower_cache.forget_leader(model)
        self._news.pop(model, asyncio.Event()).set()

    @property
    def followers(self) -> dict[str, ServedModel]:
        """Followers by their addresses."""
        return self.follower_cache.serving

    @property
    def stalled(self) -> set[str]:
        """Addresses of followers that learn nothing more."""
        return self.follower_cache.stalled

    def sides(self, served: ServedModel) -> Sides | None:
        """Return the weights of both sides of a model's duel; None if a side is not ready."""
        return self.follower_cache.sides(served, self.tails.get(served.name, 0))

    def lags(self) -> dict[str, int]:
        """Return the models with records that they do not serve yet, and how many."""
        waiting = {
            name: self.tails.get(name, 0) - one.version for name, one in self.serving.items()
        }
        return {name: count for name, count in waiting.items() if count > 0}

    def lag_seconds(self) -> dict[str, float]:
        """Return for how long records of a model have waited while none was learnt."""
        timed = {name: one for name in self._lag_timer.models if (one := self.serving.get(name))}
        return self._lag_timer.seconds(
            {name: (one.epoch, one.version) for name, one in timed.items()}
        )

    async def _take(self, model: str, found: StoredWeights) -> ServedModel:
        """Serve these weights from now on, unless they are already served."""
        before = self.serving.get(model)
        if before and before.config == found.config:  # reuses its cached properties
            found = found._replace(config=before.config)
        serving = ServedModel.of(model, found)
        self._readable(model)
        if before and before.position == serving.position:
            return before
        await self.follower_cache.load_version(serving)
        backwards = before is not None and await self._rolled_back(before, serving)
        taken = self.serving.get(model)
        if before and taken and taken is not before:
            return taken  # another task was faster
        self.serving[model] = serving
        self.names.add(model)
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

    async def _damage(self, model: str, error: Unreadable) -> None:
        """Report a damaged model, and ask the learners to rebuild it."""
        if model not in self.damaged:
            log.warning("model %s: %s", model, error)
        self.damaged.add(model)
        now = asyncio.get_running_loop().time()
        if now >= self._called.get(model, float("-inf")) + CALL_SECONDS:
            self._called[model] = now
            with suppress(StoreError):
                await self._store.hints.call_learner(model)

    def _note_newer(self, model: str, position: LogPosition, error: NewerFormat) -> None:
        """Report a state that a newer release wrote, once for each position; log the first."""
        if model not in self.newer:
            log.warning("model %s: %s; it is not updated here", model, error)
        if self.newer.get(model) != position:
            self.newer[model] = position
            self._report(NewerFormatFound(model))
        self.damaged.discard(model)

    def _readable(self, model: str) -> None:
        """Note that a model is neither damaged nor of a newer format, or gone."""
        self.damaged.discard(model)
        self.newer.pop(model, None)

    async def _hear_changes(self) -> None:
        """Load each model that changes; check all of them when hints may have been lost."""
        async for model in self._store.hints.changed():
            if not model:
                self._check_all = True
            elif model in self._loading:
                self._load_again.add(model)
            else:
                self._loading[model] = asyncio.create_task(self._load_changed(model))

    async def _load_changed(self, model: str) -> None:
        """Load a model until it is as new as the last hint."""
        self._load_again.add(model)
        try:
            while model in self._load_again:
                self._load_again.discard(model)
                async with self._load_slots:
                    await self._try_load(model)
        finally:
            del self._loading[model]

    async def _try_load(self, model: str) -> None:
        before = self.serving.get(model)
        try:
            await (self.follower_cache.load(model) if is_follower(model) else self.load(model))
        except NoSuchModel:
            self._gone(model, before)
        except Unreadable:
            pass  # reported, now or by the next check
        except StoreError:
            self.reachable = False
            self._unchecked.append(model)

    def _gone(self, model: str, before: ServedModel | None) -> None:
        """Drop a model that the store does not have, unless it was created again meanwhile."""
        if self.serving.get(model) is before:
            self.drop(model)

    async def _refresh(self, models: Sequence[str]) -> None:
        """Compare some models with the store, and load those that have changed."""
        served = {name: self.serving.get(name) for name in models}
        async with asyncio.timeout(self._check_timeout):
            positions = await self._store.states.positions(models)
            self.tails |= await self._store.log.tails(list(positions))
        changed = []
        for name, position in positions.items():
            if position is None:
                self._gone(name, served[name])
            elif (before := served[name]) is None or before.position != position:
                changed.append(name)
            else:
                self._readable(name)
                await self.follower_cache.load_version(before)
        async with asyncio.timeout(LOAD_TIMEOUTS * self._check_timeout):
            async for name, found in self._store.states.load_many(changed):
                if isinstance(found, NewerFormat):
                    self._note_newer(name, positions[name] or DAMAGED, found)
                elif isinstance(found, Unreadable):
                    await self._damage(name, found)
                elif self.serving.get(name) is served[name]:  # else it was loaded after a hint
                    with suppress(NoSuchModel):
                        await self._take(name, found)
        for name in models:
            if serving := self.serving.get(name):
                waiting = self.tails.get(name, 0) - serving.version
                self._lag_timer.note(name, (serving.epoch, serving.version), waiting)

    async def _discover(self) -> None:
        """Check the store and the next models; all of them at the start and after lost hints."""
        everything, self._check_all = self._check_all, False
        try:
            async with asyncio.timeout(self._check_timeout):
                self.memory_share = await self._store.servers.memory_share()
                if everything or not self._unchecked:
                    await self._list_models()
            while self._unchecked:
                at = max(0, len(self._unchecked) - CHECKED_AT_ONCE)
                some = self._unchecked[at:]
                await self._refresh([name for name in some if not is_follower(name)])
                async with asyncio.timeout(LOAD_TIMEOUTS * self._check_timeout):
                    await self.follower_cache.refresh([name for name in some if is_follower(name)])
                del self._unchecked[at : at + len(some)]  # a failed load may have added one
                if not everything:
                    break
        except BaseException:
            self._check_all |= everything
            raise
        self._store.outages.succeeded(OUTAGE_TASK)
        self.started = self.reachable = True

    async def _list_models(self) -> None:
        """Read the names of all models and followers; each is to be checked."""
        self.names = set(await self._store.models.names())
        followers = await self.follower_cache.addresses()
        for gone in (self.damaged | self.newer.keys()) - self.names:
            self.drop(gone)
        self._unchecked = sorted({*self.names, *self.serving, *followers}, reverse=True)

    async def _check_store(self) -> None:
        """Check repeatedly whether the store is reachable, and whether a model has changed."""
        while True:
            checked = False
            try:
                await self._discover()
                checked = True
            except (SolarError, TimeoutError) as error:
                timeout = f"no answer within {self._check_timeout:g} s"
                reason = str(error) or f"{self._store.name} is unreachable or slow: {timeout}"
                self._store.outages.failed(OUTAGE_TASK, reason)
                self.reachable = False
            except Exception:  # without checks nothing is updated
                log.exception("a check of the store failed")
            self._lag_timer.checked(checked)
            lags = self.lag_seconds()
            waiting = {name: self.tails[name] - self.serving[name].version for name in lags}
            self._lag_timer.report(waiting, lags)
            await asyncio.sleep(self._poll)
