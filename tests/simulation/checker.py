"""The invariants, checked after every step of the server and at the end.

The checker keeps a separate log of all calls. It drops what a failover or a power cut loses, so it
counts lost acknowledged events exactly.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from app.domain import codec
from app.domain.codec import next_chain
from app.domain.duel_lists import Sides
from app.domain.duels import RESERVED_NAMES
from app.domain.records import Feedback, ResetMeasures
from app.domain.reducer import Reducer, sound
from app.ingest.appender import PendingEvent
from app.learning import replay
from app.serving.served_model import ServedModel
from app.storage.keys import Keys, follower_address, internal_event, leader_of
from app.storage.log import APPENDED, OTHER_BODY, AppendResult
from app.storage.states import LogPosition
from app.storage.store import Store
from tests.faults.checker import same
from tests.simulation.duel_checks import DuelChecks
from tests.simulation.expected import (
    Acknowledgement,
    FollowerEpoch,
    ModelEpoch,
    Replays,
    address_of,
    bits,
    decoded,
    hold,
)
from tests.simulation.follower_checks import FollowerChecks
from tests.simulation.list_checks import ListChecks, request_keys
from tests.simulation.scripts import EACH, GIVEN
from tests.simulation.server import Server, Step

#: Calls that change a model's history.
_HISTORY = {"create", "delete", "append", "commit", "follow", "unfollow", "commit_follower"}
#: What the event of a step of a tournament begins with: the learner appends it.
STEPS = internal_event("tournament", "")
#: Records that no backlog refuses.
UNBOUND = (STEPS, internal_event("promotion", ""))
#: Calls after which the model that they belong to is looked at.
_LOOKED_AFTER = {
    "append", "commit", "commit_part", "create", "follow", "unfollow", "commit_follower", "shorten",
}  # fmt: skip


class Checker:
    """Checks every step of the server and every answer to a client."""

    def __init__(self, server: Server, limit: int) -> None:
        self._server, self._limit = server, limit
        self.epochs: dict[tuple[str, int], ModelEpoch] = {}
        self._fences: dict[str, int] = {}
        self._replays = Replays()
        self._weights: set[tuple[int, int, bytes]] = set()  # committed weights
        self.acknowledged: dict[Acknowledgement, PendingEvent] = {}
        self.lost: set[Acknowledgement] = set()
        self.sent: set[str] = set()
        self.losses = 0  # number of history losses
        self.followers = FollowerChecks(self._replays, self._fences)
        self._duels = DuelChecks(self._replays, self.followers)
        self.lists = ListChecks(server)
        self._before: dict[bytes, bytes] = {}  # chain → previous chain
        self._since: dict[bytes, int] = {}  # chain → losses at its first commit
        server.watcher.step, server.watcher.lost = self.step, self.steps_lost

    # ---- steps of the server ----

    def step(self, step: Step) -> None:
        """Check a step right after it."""
        self._note(step)
        if step.call.name in _LOOKED_AFTER:
            self._look(_model(step))
        if step.call.name in ("append", "remember"):
            self.lists.look(request_keys(step))

    def steps_lost(self, steps: Sequence[Step]) -> None:
        """Drop lost steps and rebuild the history from the rest."""
        self.losses += any(step.call.name in _HISTORY for step in steps)
        for step in steps:
            if step.call.name == "append":
                self.lost.update(_appended_events(step))
        self.epochs.clear()
        self.followers.all.clear()
        self._fences.clear()
        self.lists.clear()
        for step in self._server.journal:
            self._note(step)
        existing = [key for key, current in self.epochs.items() if not current.ended]
        self.lists.look_at_all(existing)
        for model, epoch in existing:
            hold(self._of(model)[0] == epoch, "I14: the remaining data are not the earlier data")
            self._look(model)

    def _note(self, step: Step) -> None:
        match step.call.name:
            case "create":
                self._created(step)
            case "delete":
                self.epoch_of(_model(step), int(step.call.given[1][0])).ended = True
            case "append":
                self._appended(step)
            case "remember":
                self.lists.remembered(step)
            case "commit":
                self._committed(step)
            case "commit_part":
                self._committed_part(step)
            case "lease":
                self._leased(step)
            case "follow" | "unfollow" | "commit_follower" | "shorten":
                for chain in self.followers.note(step, self._now(_model(step))):
                    self._since.setdefault(chain, self.losses)

    def _created(self, step: Step) -> None:
        model = _model(step)
        key = (model, int(step.answer))
        hold(key not in self.epochs, f"an epoch of {model} is used again")
        fields = step.writes[Keys(model).state]
        assert fields is not None
        start = decoded(fields.value)
        self._weights.add((key[1], 0, start.model.weights.tobytes()))
        self._since.setdefault(start.chain, self.losses)
        self.epochs[key] = ModelEpoch(start, chains=[start.chain], versions={0})

    def _appended(self, step: Step) -> None:
        if step.answer[0] == 5:  # it has noted that older processes append
            return
        hold(step.answer[0] == 0, "I8: a post that was refused has written")
        current, before = self.epoch_of(_model(step), int(step.call.given[1][0])), 0
        waited = sum(current.works[current.state.seq :])
        for at, (code, seq) in enumerate(_outcomes(step)):
            event, record = _event(step, at)
            if code == 0:
                before = len(current.records)
                hold(seq == before + 1, f"I2: record {seq} comes after {before}")
                hold(event not in current.events, f"I6: {event} has two records")
                current.events[event] = seq
                if event.startswith(UNBOUND):
                    current.unbound.add(seq - 1)
                self._duels.appended(_model(step), current, record)
                current.records.append(record)
                last, config = current.loaded(seq)[-1], current.state.model.config
                current.lists.append(self.lists.appended(step, at, last, config))
                current.works.append(int(step.call.given[1][GIVEN + EACH * at + 3]))
                current.chains.append(next_chain(current.chains[-1], record))
                self._before[current.chains[-1]] = current.chains[-2]
        waiting = range(current.state.seq, len(current.records))
        unbound = sum(seq in current.unbound for seq in waiting)
        hold(len(waiting) - unbound <= self._limit, f"I18: {len(waiting)} records wait")
        self._check_work(step, current, waited)

    def _check_work(self, step: Step, current: ModelEpoch, waited: int) -> None:
        """I18: check the work that waits; one event may take more if no record waits before it."""
        given, waiting = step.call.given[1][2], sum(current.works[current.state.seq :])
        alone = waited == 0 and len(current.records) == current.state.seq + 1
        hold(given == "" or alone or waiting <= int(given), f"I18: work of {waiting} waits")

    def _committed(self, step: Step) -> None:
        model, (_, args) = _model(step), step.call.given
        epoch, fence, seq, chain, new, new_chain = args[:6]
        current = self.epoch_of(model, int(epoch))
        now = current.state
        hold((seq, chain) == (now.seq, now.chain), f"I9: {new} builds on {seq}, not on {now.seq}")
        hold(now.seq <= new <= len(current.records), f"I3: {new} is beyond {len(current.records)}")
        hold(new_chain == current.chains[new], f"I3: the chain of {new} is not the log's")
        hold(fence == self._fences[model], f"I10: {fence} commits, but {self._fences[model]} leads")
        current.state = self._replays.to(current, new)
        if args[10]:
            current.versions |= {new} if ":snap:" in step.call.given[0][4] else set()
        self._duels.committed(current)
        self._weights.add((int(epoch), new, current.state.model.weights.tobytes()))
        self._since.setdefault(new_chain, self.losses)

    def _committed_part(self, step: Step) -> None:
        """Compare a part with a replay: its record in one cut, after the same number of pairs."""
        model, (_, args) = address_of(step.call.given[0][0]), step.call.given
        epoch, fence, seq, chain, blob = args
        current: ModelEpoch | FollowerEpoch = (
            self.epoch_of(model, int(epoch))
            if leader_of(model) == model
            else self.followers.epoch_of(model, int(epoch))
        )
        base = (current.state.seq, current.state.chain)
        hold((seq, chain) == base, f"I9: a part of {seq + 1} builds on {seq}, not on {base[0]}")
        hold(fence == self._fences[model], f"I10: {fence} commits, but {self._fences[model]} leads")
        _, fields, arrays = codec.load_blob(blob, "part")
        chain_of_part = bytes.fromhex(fields["chain"])
        if seq == len(current.records) or chain_of_part != current.chains[seq + 1]:
            return  # of a record that the log has lost: no learner continues it
        reducer = Reducer(current.state, follows=current.follows)
        record = current.records[seq]
        hold(
            not reducer.apply_part(record, codec.load_record(record), fields["pairs"]),
            f"I4: a part of {seq + 1} has all of its pairs",
        )
        part = reducer.part()
        assert part is not None
        found = [arrays[name].tobytes() for name in ("weights", "spread")]
        tally = tuple(fields.get(name, 0.0) for name in part.tally._fields)
        expected = [part.weights.tobytes(), part.spread.tobytes()]
        hold(found == expected, f"I4: {fields['pairs']} pairs of {seq + 1}: the replay differs")
        same = tally == part.tally and fields["scaled"] == part.scaled
        hold(same, f"I4: {fields['pairs']} pairs of {seq + 1} have other outcomes")

    def _leased(self, step: Step) -> None:
        model = address_of(step.call.given[0][0])
        before = self._fences.get(model, 0)
        hold(step.answer in (before, before + 1), f"I10: fence {step.answer} after {before}")
        self._fences[model] = step.answer

    def _now(self, model: str) -> ModelEpoch:
        """Return the present epoch of a model."""
        found = [one for (name, _), one in self.epochs.items() if name == model and not one.ended]
        hold(found, f"{model} does not exist")
        return found[-1]

    # ---- data in the server ----

    def epoch_of(self, model: str, epoch: int) -> ModelEpoch:
        """Return an epoch of a model."""
        hold((model, epoch) in self.epochs, f"{model} does not exist in epoch {epoch}")
        return self.epochs[model, epoch]

    def _of(self, model: str) -> tuple[int, dict[bytes, bytes]]:
        fields = self._server.db.hgetall(Keys(model).state)
        return int(fields.get(b"epoch", 0)), fields

    def _look(self, model: str) -> None:
        """Check the log, the state and the versions in the server."""
        db, keys = self._server.db, Keys(model)
        epoch, fields = self._of(model)
        current = self.epoch_of(model, epoch)
        tail = int(db.get(keys.seq) or 0)
        seqs = [seq for seq, _ in db.find(keys.log, ())]
        first = self._trimmed(model)
        hold(
            tail == len(current.records), f"I2: the log ends at {tail}, not {len(current.records)}"
        )
        hold(seqs == list(range(first + 1, tail + 1)), f"I2: the log has {seqs}")
        state = decoded(fields)
        hold(state.seq <= tail, f"I3: the state is at {state.seq}, the log ends at {tail}")
        hold(bits(state) == bits(current.state), f"I4: at {state.seq} the replay differs")
        hold(not sound(state.model), f"I16: {sound(state.model)}")
        self._look_at_work(current, fields)
        versions = [int(one) for one in db.zrange(keys.snapshots)]
        hold(first <= versions[0], f"I11: trimmed up to {first}, but {versions[0]} is kept")
        hold(versions[-1] <= state.seq, f"I11: version {versions[-1]} is after the state")
        hold(all(db.exists(keys.snapshot(one)) for one in versions), "I11: a version is missing")
        for member in db.zrange(keys.keeps):
            kept, own = db.hgetall(keys.kept(member.decode())), member.split(b"-")[0]
            hold(kept.get(b"epoch") == fields[b"epoch"] == own, f"I11: {member!r} is of another")
        self.followers.look(db, model, current, first)

    def _look_at_work(self, current: ModelEpoch, fields: dict[bytes, bytes]) -> None:
        """I18: check that the store knows the work that waits."""
        seq, whole = current.state.seq, sum(current.works)
        charged = int(fields.get(b"charged", 0))
        hold(charged == whole, f"I18: {charged} is charged, not {whole}")
        done = fields.get(b"worked", b"0:0")
        expected = b"%d:%d" % (seq, sum(current.works[:seq]))
        hold(done == expected, f"I18: {done!r} is done, not {expected!r}")

    def _trimmed(self, model: str) -> int:
        """Return the last trimmed seq."""
        db, keys = self._server.db, Keys(model)
        return int(db.get(keys.seq) or 0) - db.xlen(keys.log)

    # ---- rollbacks ----

    def is_lost(self, before: LogPosition, now: LogPosition) -> bool:
        """Whether a position is not an ancestor of another; compares epochs first."""
        if before[0] != now[0]:
            return before[0] > now[0]
        chain: bytes | None = now[2]
        for _ in range(now[1] - before[1]):
            chain = self._before.get(chain) if chain else None
        return chain != before[2]

    def can_tell(self, model: str, before: LogPosition, now: LogPosition) -> bool:
        """Whether the present log leads to `now` and reaches back to `before`."""
        current = self.epochs.get((model, now[0])) or self.followers.all.get((model, now[0]))
        if current is None or current.ended or now[2] not in current.chains:
            return False
        return self._trimmed(leader_of(model)) <= before[1]

    def rolled_back(self, before: LogPosition, now: LogPosition) -> None:
        """Check that history was lost since a reported rollback position (I12)."""
        lost = self.losses > self._since[before[2]]
        hold(lost, f"I12: {before[:2]}, then {now[:2]}: nothing was lost")

    # ---- answers to clients ----

    def check_answers(
        self, model: str, epoch: int, posts: Sequence[PendingEvent], answers: Sequence[AppendResult]
    ) -> None:
        """Check the answers to a post: I1, I6, I7."""
        for posted, (outcome, seq) in zip(posts, answers, strict=True):
            event = posted.feedback.event
            event_ack = Acknowledgement(model, epoch, event, seq)
            if seq:
                self._check_stored(event_ack, posted, outcome)
            if seq and outcome != OTHER_BODY:
                self._check_same_seq(event_ack)
                self.acknowledged[event_ack] = posted

    def _check_stored(self, event_ack: Acknowledgement, posted: PendingEvent, outcome: int) -> None:
        current = self.epochs.get((event_ack.model, event_ack.epoch))
        if event_ack in self.lost and self._server.level != "replicated":
            return
        hold(
            current and current.events.get(event_ack.event) == event_ack.seq,
            f"I1: {event_ack} is missing",
        )
        assert current is not None
        record = codec.load_record(current.records[event_ack.seq - 1])
        alike, another = (
            isinstance(record, Feedback) and same(record, posted),
            outcome == OTHER_BODY,
        )
        hold(alike != another, f"I7: {event_ack} is {'not ' * another}another")
        if outcome == APPENDED and posted.most_events is not None:
            assert isinstance(record, Feedback)
            assert record.rounds is not None
            hold(len(record.rounds) < posted.most_events, f"I26: {event_ack} is one too many")

    def _check_same_seq(self, event_ack: Acknowledgement) -> None:
        others = [
            one
            for one in self.acknowledged
            if one[:3] == event_ack[:3] and one.seq != event_ack.seq
        ]
        hold(all(one in self.lost for one in others), f"I6: {event_ack}, but before {others}")

    def serves(self, serving: ServedModel) -> None:
        """I13: check that served weights were committed."""
        place = (serving.epoch, serving.version, serving.weights.tobytes())
        hold(place in self._weights, f"I13: version {serving.version} was never committed")

    def shows(self, serving: ServedModel, sides: Sides) -> None:
        """I24, I25: check that both sides of a list were committed, and that a duel is on."""
        duel = serving.duel
        hold(duel and duel.is_on, f"I25: a list of a duel by version {serving.version}")
        assert duel is not None
        pairs = (
            (duel.settings.champion, sides.champion),
            (duel.settings.challenger, sides.challenger),
        )
        for name, weights in pairs:
            if name in RESERVED_NAMES or weights is None or not name:
                continue
            address = follower_address(serving.name, name)
            known = self.followers.has_committed(address, weights.tobytes())
            hold(known, f"I24: the weights of {name} were never committed")

    def can_duel(self, serving: ServedModel) -> bool:
        """Whether a duel is on whose sides are there and not stalled."""
        duel = serving.duel
        if duel is None or not duel.is_on:
            return False
        if duel.settings.version is not None:
            key = Keys(serving.name).dueling(serving.epoch, duel.settings.version)
            if not self._server.db.exists(key):  # a failover lost it before the record
                return False
        able = self.followers.able(serving.name)
        names = (duel.settings.champion, duel.settings.challenger)
        followers = [name for name in names if name and name not in RESERVED_NAMES]
        return all(follower_address(serving.name, name) in able for name in followers)

    # ---- final checks ----

    def acknowledged_and_lost(self) -> set[Acknowledgement]:
        """Return acknowledged events that are not at their seq; checks I1 by level."""
        missing = set()
        for event_ack in self.acknowledged:
            current = self.epochs.get((event_ack.model, event_ack.epoch))
            if current is None or (
                current.events.get(event_ack.event) != event_ack.seq and not current.ended
            ):
                missing.add(event_ack)
        hold(missing <= self.lost, f"I1: lost without a reason: {missing - self.lost}")
        hold(not missing or self._server.level != "replicated", f"I1: lost: {missing}")
        return missing

    def check_log(self, model: str) -> None:
        """Check all records of a model: I4 from the start, I5, I7, I17."""
        current = self.epoch_of(model, self._of(model)[0])
        hold(
            current.state.seq == len(current.records), f"I15: {model} stands at {current.state.seq}"
        )
        others = [one for one in current.events.keys() - self.sent if not one.startswith(STEPS)]
        hold(not others, f"I7: records that no client sent: {others}")
        records = zip(map(codec.load_record, current.records), current.lists, strict=True)
        rule, sums = current.state.model.config.counts_abandoned, current.state.measures()
        counted, expected = (sums["queries"], sums["abandoned"]), _queries(records, rule)
        hold(counted == expected, f"I5: {counted} count, {expected} were there")
        self._duels.check_end(current)
        self.lists.check_end(current)
        self.followers.check_all(model, len(current.records))

    def is_settled(self, model: str) -> bool:
        """Whether no follower is behind, and no step of a tournament is due."""
        current = self._now(model)
        followers = [self.followers.existing(model)[one] for one in self.followers.able(model)]
        reached = all(one.state.seq == len(current.records) for one in followers)
        return reached and not self._duels.is_due(current)

    def existing_models(self) -> list[str]:
        return [model for (model, _), current in self.epochs.items() if not current.ended]


def _queries(records: Iterable[tuple[Any, str]], counts_abandoned: bool) -> tuple[int, int]:
    """I5: check that records build on earlier ones; return the measured and abandoned queries.

    Each record comes with the name of its list.
    """
    clicked: dict[str, list[int]] = {}
    queries = abandoned = 0
    for record, name in records:
        if isinstance(record, ResetMeasures):
            queries = abandoned = 0
        elif isinstance(record, Feedback) and record.submitted is not None:
            before = clicked.get(name, [])
            assert record.clicked_before is not None
            assert record.clicks is not None
            hold(record.clicked_before.tolist() == before, f"I5: {record.event} misses clicks")
            hold((record.counted is None) == (name not in clicked), "I5: counted twice")
            now = clicked[name] = [*before, *record.clicks.tolist()]
            if not counts_abandoned:
                queries += record.counted is None
            else:
                queries += bool(now) and not before
                abandoned += not now and record.counted is None
                abandoned -= bool(now) and not before and record.counted is not None
        elif isinstance(record, Feedback):
            queries += 1
    return queries, abandoned


def _model(step: Step) -> str:
    """Return the model in whose slot a step writes."""
    return leader_of(address_of(step.call.given[0][0]))


def _event(step: Step, at: int) -> tuple[str, bytes]:
    """Return the id and the record of an event of a post."""
    keys, args = step.call.given
    hashed, _, record = args[GIVEN + EACH * at :][:3]
    if not hashed:  # an internal event has a separate key
        return keys[3 + at].split(":", 4)[4], record
    feedback = codec.load_record(record) if record else None
    return feedback.event if isinstance(feedback, Feedback) else "", record


def _outcomes(step: Step) -> Iterable[tuple[int, int]]:
    """Return the code and the seq of each event of a post."""
    return zip(step.answer[2::2], step.answer[3::2], strict=True)


def _appended_events(step: Step) -> list[Acknowledgement]:
    epoch = int(step.call.given[1][0])
    return [
        Acknowledgement(_model(step), epoch, _event(step, at)[0], seq)
        for at, (code, seq) in enumerate(_outcomes(step))
        if code == 0
    ]


async def check_with_verify(store: Store, model: str, *, stalled: bool = False) -> None:
    """I4: check with replay and verify; a stalled follower only with verify."""
    if not stalled:
        found = await replay.replay(store, model)
        hold(not found.differences(), f"I4: {found.differences()}")
    complaints = await replay.verify(store, model)
    hold(not complaints, f"I4: {complaints}")
