"""What a model or a follower must be, computed from its log; and how a violation is stated."""

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from app.domain import codec, duel_fields
from app.domain.duels import Duel, EndDuel
from app.domain.model import Model, ModelState
from app.domain.records import Feedback, Record, Replace, ResetMeasures, Retune
from app.domain.reducer import Reducer
from app.ranking.certainty import UNKNOWN, Certainty
from app.storage.keys import follower_address

_KEY = re.compile(r"\{(.*)\}:(?:f:([^:]+):)?")


class Violation(AssertionError):
    """A violated invariant; the message starts with its number."""


def hold(true: object, says: str) -> None:
    """Raise Violation unless `true`."""
    if not true:
        raise Violation(says)


def address_of(key: str) -> str:
    """Return the address of the model or follower that has a key.

    >>> address_of("solar:{m}:log"), address_of("solar:{m}:f:b:state")
    ('m', 'm/b')
    """
    found = _KEY.search(key)
    assert found
    return found[1] if found[2] is None else follower_address(found[1], found[2])


class Acknowledgement(NamedTuple):
    """An event in an epoch of its model with the seq that its client got."""

    model: str
    epoch: int
    event: str
    seq: int


@dataclass
class ModelEpoch:
    """A model from creation to deletion, as computed from its log."""

    state: ModelState  # replayed up to the last commit
    records: list[bytes] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)  # by records, also those that were dropped
    works: list[int] = field(default_factory=list)
    chains: list[bytes] = field(default_factory=list)
    unbound: set[int] = field(default_factory=set)  # places of records without a limit
    events: dict[str, int] = field(default_factory=dict)
    lists: list[str] = field(default_factory=list)  # by records, "" without one
    ended: bool = False
    _loaded: list[Record] = field(default_factory=list)

    follows = False
    name = b""

    def loaded(self, until: int) -> list[Record]:
        """Return the first records."""
        self._loaded += map(codec.load_record, self.records[len(self._loaded) : until])
        return self._loaded[:until]


@dataclass
class FollowerEpoch:
    """A follower from creation to deletion: another fold of the log of its leader."""

    start: ModelState
    leader: ModelEpoch
    state: ModelState  # replayed up to the last commit
    name: bytes  # unique among all of one leader
    stalled: bool = False
    ended: bool = False
    ended_after: int = 0  # the last record of its leader then

    follows = True

    @property
    def records(self) -> list[bytes]:
        """The records of the leader."""
        return self.leader.records

    @property
    def chains(self) -> list[bytes]:
        """The chains of the leader."""
        return self.leader.chains


def decoded(fields: dict[bytes, bytes]) -> ModelState:
    """Decode a stored state without the code of the store."""
    blobs = [codec.load_blob(fields[name], name.decode()) for name in (b"w", b"spread", b"sums")]
    (w, spread, sums), duel = (blob.arrays for blob in blobs), blobs[2].fields.get("duel")
    single = ("bounded", "mean_quality", "drift", "abandoned")
    later = [float(sums.get(name, [0.0])[0]) for name in single]
    sizes = {"squares": 26, "largest_gap": 1, "duel_lists": 6, "follower": 3}
    last = [sums.get(name, np.zeros(size)) for name, size in sizes.items()]
    all_sums = np.concatenate([sums["values"], later, *last])
    certainty = Certainty(*w["certainty"].tolist()) if "certainty" in w else UNKNOWN
    settings = codec.load_config(codec.load_blob(fields[b"meta"], "meta").fields)
    model = Model(settings, w["values"], spread["values"], certainty)
    found = None if duel is None else duel_fields.load_duel_state(duel)
    return ModelState(int(fields[b"seq"]), fields[b"chain"], model, all_sums, duel=found)


def bits(state: ModelState) -> tuple[Any, ...]:
    """Return all parts of a state as bytes."""
    model = state.model
    arrays = (model.weights, model.spread, state.sums)
    plain = (state.seq, state.chain, model.config, model.certainty, state.duel)
    return (*plain, *(array.tobytes() for array in arrays))


class Replays:
    """Replays of logs, each step of them once."""

    def __init__(self) -> None:
        self._found: dict[tuple[bytes, bytes], ModelState] = {}

    def to(self, current: ModelEpoch | FollowerEpoch, until: int) -> ModelState:
        """Return the state after record `until`, continued from the last commit."""
        key = current.name, current.chains[until]
        if key not in self._found:
            reducer = Reducer(current.state, follows=current.follows)
            for record in current.records[current.state.seq : until]:
                _apply(reducer, record, current.follows)
            self._found[key] = reducer.state()
        return self._found[key]


def _apply(reducer: Reducer, record: bytes, follows: bool) -> None:
    loaded = codec.load_record(record)
    before = None if isinstance(loaded, Feedback) else reducer.state()
    reducer.apply_decoded(record, loaded)
    if before is not None:
        check_replaced(before, reducer.state(), loaded, follows)


def check_replaced(before: ModelState, now: ModelState, record: Record, follows: bool) -> None:
    """I17, I24: check what a record other than feedback does to a model or a follower."""
    if isinstance(record, Replace) and (not follows or record.kind == "warm start"):
        carried, found = record.model, now.model
        hold(found.weights.tobytes() == carried.weights.tobytes(), "I17: other weights")
        same = follows or found.spread.tobytes() == carried.spread.tobytes()
        hold(same, "I17: another covariance")
    elif follows and isinstance(record, Replace | Retune | Duel | EndDuel):
        hold(bits_of(now.model) == bits_of(before.model), "I24: it should pass a follower by")
    passed = now.measures()["passed_by"] - before.measures()["passed_by"]
    passes = follows and isinstance(record, Replace) and record.kind != "warm start"
    hold(isinstance(record, ResetMeasures) or passed == passes, f"I24: {passed} passed by")
    hold(not follows or now.model.config == before.model.config, "I24: a follower's own settings")


def bits_of(model: Model) -> tuple[Any, ...]:
    """Return all parts of a model as bytes."""
    return model.config, model.certainty, model.weights.tobytes(), model.spread.tobytes()
