"""Schemas of answers about followers and duels."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Follows = Annotated[str, Field(description="name of the leader; for followers only")]
Lag = Annotated[int, Field(description="records of the leader's log that it has not learnt")]
StalledFlag = Annotated[
    bool,
    Field(
        description="it was so far behind that the log no longer waits for it; it learns nothing "
        "more: delete it and create it again"
    ),
]
MayDuel = Annotated[
    bool,
    Field(description="lists may show its order: not stalled, at most 1,000 records behind"),
]
SquaredLoss = Annotated[
    float | None,
    Field(
        description="mean weighted squared loss of its pairs, each before its step; comparable "
        "between followers with the same `clicks`; null without pairs"
    ),
]
Compared = Annotated[
    int, Field(description="lists whose order was compared with that of the leader")
]
Agreement = Annotated[
    float | None,
    Field(description="share of pairs of the leader's first ten documents that it orders alike"),
]
PassedBy = Annotated[
    int, Field(description="rollbacks, replays and promotions of the leader, which change it not")
]


class FollowerFields(BaseModel):
    """What a follower has beside a model."""

    follows: Follows
    lag: Lag
    stalled: StalledFlag
    may_duel: MayDuel
    squared_loss: SquaredLoss
    compared: Compared
    agreement: Agreement
    passed_by: PassedBy


class FollowerSummary(FollowerFields):
    """A follower in the list of a model's followers."""

    name: str
    algorithm: str
    covariance: str
    C: float
    gamma: float
    clicks: str
    forgetting: Annotated[
        float, Field(description="share of the initial uncertainty that returns with each ranking")
    ]
    prior: float
    version: int
    seq: int
    feedback: int
    pairs: dict[str, int]


class FollowerList(BaseModel):
    """The followers of a model, in the order of their names."""

    followers: Annotated[list[FollowerSummary], Field(description="followers by name")]
    damaged: Annotated[
        list[str], Field(description="names of followers whose stored state cannot be read")
    ]


class VersionSide(BaseModel):
    """A kept version in a duel."""

    version: Annotated[int, Field(description="seq of the last record in this version")]


class DuelEnd(BaseModel):
    """The end of a duel."""

    seq: Annotated[int, Field(description="seq of the record that ended it")]
    why: Annotated[
        str,
        Field(
            description="ended (on request), finished (a tournament), promotion, warm start, "
            "rollback, replay, or replacement"
        ),
    ]


_INTERVAL = "confidence interval of `win_share` at level 1 - alpha, valid at any time"
Interval = Annotated[list[float], Field(min_length=2, max_length=2, description=_INTERVAL)]
VerdictName = Literal["champion", "challenger", "undecided"]


class DuelPoint(BaseModel):
    """A point of a duel's curve."""

    lists: Annotated[
        int, Field(description="lists with an event of clicks so far, also one without a click")
    ]
    decided: Annotated[int, Field(description="lists that count for the verdict so far")]
    evidence: Annotated[float, Field(description="evidence after these lists")]
    win_share: Annotated[float, Field(description="the champion's share of them")]
    interval: Interval


class TournamentRow(BaseModel):
    """A duel of a tournament."""

    champion: Annotated[str, Field(description="name of the model, or of the follower ahead")]
    challenger: Annotated[str, Field(description="name of the follower")]
    lists: Annotated[
        int, Field(description="lists with an event of clicks, also one without a click")
    ]
    decided: Annotated[int, Field(description="lists that count for the verdict")]
    win_share: Annotated[float | None, Field(description="the champion's share of them")]
    interval: Interval
    p_value: Annotated[float, Field(description="1 divided by the largest evidence")]
    verdict: Annotated[VerdictName, Field(description="which side is better")]


class TournamentDetails(BaseModel):
    """A tournament: each follower in turn duels with the side that is ahead."""

    id: Annotated[int, Field(description="seq of the record that began it")]
    step: Annotated[int, Field(description="number of the present duel, from 0")]
    followers: Annotated[list[str], Field(description="names of the followers that take part")]
    max_lists: Annotated[int, Field(description="most lists of all duels together")]
    alpha: Annotated[float, Field(description="that of the whole tournament")]
    promote: Annotated[bool, Field(description="whether a winner is put in place at the end")]
    ahead: Annotated[
        str, Field(description="name of the model or the follower that is ahead so far")
    ]
    table: Annotated[list[TournamentRow], Field(description="duels so far, the present one last")]


class DuelDetails(BaseModel):
    """A duel: the one that is on, or the last one."""

    id: Annotated[int, Field(description="seq of the record that began the duel")]
    champion: Annotated[
        str, Field(description="name of the model; in a tournament of the side that is ahead")
    ]
    challenger: Annotated[
        str | VersionSide,
        Field(description="name of a follower, `submitted`, or a kept version"),
    ]
    share: Annotated[float, Field(description="share of the requests with a list of the duel")]
    alpha: Annotated[
        float, Field(description="largest probability of a verdict if both sides are equal")
    ]
    ended: Annotated[DuelEnd | None, Field(description="null: the duel is on")]
    ready: Annotated[
        bool,
        Field(
            description="lists show both sides: false at the end, and while a follower is stalled, "
            "more than 1,000 records behind, or not loaded by this worker"
        ),
    ]
    lists: Annotated[
        int, Field(description="lists with an event of clicks, also one without a click")
    ]
    wins: Annotated[int, Field(description="lists that the champion wins by all clicks so far")]
    losses: Annotated[int, Field(description="lists that the challenger wins by all clicks so far")]
    ties: Annotated[int, Field(description="the other lists")]
    decided: Annotated[
        int,
        Field(description="lists that count for the verdict: each by its first decisive click"),
    ]
    win_share: Annotated[
        float | None, Field(description="the champion's share of `decided`; null without any")
    ]
    interval: Interval
    evidence: Annotated[
        float, Field(description="E, for a difference; a verdict once it has reached 1 / alpha")
    ]
    p_value: Annotated[float, Field(description="1 divided by the largest evidence so far")]
    verdict: Annotated[VerdictName, Field(description="which side is better")]
    lists_to_go: Annotated[
        int | None,
        Field(description="more decided lists until a verdict if `win_share` stays; null: unknown"),
    ]
    curve: Annotated[list[DuelPoint], Field(description="the duel so far, at growing distances")]
    tournament: Annotated[
        TournamentDetails | None, Field(description="the tournament that the duel is part of")
    ]


class PromotionRecord(BaseModel):
    """The record in the log that puts a challenger in place."""

    seq: Annotated[int, Field(description="seq of the record in the log")]
    warning: Annotated[
        str | None,
        Field(
            description="what to change if clicks on ordinary lists teach the promoted model "
            "nothing; null if they do, or if the record is not learnt within 10 s"
        ),
    ]


class DuelSummary(BaseModel):
    """A duel in the description of its model."""

    champion: Annotated[
        str, Field(description="name of the model; in a tournament of the side that is ahead")
    ]
    challenger: Annotated[
        str | VersionSide,
        Field(description="name of a follower, `submitted`, or a kept version"),
    ]
    decided: Annotated[int, Field(description="lists that count for the verdict")]
    win_share: Annotated[
        float | None, Field(description="the champion's share of `decided`; null without any")
    ] = None
    verdict: Annotated[VerdictName, Field(description="which side is better")]
    ended: Annotated[bool, Field(description="whether the duel is over")]
