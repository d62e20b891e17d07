"""What must never happen, looked for after every step of the server and once more in the end.

It keeps a log of its own, from the calls that were made; what a failover or a power cut takes away
is taken away here too, so that what was acknowledged and is lost is counted exactly.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.domain import codec
from app.domain.codec import next_chain
from app.domain.model import SUMS, Model, ModelState
from app.domain.records import Feedback, Replace, ResetMeasures
from app.domain.reducer import Reducer, sound
from app.ingest.appender import PendingEvent
from app.learning import replay
from app.serving.weight_cache import ServedModel
from app.storage.keys import Keys
from app.storage.log import OTHER_BODY, AppendResult
from app.storage.states import LogPosition
from app.storage.store import Store
from tests.faults.checker import same
from tests.simulation.server import Server, Step

_MODEL = re.compile(r"\{(.*)\}")
#: What a place in a model's history depends on.
_HISTORY = {"create", "delete", "append", "commit"}


class Violation(AssertionError):
    """An invariant does not hold; the message begins with its number."""


def hold(true: object, says: str) -> None:
    """Or it is a violation."""
    if not true:
        raise Violation(says)


class Told(NamedTuple):
    """An event, in a life of its model, at the seq that its poster was told."""

    model: str
    epoch: int
    event: str
    seq: int


@dataclass
class Life:
    """A model from its creation to its deletion, as its log says it must be."""

    state: ModelState  # folded up to the last commit
    records: list[bytes] = field(default_factory=list)
    chains: list[bytes] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    ended: bool = False


def decoded(fields: dict[bytes, bytes]) -> ModelState:
    """A state as the store has it, without the store's own code."""
    w, spread, sums = (
        codec.load_blob(fields[name], name.decode()).arrays["values"]
        for name in (b"w", b"spread", b"sums")
    )
    settings = codec.load_config(codec.load_blob(fields[b"meta"], "meta").fields)
    return ModelState(int(fields[b"seq"]), fields[b"chain"], Model(settings, w, spread), sums)


def bits(state: ModelState) -> tuple[Any, ...]:
    """What two states that are the same have in common: all of it."""
    model = state.model
    arrays = (model.weights, model.spread, state.sums)
    return (state.seq, state.chain, model.config, *(array.tobytes() for array in arrays))


