"""Request bodies of followers and duels: strict pydantic, no NaN."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from app.api.admin_schemas import Body, ClickStrategy, ForgettingShare, Positive
from app.domain.duels import LEAST_ALPHA, MOST_ALPHA, MOST_SHARE
from app.domain.model_config import LARGEST_PRIOR

#: An optional field that must not be null.
_OPTIONAL: Any = Field(default_factory=lambda: None)
#: The most followers of one grid, and values of one setting in it.
MOST_IN_GRID = 16
MOST_TOURNAMENT_LISTS = 1_000_000_000
_NAME = "^[A-Za-z0-9_-]{1,64}$"

Prior = Annotated[float, Field(ge=0.0, le=LARGEST_PRIOR)]
FollowerStart = Annotated[
    Literal["weights", "cold"],
    Field(description="`weights`: those of the leader there; `cold`: its own initial ones"),
]
From = Annotated[
    Annotated[int, Field(ge=0), Tag("by number")]
    | Annotated[Literal["now", "oldest"], Tag("by name")],
    Discriminator(lambda given: "by number" if isinstance(given, int) else "by name"),
    Field(
        alias="from",
        description="where it begins in the log: `now`, `oldest`, or the number of a version that "
        "the log continues",
    ),
]
_LEADER = "default: that of the leader"


class NewFollower(Body):
    """A follower: another fold of its leader's log, with settings of its own."""

    follows: Annotated[str, Field(pattern=_NAME, description="name of the leader")]
    algorithm: Annotated[Literal["solar-i", "solar-ii"], Field(description=_LEADER)] = _OPTIONAL
    covariance: Annotated[Literal["full", "diagonal"], Field(description=_LEADER)] = _OPTIONAL
    C: Annotated[Positive, Field(description=f"step size of SOLAR-I; {_LEADER}")] = _OPTIONAL
    gamma: Annotated[Positive, Field(description=f"regularisation of SOLAR-II; {_LEADER}")] = (
        _OPTIONAL
    )
    clicks: Annotated[
        ClickStrategy, Field(description=f"how pairs are derived from clicks; {_LEADER}")
    ] = _OPTIONAL
    forgetting: Annotated[
        ForgettingShare,
        Field(description="share of the initial uncertainty that returns; default: the leader's"),
    ] = _OPTIONAL
    prior: Annotated[
        Prior,
        Field(description="initial weight of the submitted order, if the leader has one"),
    ] = _OPTIONAL
    from_: From = "now"
    start: FollowerStart = "weights"

    @model_validator(mode="before")
    @classmethod
    def _refuse_features(cls, given: Any) -> Any:
        """Say why a follower has no features of its own."""
        if isinstance(given, dict) and "features" in given:
            message = "features: expected none with follows; they are those of the leader"
            raise PydanticCustomError("features", "{message}", {"message": message})
        return given


T = TypeVar("T")
Values = Annotated[list[T], Field(min_length=1, max_length=MOST_IN_GRID)]


class Grid(Body):
    """Values of settings; each combination of one value of each is a follower."""

    algorithm: Values[Literal["solar-i", "solar-ii"]] = _OPTIONAL
    covariance: Values[Literal["full", "diagonal"]] = _OPTIONAL
    C: Values[Positive] = _OPTIONAL
    gamma: Values[Positive] = _OPTIONAL
    clicks: Values[ClickStrategy] = _OPTIONAL
    forgetting: Annotated[
        Values[ForgettingShare], Field(description="shares of the initial uncertainty that return")
    ] = _OPTIONAL
    prior: Values[Prior] = _OPTIONAL


class FollowerBank(Body):
    """A grid of followers, at most 16: all are created, or none."""

    grid: Annotated[Grid, Field(description="values of settings by name, as lists")]
    from_: From = "now"
    start: FollowerStart = "weights"


class DuelVersion(Body):
    """A kept version as challenger."""

    version: Annotated[int, Field(ge=0, description="number of a kept version")]


_Side = Annotated[
    Annotated[str, Field(min_length=1, max_length=64), Tag("by name")]
    | Annotated[DuelVersion, Tag("a version")],
    Discriminator(lambda given: "by name" if isinstance(given, str) else "a version"),
]
Challenger = Annotated[
    _Side,
    Field(
        description="name of a follower, `submitted` for the submitted order, a kept version as "
        '`{"version": 800}`, or `followers` for a tournament of all followers'
    ),
]
_TOURNAMENT = "for a tournament only"


class NewDuel(Body):
    """A duel of a model with a challenger."""

    challenger: Challenger
    share: Annotated[
        float,
        Field(gt=0.0, le=MOST_SHARE, description="share of the requests with a list of the duel"),
    ] = 0.2
    alpha: Annotated[
        float,
        Field(
            ge=LEAST_ALPHA, le=MOST_ALPHA,
            description="largest probability of a verdict if both sides are equal",
        ),
    ] = 0.05  # fmt: skip
    max_lists: Annotated[
        int,
        Field(
            ge=1, le=MOST_TOURNAMENT_LISTS,
            description="most lists of all duels together with an event of clicks, also one "
            f"without a click; {_TOURNAMENT}, required",
        ),
    ] = _OPTIONAL  # fmt: skip
    promote: Annotated[
        bool, Field(description=f"put the winner in place at the end; {_TOURNAMENT}")
    ] = _OPTIONAL


class NewPromotion(Body):
    """The promotion of a challenger."""

    force: Annotated[bool, Field(description="also without a verdict for the challenger")] = False
    challenger: Annotated[
        _Side,
        Field(
            description="the side to be promoted: name of a follower, or a kept version as "
            '`{"version": 800}`; 409 if it would be another one'
        ),
    ] = _OPTIONAL
    duel: Annotated[
        int,
        Field(ge=1, description="`id` of the duel that you have read; 409 if it is another one"),
    ] = _OPTIONAL
