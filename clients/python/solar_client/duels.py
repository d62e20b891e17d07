"""Followers and duels as values. Fields that a newer service adds are ignored."""

from msgspec import Struct, field

#: The challenger of a duel: "submitted", the name of a follower, or {"version": 800}.
Challenger = str | dict[str, int]


class Follower(Struct, frozen=True, kw_only=True):
    """Another fold of a model's log, with settings of its own."""

    name: str
    follows: str
    algorithm: str
    covariance: str
    C: float
    gamma: float
    clicks: str
    forgetting: float
    prior: float
    version: int
    seq: int
    lag: int
    stalled: bool
    may_duel: bool
    feedback: int = 0
    pairs: dict[str, int] | None = None
    squared_loss: float | None = None
    compared: int = 0
    agreement: float | None = None
    passed_by: int = 0


class FollowerList(Struct, frozen=True):
    """The followers of a model, and the names of those that cannot be read."""

    followers: list[Follower]
    damaged: list[str] = []


class DuelEnd(Struct, frozen=True):
    """The record that ended a duel, and why."""

    seq: int
    why: str


class DuelPoint(Struct, frozen=True):
    """A duel after some of its lists."""

    lists: int
    decided: int
    evidence: float
    win_share: float
    interval: tuple[float, float]


class DuelResult(Struct, frozen=True):
    """A duel of a tournament."""

    champion: str
    challenger: str
    lists: int
    decided: int
    win_share: float | None
    interval: tuple[float, float]
    p_value: float
    verdict: str


class Tournament(Struct, frozen=True):
    """A tournament of followers; `ahead` is the best side so far."""

    id: int
    step: int
    followers: list[str]
    max_lists: int
    alpha: float
    promote: bool
    ahead: str
    table: list[DuelResult]


class Duel(Struct, frozen=True, kw_only=True):
    """The duel of a model that is on, or the last one.

    `wins` are lists that the champion wins by all clicks so far. `decided` are those that count for
    the verdict ("champion", "challenger" or "undecided"); `win_share` is the champion's share of
    them, and `interval` its confidence interval, which is valid at any time.
    """

    id: int
    champion: str
    challenger: Challenger
    share: float
    alpha: float
    verdict: str
    lists: int
    wins: int
    losses: int
    ties: int
    decided: int
    interval: tuple[float, float]
    evidence: float
    p_value: float
    win_share: float | None = None
    lists_to_go: int | None = None
    ended: DuelEnd | None = None
    ready: bool = True
    curve: list[DuelPoint] = field(default_factory=list)
    tournament: Tournament | None = None