class Checker:
    """Follows the server, and those who were told something by it."""

    def __init__(self, server: Server, limit: int) -> None:
        self._server, self._limit = server, limit
        self.lives: dict[tuple[str, int], Life] = {}
        self._fences: dict[str, int] = {}
        self._folded: dict[bytes, ModelState] = {}
        self._weights: set[tuple[int, int, bytes]] = set()  # that were committed once
        self.told: dict[Told, PendingEvent] = {}
        self.lost: set[Told] = set()
        self.sent: set[str] = set()
        self.losses = 0  # how often the server has lost some history
        self._before: dict[bytes, bytes] = {}  # of each chain that ever was, the one before it
        self._since: dict[bytes, int] = {}  # losses when a chain was committed first
        server.watcher.step, server.watcher.lost = self.step, self.take_away

    # ---- the server's steps ----

    def step(self, step: Step) -> None:
        """Right after it was made."""
        self._note(step)
        if step.call.name in ("append", "commit", "create"):
            self._look(_model(step))

    def take_away(self, steps: Sequence[Step]) -> None:
        """These are lost: what is left is all that there was."""
        self.losses += any(step.call.name in _HISTORY for step in steps)
        for step in steps:
            if step.call.name == "append":
                self.lost.update(_told(step))
        self.lives.clear()
        self._fences.clear()
        for step in self._server.journal:
            self._note(step)
        for model, epoch in [key for key, life in self.lives.items() if not life.ended]:
            hold(self._of(model)[0] == epoch, "I14: what is left is not what was there")
            self._look(model)

    def _note(self, step: Step) -> None:
        match step.call.name:
            case "create":
                self._created(step)
            case "delete":
                self.life(_model(step), int(step.call.given[1][0])).ended = True
            case "append":
                self._appended(step)
            case "commit":
                self._committed(step)
            case "lease":
                self._leased(step)

    def _created(self, step: Step) -> None:
        model = _model(step)
        key = (model, int(step.answer))
        hold(key not in self.lives, f"an epoch of {model} is used again")
        fields = step.writes[Keys(model).state]
        assert fields is not None
        start = decoded(fields.value)
        self._weights.add((key[1], 0, start.model.weights.tobytes()))
        self._since.setdefault(start.chain, self.losses)
        self.lives[key] = Life(start, chains=[start.chain])

    def _appended(self, step: Step) -> None:
        hold(step.answer[0] == 0, "I8: a post that was refused has written")
        keys, args = step.call.given
        life, before = self.life(_model(step), int(args[0])), 0
        for at, (code, seq) in enumerate(step.answer[1:]):
            event, record = _event(keys[3 + 2 * at]), args[7 + 5 * at]
            if code == 0:
                before = len(life.records)
                hold(seq == before + 1, f"I2: record {seq} comes after {before}")
                hold(event not in life.events, f"I6: {event} has two records")
                life.events[event] = seq
                life.records.append(record)
                life.chains.append(next_chain(life.chains[-1], record))
                self._before[life.chains[-1]] = life.chains[-2]
        waiting = len(life.records) - life.state.seq
        hold(waiting <= self._limit, f"I18: {waiting} records wait")

    def _committed(self, step: Step) -> None:
        model, (_, args) = _model(step), step.call.given
        epoch, fence, seq, chain, new, new_chain = args[:6]
        life = self.life(model, int(epoch))
        now = life.state
        hold((seq, chain) == (now.seq, now.chain), f"I9: {new} builds on {seq}, not on {now.seq}")
        hold(now.seq <= new <= len(life.records), f"I3: {new} is beyond {len(life.records)}")
        hold(new_chain == life.chains[new], f"I3: the chain of {new} is not the log's")
        hold(fence == self._fences[model], f"I10: {fence} commits, but {self._fences[model]} leads")
        life.state = self._fold(life, new)
        self._weights.add((int(epoch), new, life.state.model.weights.tobytes()))
        self._since.setdefault(new_chain, self.losses)

    def _fold(self, life: Life, until: int) -> ModelState:
        """Each way through a log is folded once."""
        chain = life.chains[until]
        if chain not in self._folded:
            fold = Reducer(life.state)
            for record in life.records[life.state.seq : until]:
                fold.apply(record)
                _check_replaced(fold, record)
            self._folded[chain] = fold.state()
        return self._folded[chain]

    def _leased(self, step: Step) -> None:
        model, before = _model(step), self._fences.get(_model(step), 0)
        hold(step.answer in (before, before + 1), f"I10: fence {step.answer} after {before}")
        self._fences[model] = step.answer

    # ---- what is there ----

    def life(self, model: str, epoch: int) -> Life:
        """Of a model."""
        hold((model, epoch) in self.lives, f"{model} does not live in epoch {epoch}")
        return self.lives[model, epoch]

    def _of(self, model: str) -> tuple[int, dict[bytes, bytes]]:
        fields = self._server.db.hgetall(Keys(model).state)
        return int(fields.get(b"epoch", 0)), fields

    def _look(self, model: str) -> None:
        """The log, the state and the versions as they are in the server now."""
        db, keys = self._server.db, Keys(model)
        epoch, fields = self._of(model)
        life = self.life(model, epoch)
        tail = int(db.get(keys.seq) or 0)
        seqs = [seq for seq, _ in db.find(keys.log, ())]
        first = self._trimmed(model)
        hold(tail == len(life.records), f"I2: the log ends at {tail}, not {len(life.records)}")
        hold(seqs == list(range(first + 1, tail + 1)), f"I2: the log has {seqs}")
        state = decoded(fields)
        hold(state.seq <= tail, f"I3: the state is at {state.seq}, the log ends at {tail}")
        hold(bits(state) == bits(life.state), f"I4: at {state.seq} the replay gives other bits")
        hold(not sound(state), f"I16: {sound(state)}")
        versions = [int(one) for one in db.zrange(keys.snapshots)]
        hold(first <= versions[0], f"I11: trimmed up to {first}, but {versions[0]} is kept")
        hold(versions[-1] <= state.seq, f"I11: version {versions[-1]} is of the future")
        hold(all(db.exists(keys.snapshot(one)) for one in versions), "I11: a version is missing")

    def _trimmed(self, model: str) -> int:
        """Up to where the log is trimmed."""
        db, keys = self._server.db, Keys(model)
        return int(db.get(keys.seq) or 0) - db.xlen(keys.log)

    # ---- what went back ----

    def is_lost(self, before: LogPosition, now: LogPosition) -> bool:
        """Whether a place is not on the way to another; in another life it is not looked for."""
        if before[0] != now[0]:
            return before[0] > now[0]
        chain: bytes | None = now[2]
        for _ in range(now[1] - before[1]):
            chain = self._before.get(chain) if chain else None
        return chain != before[2]

    def can_tell(self, model: str, before: LogPosition, now: LogPosition) -> bool:
        """Whether the log there is now leads to one place, and reaches back to another."""
        life = self.lives.get((model, now[0]))
        if life is None or life.ended or now[2] not in life.chains:
            return False
        return self._trimmed(model) <= before[1]

    def rolled_back(self, before: LogPosition, now: LogPosition) -> None:
        """Somebody says so (I12): then some history was lost since it was there."""
        lost = self.losses > self._since[before[2]]
        hold(lost, f"I12: {before[:2]}, then {now[:2]}: nothing was lost")

    # ---- what people are told ----

    def tell(
        self, model: str, epoch: int, posts: Sequence[PendingEvent], answers: Sequence[AppendResult]
    ) -> None:
        """Somebody was answered: I1, I6, I7."""
        for posted, (outcome, seq) in zip(posts, answers, strict=True):
            event = posted.feedback.event
            told = Told(model, epoch, event, seq)
            if seq:
                self._check_there(told, posted, outcome == OTHER_BODY)
            if seq and outcome != OTHER_BODY:
                self._check_told_alike(told)
                self.told[told] = posted

    def _check_there(self, told: Told, posted: PendingEvent, another: bool) -> None:
        life = self.lives.get((told.model, told.epoch))
        if told in self.lost and self._server.level != "replicated":
            return
        hold(life and life.events.get(told.event) == told.seq, f"I1: {told} is not there")
        assert life is not None
        record = codec.load_record(life.records[told.seq - 1])
        alike = isinstance(record, Feedback) and same(record, posted)
        hold(alike != another, f"I7: {told} is {'not ' * another}another")

    def _check_told_alike(self, told: Told) -> None:
        others = [one for one in self.told if one[:3] == told[:3] and one.seq != told.seq]
        hold(all(one in self.lost for one in others), f"I6: {told}, but before {others}")

    def serves(self, serving: ServedModel) -> None:
        """I13: what a ranker serves was committed, once and whole."""
        place = (serving.epoch, serving.version, serving.weights.tobytes())
        hold(place in self._weights, f"I13: version {serving.version} was never committed")

    # ---- in the end ----

    def acknowledged_and_lost(self) -> set[Told]:
        """Those that are not in the log where their posters were told; I1 by level."""
        missing = set()
        for told in self.told:
            life = self.lives.get((told.model, told.epoch))
            if life is None or (life.events.get(told.event) != told.seq and not life.ended):
                missing.add(told)
        hold(missing <= self.lost, f"I1: lost without a reason: {missing - self.lost}")
        hold(not missing or self._server.level != "replicated", f"I1: lost: {missing}")
        return missing

    def check_log(self, model: str) -> None:
        """I4 from the very start, I5, I7, I17: all records of a model in one go."""
        life = self.life(model, self._of(model)[0])
        hold(life.state.seq == len(life.records), f"I15: {model} stands at {life.state.seq}")
        hold(set(life.events) <= self.sent, "I7: a record that nobody sent")
        queries = _queries(codec.load_record(record) for record in life.records)
        counted = life.state.sums[SUMS.index("queries")]
        hold(counted == queries, f"I5: {counted} queries count, {queries} were there")

    def living(self) -> list[str]:
        return [model for (model, _), life in self.lives.items() if not life.ended]


