"""Processes, clients and faults of one seed.

Clients post and retry (some give up), learners learn, replicas follow, an operator changes the
model. Servers restart, lose power or fail over; processes are killed or paused. Then the faults
end, and every posted event must be learnt, served and accounted for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

from app.domain import codec
from app.domain.facts import LogRolledBack, Served, ServingFact
from app.domain.model import initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Replace, ResetMeasures, Retune
from app.errors import (
    Full,
    InvalidInput,
    ModelExists,
    NoSuchModel,
    NoSuchVersion,
    SolarError,
    StoreError,
    TooManyVersions,
    VersionExists,
)
from app.ingest.appender import Appender, PendingEvent, Post
from app.learning import learner
from app.learning.options import Fact, LearnerOptions
from app.learning.pool import learn_all
from app.ranking import evidence
from app.serving import weight_cache as weight_cache_module
from app.serving.served_model import ServedModel
from app.serving.weight_cache import WeightCache
from app.storage import rollback
from app.storage.cancellation import end
from app.storage.keys import keys_of
from app.storage.log import (
    APPENDED,
    NO_IMPRESSION,
    NOT_REPEATED,
    OTHER_BODY,
    AppendResult,
    NewImpression,
    NewRecord,
)
from app.storage.states import LogPosition
from app.storage.store import Store
from tests.faults.duel_generator import DuelGenerator, DuelSides
from tests.faults.event_generator import ONLY_CLICKS, EventGenerator, Visits
from tests.simulation import clockwork, scripts
from tests.simulation.checker import Checker, check_with_verify
from tests.simulation.client import Client, NetworkFaults
from tests.simulation.clockwork import SimulatedLoop
from tests.simulation.duel_operator import DuelOperator
from tests.simulation.expected import Acknowledgement, Violation, hold
from tests.simulation.server import LEVELS, Level, Server, Step

MODEL, N = "m", 3
TENANTS = ("", "a", "b")
LIMITS = (12, 60)  # of the backlog
WORK_LIMITS = (None, 20_000_000, 60_000_000)
PAIR_WORK = 100_000
FAULT_SECONDS = 6.0  # duration of the faults
SETTLE_SECONDS = 60.0  # seconds to learn everything after the faults
#: Seconds of a step of the server's clock: back beyond SETTLE_SECONDS, forward below a dedupe TTL.
CLOCK_STEPS = (-100.0, 30.0)
KINDS = (
    ModelConfig(("a", "b", "c"), exploration=1.0, forgetting=0.05, counting=3),
    ModelConfig(("a", "b", "c"), "solar-i", pair_bound=0.1),
    ModelConfig(
        ("a", "b", "c"), "solar-ii", "diagonal", exploration=0.5, forgetting=0.01, counting=2
    ),
)
#: How clicks are read where visitors do more than click.
READINGS = (
    "debiased", "click-skip-above", "last-click-skip-above", "click-skip-previous",
    "click-no-click-next",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The outcome of a seed."""

    seed: int
    level: Level
    steps: int
    records: int
    lost: int
    trace: tuple[str, ...]


class Process:
    """A learner or replica with a separate client."""

    def __init__(self, world: "World", work: Callable[[Store], Awaitable[None]]) -> None:
        self.client = Client(world.server, world.network)
        self.store = world.store(self.client)
        self.task = asyncio.ensure_future(work(self.store))

    async def kill(self) -> None:
        """Kill the process: it does nothing afterwards."""
        self.client.kill()
        await end([self.task])


def has_duels(seed: int) -> bool:
    """Whether the world of a seed has followers and duels."""
    return seed % 4 == 1


def drawn_visits(seed: int, rng: Random) -> Visits:
    """Return what the visitors of a seed do: in half of them more than click.

    There lists end soon, but for those that were clicked.
    """
    if seed % 4 < 2:  # those with duels, and the same number without
        return ONLY_CLICKS
    ordinary = rng.choice((1.0, 4.0, 30.0))
    most = rng.choice((None, 2, 4))
    return Visits(
        ordinary=ordinary, keep=int(ordinary * rng.choice((0, 2000, 20_000))),
        beacons=rng.choice((0.3, 1.0)), most_events=most,
    )  # fmt: skip


