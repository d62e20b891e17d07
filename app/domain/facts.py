"""Small facts that serving, learning and training report; metrics count them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Served:
    """New weights are served, whose last record was appended then (ms since 1970, 0: none)."""

    model: str
    appended: int
    backwards: bool  # the store went back, as after a failover (I12)


@dataclass(frozen=True, slots=True)
class Committed:
    """A learner has committed so many more records."""

    model: str
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A learner has lost its lease or its store, and will begin anew."""

    model: str


@dataclass(frozen=True, slots=True)
class LogRolledBack:
    """The store went back behind what we had seen of a model, as after a failover (I12)."""

    model: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """A learner has come upon a replacement, which says why it is there."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class Trained:
    """A job has ended: done, failed or cancelled."""

    model: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """How a model stands in the store, beside its state.

    `tail` is the last record of its log, `leader` the fence of the learner at work (0: none), and
    `terms` counts the learners so far.
    """

    tail: int
    leader: int = 0
    terms: int = 0
    trains: bool = False
