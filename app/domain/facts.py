"""Facts that serving, learning and training report to the metrics."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Served:
    """New weights are served; `appended` is their last record's time (ms since 1970, 0: none)."""

    model: str
    appended: int
    backwards: bool  # version rollback in the store, after a failover (I12)


@dataclass(frozen=True, slots=True)
class Deleted:
    """A model was deleted; this process no longer serves or learns it."""

    model: str


@dataclass(frozen=True, slots=True)
class NewerFormatFound:
    """A process has found data that a newer release wrote; it leaves the data unchanged."""

    model: str


#: What the weight cache reports.
ServingFact: TypeAlias = Served | NewerFormatFound | Deleted


@dataclass(frozen=True, slots=True)
class Committed:
    """A learner has committed `records` more records."""

    model: str
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A learner has lost its lease or its store, and will restart."""

    model: str


@dataclass(frozen=True, slots=True)
class LogRolledBack:
    """The log of a model was rolled back in the store, after a failover (I12)."""

    model: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """A learner has applied a replacement; `reason` is why it was appended."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class TraceHalved:
    """The trace of Σ fell by half within a window of records that ends at `seq`."""

    model: str
    seq: int


@dataclass(frozen=True, slots=True)
class PointDropped:
    """A point of a model's history was not stored: the store has no room for it."""

    model: str


@dataclass(frozen=True, slots=True)
class Trained:
    """A training job has ended: done, failed or cancelled."""

    model: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """Status of a model in the store, besides its state.

    `tail` is the last record of its log, `leader` the fencing token of the active learner (0:
    none), and `terms` counts the learners so far. `waiting_work` is the work of the records that
    wait for the learner, 0 if it is unknown.
    """

    tail: int
    leader: int = 0
    terms: int = 0
    trains: bool = False
    waiting_work: float = 0.0
