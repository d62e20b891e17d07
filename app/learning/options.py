"""Options of a learner, and the facts that it reports."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, time
from typing import TypeAlias

from app.domain.facts import (
    Committed,
    Deleted,
    LeaseLost,
    LogRolledBack,
    NewerFormatFound,
    PointDropped,
    Replaced,
    TraceHalved,
)


@dataclass(frozen=True, slots=True)
class LearnerOptions:
    """Intervals and limits of a learner, in seconds and records."""

    lease: float = 5.0
    batch: int = 256
    commit: float = 0.030
    commit_share: float = 3.0  # minimum interval, in durations of the last commit
    part: float = 0.25  # minimum interval of commits within a record
    part_share: float = 10.0  # the same, in durations of the last one
    slice: float = 0.02  # the longest turn of a model in a thread
    slice_work: int = 20_000_000  # work between two looks at the clock: about 2 ms
    idle: float = 0.5
    duel_step: float = 1.0  # between two looks at a tournament
    duel_versions: float = 60.0  # between two looks at the versions that are kept for duels
    follow: float = 0.5  # minimum interval of commits of a follower, and of looks at its leader
    follower_slice: float = 0.005  # the longest turn of a follower in a thread
    version: int = 10_000  # records between two versions
    versions: int = 10  # versions to keep, fewer if the log exceeds `log_bytes`
    hour: float = 3600.0  # time between two hourly versions, of which as many are kept
    log_bytes: int = 1 << 30
    log_records: int = 100_000  # of a log that waits for a follower; `versions` limit it otherwise
    discover: float = 0.25
    ask: float = 0.4  # maximum interval of attempts to take a lease that another learner holds
    always: int = 16  # models up to which a process leads, or waits for, each of them all the time
    rest: float = 5.0  # with more models: time without a record until a learner releases one
    sessions: int = 64  # models that a process leads at once; each holds a connection
    turn: float = 1.0  # time of a model with many records while other models wait
    repeat: float = 30.0  # maximum interval of attempts on a model that fails
    clock: Callable[[], float] = monotonic
    wall_clock: Callable[[], float] = time


Fact: TypeAlias = (
    Committed
    | Replaced
    | TraceHalved
    | PointDropped
    | LogRolledBack
    | LeaseLost
    | NewerFormatFound
    | Deleted
)
ReportFact: TypeAlias = Callable[[Fact], None]


def ignore_fact(_: Fact) -> None:
    """Ignore a fact: the default."""