class World:
    """The simulated world of one seed."""

    def __init__(
        self, seed: int, loop: SimulatedLoop, only: str = "", level: Level | None = None
    ) -> None:
        self.only = only
        self.seed, self.rng, self._loop = seed, Random(seed), loop  # noqa: S311
        rng = self.rng
        chosen = rng.choice(LEVELS) if level is None else level
        self._lag = rng.choice((0.0, 0.01, 0.1, 0.3))
        self.server = Server(loop.time, chosen, lambda: rng.uniform(0.0, self._lag))
        self.network = NetworkFaults(rng, delay=rng.choice((0.0005, 0.002, 0.02)))
        self._usual = rng.choice((0.0, 0.02, 0.1))
        self._set_losses(self._usual)
        self.duels = has_duels(seed)
        self.visits_rng = Random(f"visits {seed}")  # noqa: S311
        self.visits = drawn_visits(seed, self.visits_rng)
        self._duel_rng = Random(f"world {seed}")  # noqa: S311
        self.bias = self._duel_rng.choice((0.1, 0.5, 0.9))  # share of the clicks for the champion
        self.limit, self.busy = rng.choice(LIMITS), bool(only) or rng.random() < 0.2
        self.work_limit = WORK_LIMITS[seed % len(WORK_LIMITS)]
        self.checker = Checker(self.server, self.limit)
        self.checker.lists.keep = self.visits.keep / 1000
        self.history = History(self.checker)
        self._operator = DuelOperator(self, MODEL)
        self.trace: list[str] = []
        self.losses = 0  # faults that lost something
        self._rule = False  # of counting, of the last model
        self._checks, self._takes_away = self.server.watcher.step, self.server.watcher.lost
        self.server.watcher.step, self.server.watcher.lost = self._seen, self._steps_lost
        self.requests: dict[tuple[int, str], EventGenerator] = {}  # (epoch, id) → its client
        self.learners: list[Process] = []
        self.replicas: list[ServingReplica] = []
        self._stop = asyncio.Event()
        self.pace = LearnerOptions(
            lease=1.0, batch=rng.choice((8, 32)), commit=rng.choice((0.03, 0.3, 1.0)),
            idle=0.5, version=10, versions=3, hour=2.0, discover=0.5, clock=loop.time,
            wall_clock=loop.time,
            always=seed % 2, rest=1.0, sessions=1 + seed % 3,
            slice=rng.choice((0.0, 0.02)), slice_work=rng.choice((1, 500, 20_000_000)),
            part=rng.choice((0.0, 0.03)), part_share=0.0,
        )  # fmt: skip
        if self.duels:
            self.pace = replace(
                self.pace, follow=self._duel_rng.choice((0.05, 0.5, 4.0)), duel_step=0.1,
                duel_versions=0.5,
                log_bytes=self._duel_rng.choice((20_000, self.pace.log_bytes)),
            )  # fmt: skip

    # ---- trace ----

    def say(self, what: str) -> None:
        self.trace.append(f"{self._loop.now - 1000:9.4f} {what}")

    def _seen(self, step: Step) -> None:
        if step.call.name in ("append", "commit", "commit_part", "create", "delete", "lease"):
            new = f" {step.call.given[1][4]}" if step.call.name == "commit" else ""
            self.say(f"{step.call.name}{new}: {step.answer}")
        self._checks(step)

    def _steps_lost(self, steps: Any) -> None:
        self.losses += 1
        self.say(f"lost {len(steps)} steps: {[step.call.name for step in steps]}")
        self._takes_away(steps)

    def now(self) -> int:
        return int(self._loop.now * 1000)

    def store(self, client: Client | None = None) -> Store:
        """Return a store with network faults only."""
        client_double: Any = client or Client(self.server, self.network)
        return Store(client_double, self.server.level)

    # ---- run ----

    async def run(self) -> Outcome:
        store = self.store()
        await retry(lambda: self.create(store))
        self.replicas = [ServingReplica(self) for _ in range(self.rng.choice((1, 2)))]
        for _ in range(self.rng.choice((1, 1, 2))):
            self.start_learner()
        clients = [
            asyncio.create_task(FeedbackClient(self, f"p{at}-").work())
            for at in range(self.rng.choice((1, 2, 3)))
        ]
        bad = asyncio.create_task(FaultInjector(self).work())
        if self.duels:
            await self._operator.work(FAULT_SECONDS)
        await bad
        await asyncio.gather(*clients)
        await self._settle()
        return self._outcome()

    async def create(self, store: Store) -> None:
        """Create the model; its rule of counting stays if a lost epoch may come again."""
        settings = self.rng.choice(KINDS)
        if self.losses and settings.counts_abandoned != self._rule:
            settings = next(one for one in KINDS if one.counts_abandoned == self._rule)
        if self.visits.graded:
            settings = replace(settings, clicks=self.visits_rng.choice(READINGS))
        self._rule = settings.counts_abandoned
        with suppress(ModelExists):
            await store.models.create(MODEL, initial_state(settings, seed=self.rng.randbytes(8)))

    def start_learner(self) -> Process:
        losses = self.checker.losses

        def report(fact: Fact) -> None:
            if isinstance(fact, LogRolledBack):
                self.say("a learner: version rollback")
                hold(self.checker.losses > losses, "I12: rollback reported, but nothing was lost")

        new = Process(self, lambda store: learn_all(store, self._stop, self.pace, report))
        self.learners.append(new)
        return new

    async def kill_learner(self, learner: Process) -> None:
        self.learners.remove(learner)
        await learner.kill()

    def _set_losses(self, strength: float) -> None:
        self.network.lost = self.network.unheard = strength
        self.network.late = 0.5 if strength else 0.0

    def set_losses(self, strength: float | None = None) -> None:
        self._set_losses(self._usual if strength is None else strength)

    async def _settle(self) -> None:
        """I15: without faults, everything is learnt and served soon."""
        self.say("the faults end")
        self.network.clear()
        self.server.full = False
        self.server.stall(False)
        ends = self._loop.now + SETTLE_SECONDS
        while not self._settled():
            hold(self._loop.now < ends, f"I15: not learnt and served after {SETTLE_SECONDS} s")
            await asyncio.sleep(0.1)
        self.checker.acknowledged_and_lost()
        for model in self.checker.existing_models():
            self.checker.check_log(model)
            await check_with_verify(self.store(), model)
            able = self.checker.followers.able(model)
            for follower in self.checker.followers.existing(model):
                await check_with_verify(self.store(), follower, stalled=follower not in able)

    def _settled(self) -> bool:
        existing = [current for current in self.checker.epochs.values() if not current.ended]
        return (
            all(current.state.seq == len(current.records) for current in existing)
            and all(one.serves_what_is_committed() for one in self.replicas)
            and all(self.checker.is_settled(model) for model in self.checker.existing_models())
        )

    def _outcome(self) -> Outcome:
        checker = self.checker
        return Outcome(
            self.seed, self.server.level, len(self.server.journal),
            sum(len(current.records) for current in checker.epochs.values()),
            len(checker.acknowledged_and_lost()), tuple(self.trace),
        )  # fmt: skip