def _queries(records: Iterable[Any]) -> int:
    """I5: each record builds on all on its request before it; how many queries there are."""
    clicked: dict[str, list[int]] = {}
    queries = 0
    for record in records:
        if isinstance(record, ResetMeasures):
            queries = 0
        elif isinstance(record, Feedback) and record.submitted is not None:
            before = clicked.get(record.query, [])
            assert record.clicked_before is not None
            assert record.clicks is not None
            hold(record.clicked_before.tolist() == before, f"I5: {record.event} misses clicks")
            hold((record.counted is None) == (record.query not in clicked), "I5: counted twice")
            queries += record.counted is None
            clicked[record.query] = [*before, *record.clicks.tolist()]
        elif isinstance(record, Feedback):
            queries += 1
    return queries


def _check_replaced(fold: Reducer, record: bytes) -> None:
    loaded = codec.load_record(record)
    if isinstance(loaded, Replace):
        now, carried = fold.state().model, loaded.model
        same_bits = now.weights.tobytes() == carried.weights.tobytes()
        hold(same_bits and now.spread.tobytes() == carried.spread.tobytes(), "I17: not the model")


def _model(step: Step) -> str:
    found = _MODEL.search(step.call.given[0][0])
    assert found
    return found[1]


def _event(key: str) -> str:
    return key.split(":", 4)[4]


def _told(step: Step) -> list[Told]:
    keys, args = step.call.given
    return [
        Told(_model(step), int(args[0]), _event(keys[3 + 2 * at]), seq)
        for at, (code, seq) in enumerate(step.answer[1:])
        if code == 0
    ]


async def check_by_its_own_words(store: Store, model: str) -> None:
    """I4 as `solar verify` says it."""
    found = await replay.replay(store, model)
    hold(not found.differences(), f"I4: {found.differences()}")
    complaints = await replay.verify(store, model)
    hold(not complaints, f"I4: {complaints}")