async def retry(act: Callable[[], Awaitable[Any]]) -> None:
    """Retry until success."""
    while True:
        try:
            await act()
        except SolarError:
            await asyncio.sleep(0.05)
        else:
            return


class ServingReplica:
    """A serving replica; checks that it serves committed weights and reports rollbacks (I12)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.client = Client(world.server, world.network)
        self._store = world.store(self.client)
        self.weight_cache = WeightCache(self._store, self._served, poll=0.5)
        self._before: LogPosition | None = None
        self.weight_cache.serving = ServedModels(self)
        self._starting = asyncio.ensure_future(self.weight_cache.start())

    def drop_position(self) -> None:
        """Drop the last position: the model was deleted."""
        self._before = None

    def _served(self, fact: ServingFact) -> None:
        if not isinstance(fact, Served):
            return
        serving = self.weight_cache.serving[MODEL]
        self._world.say(f"serves {serving.version}{' (back)' if fact.backwards else ''}")
        self._world.checker.serves(serving)
        before, self._before = self._before, serving.position
        if before is None:
            hold(not fact.backwards, "I12: rollback reported, but nothing was served")
        else:
            self._world.history.check(self._store, before, serving.position, fact.backwards)

    def serves_what_is_committed(self) -> bool:
        """I13 after the faults."""
        serving, checker = self.weight_cache.serving.get(MODEL), self._world.checker
        if serving is None:
            return not checker.existing_models()
        current = checker.epochs.get((MODEL, serving.epoch))
        if current is None or current.ended:
            return False
        state = current.state
        same = serving.weights.tobytes() == state.model.weights.tobytes()
        return same and serving.version == state.seq and self._duels_as_committed(serving)

    def _duels_as_committed(self, serving: ServedModel) -> bool:
        """I25 after the faults: whether lists of duels are shown if both sides are there."""
        shows = self.weight_cache.sides(serving)
        return self._world.checker.can_duel(serving) == (shows is not None)


class History:
    """Compares the answers of `rolled_back` with the checker (I12)."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._answers: dict[tuple[Store, LogPosition, LogPosition], bool] = {}

    async def rolled_back(
        self, store: Store, model: str, before: LogPosition, now: LogPosition
    ) -> bool:
        """Check the answer if the log is unchanged, leads to `now` and reaches back to `before`."""
        checker, losses = self._checker, self._checker.losses
        could_tell = checker.can_tell(model, before, now)
        said = await rollback.rolled_back(store, model, before, now)
        if could_tell and checker.losses == losses and checker.can_tell(model, before, now):
            lost = checker.is_lost(before, now)
            hold(said == lost, f"I12: {before[:2]}, then {now[:2]}: lost {lost}, said {said}")
        if said:
            checker.rolled_back(before, now)
        self._answers[store, before, now] = said
        return said

    def check(self, store: Store, before: LogPosition, now: LogPosition, reported: bool) -> None:
        """Check that the reported rollback is the detected one."""
        right = self._answers.pop((store, before, now), None)
        if right is None:
            right = self._checker.is_lost(before, now)
        hold(reported == right, f"I12: {before[:2]}, then {now[:2]}: reported {reported}")


class ServedModels(dict[str, ServedModel]):
    """The served models of a replica; notes removed models."""

    def __init__(self, replica: ServingReplica) -> None:
        self._replica = replica

    def pop(self, *given: Any) -> Any:
        self._replica.drop_position()
        return super().pop(*given)


class FeedbackClient:
    """A client that posts feedback."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._rng = world, world.rng
        self._tenant = world.rng.choice(TENANTS)
        about = (world.seed, name, N, self._tenant, world.visits)
        self._generator = EventGenerator(*about)
        if world.duels:
            self._generator = dueling = DuelGenerator(*about, world.bias)
            dueling.sides_of = self._sides_of
        self._store = world.store()
        self._returned: list[LogRolledBack] = []
        self._appender = Appender(
            self._store, world.limit, 60.0, self._returned.append, world.now, world.work_limit
        )
        self._last_appended: dict[int, Acknowledgement] = {}  # the last appended event by epoch
        self._sent: list[tuple[int, list[PendingEvent]]] = []
        self._epoch, self._counts_abandoned = 0, False

    async def work(self) -> None:
        busy = self._world.busy or self._world.duels
        posts = self._rng.randrange(12, 24) if busy else self._rng.randrange(4, 16)
        for _ in range(2 * posts if self._world.duels else posts):
            await asyncio.sleep(self._rng.expovariate(10.0 if busy else 2.0))
            await retry(self._find)
            if self._rng.random() < (0.8 if self._world.duels else 0.4):
                await self._show()
            await self._post(self._epoch, self._choose())

    async def _show(self) -> None:
        """Show a ranking; sometimes also under the request id of another client (I23)."""
        with suppress(SolarError):
            shown = await self._generator.show(self._store, self._epoch, 1, MODEL)
            self._world.requests[self._epoch, shown[0]] = self._generator
        await self._show_again()
        foreign = self._foreign()
        if foreign is None or self._rng.random() < 0.7:
            return
        request, owner = foreign
        shorter = NewImpression(request, b"of another tenant", self._tenant)
        with suppress(SolarError):
            losses, epoch = self._world.losses, self._epoch
            if (await self._store.log.load_impressions(MODEL, epoch, [request]))[0] is None:
                return
            before = self._lists_of(epoch, [request])
            written = await self._store.log.store_impressions(MODEL, epoch, [shorter], 3600)
            [stored] = written.stored
            lost = self._world.losses > losses or self._has_ended(before, request)
            own = before[request] is not None and before[request].tenant.decode() == self._tenant
            hold(lost or own or not stored, f"I23: {request} of {owner.tenant} was replaced")
            if stored:  # it was lost before or has ended, maybe for a call without an answer
                self._world.requests.pop((epoch, request), None)

    async def _show_again(self) -> None:
        """Rank a list again: it keeps its feedback, and does not end sooner."""
        lists, visits = self._generator.rankings, self._world.visits
        if not (visits.graded and lists) or self._world.visits_rng.random() < 0.7:
            return
        request = self._world.visits_rng.choice(list(lists))
        same = NewImpression(request, lists[request].dump(), self._tenant)
        with suppress(SolarError):
            log = self._store.log
            await log.store_impressions(MODEL, self._epoch, [same], visits.ordinary)

    async def _sides_of(self, _: Store, model: str, epoch: int) -> DuelSides | None:
        """Return the duel that a replica knows of, and both sides."""
        weight_cache = self._rng.choice(self._world.replicas).weight_cache
        served = weight_cache.serving.get(model)
        sides = weight_cache.sides(served) if served and served.epoch == epoch else None
        if served is None or served.duel is None or sides is None:
            return None
        self._world.checker.shows(served, sides)
        return served.duel.id, served.weights, sides

    def _foreign(self) -> tuple[str, EventGenerator] | None:
        """Return the request of another tenant, and its client."""
        others = [
            (request, owner)
            for (epoch, request), owner in self._world.requests.items()
            if epoch == self._epoch and owner.tenant != self._tenant and request in owner.rankings
        ]
        return self._rng.choice(others) if others else None

    async def _find(self) -> None:
        try:
            epoch = (await self._store.states.position(MODEL))[0]
        except NoSuchModel:
            await self._world.create(self._store)
            epoch = (await self._store.states.position(MODEL))[0]
        if epoch != self._epoch:
            stored = await self._store.states.load_weights(MODEL)
            epoch, self._counts_abandoned = stored.epoch, stored.config.counts_abandoned
            self._epoch = epoch
            self._generator.rankings.clear()

    def _choose(self) -> list[PendingEvent]:
        """Return new events, a repeated post, or an old id with another body."""
        old = [events for epoch, events in self._sent if epoch == self._epoch]
        chance = self._rng.random()
        if old and chance < 0.15:
            return self._rng.choice(old)
        if old and chance < 0.2:
            event, body = self._rng.choice(self._rng.choice(old)), self._generator.event()
            named = replace(body.feedback, event=event.feedback.event)
            return [replace(body, feedback=named)]
        foreign = self._foreign()
        if foreign is not None and chance < 0.3:
            request, owner = foreign
            return [self._generator.click(request, shown=owner.rankings[request])]
        new = [self._generator.event() for _ in range(self._rng.choice((1, 1, 2, 4)))]
        new += self._repeated_visits(old)
        return [replace(one, time=0) if self._rng.random() < 0.1 else one for one in new]  # too old

    def _repeated_visits(self, old: list[list[PendingEvent]]) -> list[PendingEvent]:
        """Return clicks of an earlier post under another id: they teach nothing more."""
        rng = self._world.visits_rng
        clicks = [one for events in old for one in events if one.on_request]
        if not (self._world.visits.graded and clicks) or rng.random() < 0.7:
            return []
        return [self._generator.again(rng.choice(clicks))]

    async def _post(self, epoch: int, events: list[PendingEvent]) -> None:
        """Post until there is an answer or no attempt is left."""
        self._world.checker.sent.update(event.feedback.event for event in events)
        self._sent.append((epoch, events))
        attempts = self._rng.choice((1, 3, 1000))
        while attempts:
            attempts -= 1
            try:
                await self._try(epoch, events)
            except NoSuchModel:
                return
            except InvalidInput:  # several events that take more work than may wait
                return
            except StoreError as error:
                self._world.say(f"{events[0].feedback.event} refused: {type(error).__name__}")
                await asyncio.sleep(self._rng.uniform(0.01, 0.5))
            else:
                return

    async def _try(self, epoch: int, events: list[PendingEvent]) -> None:
        requests = sorted({one.feedback.query for one in events if one.on_request})
        loaded = await self._appender.load_impressions((MODEL, epoch), requests)
        impressions = loaded.impressions
        wait = self._rng.random() < 0.2
        mine = {name: one for name, one in impressions.items() if one.is_open_to(self._tenant)}
        rule = self._counts_abandoned
        charged = [replace(one, pair_work=PAIR_WORK, counts_abandoned=rule) for one in events]
        posted = Post(charged, mine, wait, self._tenant)
        before = self._lists_of(epoch, requests)
        answers = await self._appender.post((MODEL, epoch), posted)
        self._world.say(
            f"answered {[(e.feedback.event, *a) for e, a in zip(events, answers, strict=True)]}"
        )
        self._world.checker.check_answers(MODEL, epoch, events, answers)
        self._check_tenants(epoch, events, answers)
        self._check_lists(epoch, before, events, answers)
        self._check_returned(epoch, events, answers)
        if wait:
            await self._read_back(max(one.seq for one in answers))

    def _check_tenants(
        self, epoch: int, events: list[PendingEvent], answers: Sequence[AppendResult]
    ) -> None:
        """I23: no feedback on the request of another tenant is accepted.

        Where lists end, an id may become one of another tenant: `ListChecks` looks at each append.
        """
        if self._world.visits.graded:
            return
        for event, answer in zip(events, answers, strict=True):
            owner = self._world.requests.get((epoch, event.feedback.query))
            if event.on_request and owner and owner.tenant != self._tenant:
                hold(answer.outcome in (NO_IMPRESSION, OTHER_BODY), f"I23: {event} has {answer}")

    def _lists_of(self, epoch: int, requests: Iterable[str]) -> dict[str, Any]:
        """Return the lists that are there now, and what may change that."""
        find, keys = self._world.checker.lists.find, keys_of(MODEL)
        lists = {request: find(keys.impression(epoch, request)) for request in requests}
        return {**lists, "": (self._world.losses, self._world.server.ahead)}

    def _has_ended(self, before: dict[str, Any], request: str) -> bool:
        """Whether a list that was there before has ended, or may have."""
        one, server = before[request], self._world.server
        stepped = before[""] != (self._world.losses, server.ahead)
        return one is None or stepped or one.ends <= server.wall_clock()

    def _check_lists(
        self,
        epoch: int,
        before: dict[str, Any],
        events: list[PendingEvent],
        answers: Sequence[AppendResult],
    ) -> None:
        """I26: feedback is refused only on a list that is not there, or has all of its events."""
        now, skipped = self._lists_of(epoch, [one for one in before if one]), set[str]()
        for event, answer in zip(events, answers, strict=True):
            request, most = event.feedback.query, event.most_events
            one = now.get(request) if event.on_request and now[""] == before[""] else None
            if one is None or one is not before[request]:
                continue
            own = one.tenant.decode() == self._tenant
            hold(not own or answer.outcome != NO_IMPRESSION, f"I26: {request} was forgotten")
            if answer.outcome == NOT_REPEATED and request not in skipped:
                hold(most is not None and one.events >= most, f"I26: {event} should be taken")
            if answer.outcome != APPENDED:  # it counted for the limit of the events after it
                skipped.add(request)

    def _check_returned(
        self, epoch: int, events: list[PendingEvent], answers: Sequence[AppendResult]
    ) -> None:
        """I12: the appender reports a rollback exactly if an acknowledged event is lost."""
        new = [
            Acknowledgement(MODEL, epoch, event.feedback.event, answer.seq)
            for event, answer in zip(events, answers, strict=True)
            if answer.outcome == APPENDED
        ]
        if not new:
            return
        last, self._last_appended[epoch] = self._last_appended.get(epoch), new[-1]
        back = last is not None and new[0].seq <= last.seq
        hold(not back or last in self._world.checker.lost, f"I12: {last}, then {new[0]}")
        hold(len(self._returned) == back, f"I12: {last}, then {new[0]}: reported {self._returned}")
        self._returned.clear()

    async def _read_back(self, seq: int) -> None:
        """I19: check that `min_seq` is not answered with older weights."""
        weight_cache = self._rng.choice(self._world.replicas).weight_cache
        with suppress(SolarError):
            serving = await weight_cache.reach(MODEL, seq, 1.0)
            hold(serving is None or serving.version >= seq, f"I19: {seq} was asked for")


class FaultInjector:
    """Injects random faults."""

    def __init__(self, world: World) -> None:
        self._world, self._rng, self._server = world, world.rng, world.server
        self._store = world.store()
        self._records = 0
        kinds = [
            self._restart, self._cut_power, self._fail_over, self._fail_over, self._stall,
            self._fill, self._kill, self._kill, self._pause, self._lossy_network, self._administer,
            self._administer, self._pause_a_ranker, self._recreate, self._cut_off,
            self._fail_over_unseen, self._step_clock,
        ]  # fmt: skip
        self._kinds = self._rng.sample(kinds, self._rng.randrange(2, 7))
        if world.only:
            self._kinds = [getattr(self, world.only)]

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + FAULT_SECONDS
        while loop.time() < ends:
            await asyncio.sleep(self._rng.expovariate(1.5))
            happens = self._rng.choice(self._kinds)
            self._world.say(happens.__name__)
            await happens()
        if not self._server.up:
            self._server.start()

    async def _restart(self) -> None:
        self._server.stop()
        await self._random_pause()
        self._server.start()

    async def _cut_power(self) -> None:
        self._server.cut_power()
        await self._random_pause()
        self._server.start()

    async def _fail_over(self) -> None:
        if self._rng.random() < 0.5:  # like a primary that is cut off first
            self._server.stall(True)
            await self._random_pause()
        self._server.fail_over()
        self._server.stall(False)
        await self._random_pause()
        self._server.start()

    async def _cut_off(self) -> None:
        """Stop replication for longer than WAIT, then fail over."""
        self._server.stall(True)
        await asyncio.sleep(self._rng.uniform(1.0, 3.0))
        self._server.fail_over()
        self._server.stall(False)
        self._server.start()

    async def _fail_over_unseen(self) -> None:
        """Pause replicas until new records have replaced the lost ones."""
        self._server.stall(True)
        await asyncio.sleep(self._rng.uniform(0.2, 1.0))
        for one in self._world.replicas:
            one.client.pause()
        self._server.fail_over()
        self._server.stall(False)
        self._server.start()
        await asyncio.sleep(self._rng.uniform(0.5, 3.0))
        for one in self._world.replicas:
            one.client.resume()

    async def _step_clock(self) -> None:
        """Step the server's wall clock by more than a lease; half of the time after a kill."""
        killed = self._rng.random() < 0.5
        if killed:
            await self._world.kill_learner(self._rng.choice(self._world.learners))
        seconds = self._rng.uniform(*CLOCK_STEPS)
        self._world.say(f"the clock steps by {seconds:.1f} s")
        self._server.step_clock(seconds)
        await self._random_pause()
        if killed:
            self._world.start_learner()

    async def _stall(self) -> None:
        self._server.stall(True)
        await self._random_pause()
        self._server.stall(False)

    async def _fill(self) -> None:
        self._server.full = True
        await self._random_pause()
        if self._rng.random() < 0.3:
            await self._delete()
        self._server.full = False

    async def _kill(self) -> None:
        await self._world.kill_learner(self._rng.choice(self._world.learners))
        await self._random_pause()
        self._world.start_learner()

    async def _pause(self) -> None:
        await self._pausing(self._rng.choice(self._world.learners).client)

    async def _pause_a_ranker(self) -> None:
        await self._pausing(self._rng.choice(self._world.replicas).client)

    async def _pausing(self, client: Client) -> None:
        client.pause()
        if self._rng.random() < 0.5:
            self._world.start_learner()
        await asyncio.sleep(self._rng.uniform(0.1, 3.0))
        client.resume()

    async def _lossy_network(self) -> None:
        self._world.set_losses(0.4)
        await self._random_pause()
        self._world.set_losses()

    async def _administer(self) -> None:
        """Append a rollback, other parameters, or a reset of the measures; name a version."""
        with suppress(SolarError):
            epoch, *_ = await self._store.states.position(MODEL)
            name = f"v{self._rng.randrange(12)}"
            with suppress(VersionExists, TooManyVersions, NoSuchVersion):
                if self._rng.random() < 0.8:
                    await self._store.versions.keep(MODEL, epoch, name)
                else:
                    await self._store.versions.drop(MODEL, epoch, name)
            kept = await self._store.versions.listed(MODEL)
            if not kept:  # the model was deleted meanwhile
                return
            chosen = self._rng.choice(kept)
            state = await self._store.versions.load(MODEL, chosen.name or chosen.seq)
            record = self._rng.choice(
                (Replace(state.state.model, "rollback"), Retune(C=1e-3), ResetMeasures())
            )
            self._records += 1
            name = f"\x01admin-{self._records}"
            self._world.checker.sent.add(name)
            event = NewRecord(name, b"", codec.dump_record(record))
            await self._store.log.append(
                MODEL, epoch, [event], limit=self._world.limit, time=self._world.now()
            )

    async def _delete(self) -> None:
        """Delete the model; this must work on a full server."""
        try:
            await self._store.models.delete(MODEL)
        except Full as error:
            raise Violation(f"I8: the model is deleted, but: {error}") from error
        except SolarError as error:
            self._world.say(f"not deleted: {error}")

    async def _recreate(self) -> None:
        with suppress(SolarError):
            await self._delete()
            await self._random_pause()
            await self._world.create(self._store)

    async def _random_pause(self) -> None:
        await asyncio.sleep(self._rng.choice((0.0, 0.01, 0.1, 0.5, 1.5)) * self._rng.random())


def play(seed: int, only: str = "", level: Level | None = None) -> Outcome:
    """Run a seed; a violation carries the trace.

    `only` names the single fault to inject, under more load; `level` sets the durability.
    """
    worlds: list[World] = []

    async def main(loop: SimulatedLoop) -> Outcome:
        world = World(seed, loop, only, level)
        worlds.append(world)
        with (
            patch.object(weight_cache_module, "rolled_back", world.history.rolled_back),
            patch.object(learner, "rolled_back", world.history.rolled_back),
            patch.object(scripts, "FULL", 1 if seed % 2 else 64),  # many small slices
        ):
            return await world.run()

    try:
        with patch.object(evidence, "SPREAD", 1.0):  # a few lists decide a duel
            return clockwork.run(main)
    except BaseException as error:
        error.add_note(f"seed {seed}: make simulate SEED={seed}")
        error.trace = tuple(worlds[0].trace) if worlds else ()  # type: ignore[attr-defined]
        raise


def try_seed(seed: int) -> tuple[int, Outcome | str]:
    """Return the outcome of a seed or its error, for worker processes."""
    logging.disable(logging.CRITICAL)
    try:
        return seed, play(seed)
    except BaseException as error:  # noqa: BLE001  # every error is a finding
        return seed, f"{type(error).__name__}: {error}"
