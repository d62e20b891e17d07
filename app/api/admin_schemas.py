"""Request and response schemas of all paths except /rank and /feedback: strict pydantic, no NaN."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from app.api.duel_schemas import (
    Agreement,
    Compared,
    DuelSummary,
    Follows,
    Lag,
    MayDuel,
    PassedBy,
    SquaredLoss,
    StalledFlag,
)
from app.domain.model_config import MOST_EXPLORATION, MOST_FORGETTING, ModelConfig
from app.domain.names import unknown_name
from app.ranking.limits import LEAST, MOST, MOST_FEATURES_FULL, MOST_FEATURES_SERVED
from app.training.options import (
    Training,
    check_normalization,
    check_sharded_training,
    check_training,
)
from app.training.shards.urls import LONGEST_URL, MOST_URLS

#: How clicks become training pairs.
ClickStrategy = Literal[
    "debiased", "fair-pairs", "click-skip-above", "last-click-skip-above", "click-skip-previous",
    "click-no-click-next",
]  # fmt: skip
Positive = Annotated[float, Field(ge=LEAST, le=MOST)]
ExplorationAmount = Annotated[
    float,
    Field(
        ge=0.0,
        le=MOST_EXPLORATION,
        description="how much rankings are randomised: 0 is not at all, 1 the default",
    ),
]
ForgettingShare = Annotated[float, Field(ge=0.0, le=MOST_FORGETTING)]
_FORGETTING = "share of the initial uncertainty that returns with each ranking that taught"
FeatureName = Annotated[str, Field(min_length=1, max_length=128)]
FeatureNames = Annotated[
    list[FeatureName], Field(fail_fast=True, max_length=MOST_FEATURES_SERVED), Tag("names")
]
FeatureCount = Annotated[int, Field(ge=1, le=MOST_FEATURES_SERVED), Tag("count")]
_Knots = Annotated[list[float], Field(max_length=MOST_FEATURES_FULL)]
NewSplines = Annotated[dict[FeatureName, _Knots], Field(max_length=MOST_FEATURES_FULL)]
_SPLINES = "ascending knots by feature; each adds the column `max(0, x - knot)`"


#: An optional field that must not be null.
_OPTIONAL: Any = Field(default_factory=lambda: None)


class Body(BaseModel):
    """A request body: values are not converted, unknown fields are refused by name."""

    model_config = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )

    @classmethod
    def field_names(cls) -> list[str]:
        """Return the names of the fields as clients send them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        """Report the first unknown field, and suggest a known one."""
        if isinstance(given, dict):
            known = cls.field_names()
            unknown = next((name for name in given if name not in known), None)
            if unknown is not None:
                message = unknown_name("field", str(unknown), known)
                raise PydanticCustomError("unknown_field", "{message}", {"message": message})
        return given


_ACTIONS = "gains of clicks by the name of what users did, 0 to 10"
ActionGains = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")],
        Annotated[float, Field(ge=0, le=10)],
    ],
    Field(min_length=1, max_length=50),
]


class NewModel(Body):
    """The settings of a new model."""

    features: Annotated[
        FeatureNames | FeatureCount,
        Discriminator(lambda given: "count" if isinstance(given, int) else "names"),
        Field(description="feature names, or a count n for the names f1 to fn"),
    ]
    algorithm: Literal["solar-i", "solar-ii"] = "solar-ii"
    covariance: Literal["full", "diagonal"] = "full"
    C: Positive = 1e-5
    gamma: Positive = 1e4
    normalization: Literal["none", "query-minmax"] = "none"
    clicks: ClickStrategy = "debiased"
    explore: Annotated[
        bool | None,
        Field(description="randomise rankings; null: only if the `clicks` strategy needs it"),
    ] = None
    prior: Annotated[
        float | None,
        Field(description="initial weight of the submitted order; null: the default"),
    ] = None
    pair_bound: Annotated[
        Positive,
        Field(description="largest `weight·‖x‖²` of a pair; omitted: 4·n, 80·n with `fair-pairs`"),
    ] = _OPTIONAL
    exploration: ExplorationAmount = 1.0
    forgetting: Annotated[
        ForgettingShare, Field(description=f"{_FORGETTING}; omitted: 3e-5, 0 for `solar-i`")
    ] = _OPTIONAL
    splines: Annotated[NewSplines, Field(description=f"{_SPLINES}; fixed at creation")] = _OPTIONAL
    actions: Annotated[
        ActionGains,
        Field(description=f"{_ACTIONS}; omitted: click 1, add_to_cart 2, purchase 4"),
    ] = _OPTIONAL


class ModelPatch(Body):
    """New hyper-parameters; omitted fields keep their values."""

    C: Positive = _OPTIONAL
    gamma: Positive = _OPTIONAL
    clicks: ClickStrategy = _OPTIONAL
    explore: bool = _OPTIONAL
    pair_bound: Positive = _OPTIONAL
    exploration: ExplorationAmount = _OPTIONAL
    forgetting: Annotated[ForgettingShare, Field(description=_FORGETTING)] = _OPTIONAL
    actions: Annotated[ActionGains, Field(description=_ACTIONS)] = _OPTIONAL


class VersionBody(Body):
    """The name of a version to keep."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="letters, digits, `-`, `_` and `.`; not digits only, no `.` at the start",
        ),
    ]


class RollbackBody(Body):
    """The kept version to roll back to."""

    version: Annotated[
        Annotated[int, Field(ge=0), Tag("by number")]
        | Annotated[str, Field(min_length=1, max_length=64), Tag("by name")],
        Discriminator(lambda given: "by name" if isinstance(given, str) else "by number"),
        Field(description="its number, or its name"),
    ]


class TrainingOptions(Body):
    """Training options. Without `C` (`penalty` for domination), held-out queries choose it."""

    trainer: Literal["ranksvm", "domination"] = "ranksvm"
    loss: Literal["l2", "l1"] = "l2"
    C: float | None = None
    penalty: float | None = None
    validation: Annotated[
        float | None,
        Field(description="share of queries to hold out, or the number of last queries"),
    ] = None
    by: Annotated[
        Literal["ndcg@10", "pairwise"], Field(description="the measure that selects C or penalty")
    ] = "ndcg@10"
    normalization: Annotated[
        Literal["none", "query-minmax"] | None,
        Field(description="that of the model, which is checked: another one is 422"),
    ] = None

    def training(self, config: ModelConfig) -> Training:
        """Convert the options for the trainer; InvalidInput if they are wrong for the model."""
        check_normalization(self.normalization, config.normalization)
        named = set(Training.__struct_fields__)
        return check_training(Training(**self.model_dump(include=named)))


class ShardsBody(TrainingOptions):
    """Training options, and the shards to train on."""

    shards: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=LONGEST_URL)]],
        Field(
            min_length=1,
            max_length=MOST_URLS,
            description="parquet or LETOR files, directories and patterns with *, below the "
            "prefixes of SOLAR_SHARDS",
        ),
    ]

    def training(self, config: ModelConfig) -> Training:
        """Convert the options for the trainer; InvalidInput if shards cannot be trained so."""
        return check_sharded_training(super().training(config))


class TrainingQuery(TrainingOptions):
    """Training options as query parameters, which are text."""

    model_config = ConfigDict(strict=False)

    @field_validator("C", "penalty", "validation", mode="before")
    @classmethod
    def _refuse_underscores(cls, given: Any) -> Any:
        """Refuse 1_0, which Python parses as 10 and other languages do not."""
        if "_" in str(given):
            raise PydanticCustomError("number", "expected a number")
        return given


class ProblemBody(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: Annotated[str, Field(description="the field, what was expected, and the remedy")]
    instance: Annotated[
        str, Field(description="the request_id in the log, for an internal error only")
    ] = _OPTIONAL
    accepted: Annotated[int, Field(description="0: no event was accepted; for a batch only")] = (
        _OPTIONAL
    )
    duplicates: int = _OPTIONAL
    rejected: int = _OPTIONAL
    seq: int = _OPTIONAL
    errors: list[Any] = _OPTIONAL  # of RefusedEvent, a msgspec schema that openapi.py inserts


class Alive(BaseModel):
    """The process is running."""

    status: Literal["alive"]


class Ready(BaseModel):
    """The process is ready; degraded: the store is unreachable, /rank serves from memory."""

    status: Literal["ready"]
    degraded: bool
    down: list[str]


class ModelSummary(BaseModel):
    """One model in the list of all models."""

    name: str
    algorithm: str | None = None
    features: int | None = None
    version: Annotated[
        int | None, Field(description="seq of the last record in the committed weights")
    ] = None
    seq: Annotated[int, Field(description="seq of the last record in the log")]
    follows: Annotated[str | None, Field(description="name of the leader; for followers only")] = (
        None
    )
    duel: Annotated[
        DuelSummary | None, Field(description="its duel, or its last one; absent: none yet")
    ] = None
    damaged: Annotated[
        Literal[True] | None,
        Field(description="true: the stored state is damaged; `algorithm` and others are absent"),
    ] = None
    newer_format: Annotated[
        Literal[True] | None,
        Field(
            description="true: a newer release wrote the state; `algorithm` and others are absent"
        ),
    ] = None


class ModelList(BaseModel):
    """Models in the order of their names."""

    models: list[ModelSummary]
    next: Annotated[
        str | None, Field(description="there are more models: send this as `after`; else absent")
    ] = None


_ByCutoff = dict[str, float | None]
_ByOrder = dict[str, float | None]
_STDERR = "null with fewer than two queries, and for a model created before there were any"


class RankingQuality(BaseModel):
    """Means over queries; null without a query."""

    ndcg: Annotated[_ByCutoff, Field(description="mean NDCG by cut-off: 1, 5, 10, all")]
    ndcg_stderr: Annotated[_ByCutoff, Field(description=f"standard errors of `ndcg`; {_STDERR}")]
    map: Annotated[float | None, Field(description="mean average precision")]
    map_stderr: Annotated[float | None, Field(description="standard error of `map`")]


class ExploredQuality(RankingQuality):
    """Means over the queries with randomised rankings."""

    queries: int


class Measures(RankingQuality):
    """Measures of the rankings with feedback, as served: NDCG, MAP, debiased wins."""

    queries: Annotated[int, Field(description="measured queries, each counted once")]
    abandoned_lists: Annotated[
        int | None,
        Field(
            description="rankings whose click events have no click so far, which are not among "
            "`queries`; null for a model that counts them as queries with 0"
        ),
    ]
    baseline: Annotated[
        RankingQuality, Field(description="the submitted order of the same queries")
    ]
    lead: Annotated[
        RankingQuality, Field(description="the ranking as served minus the submitted order")
    ]
    explored: ExploredQuality
    explored_share: Annotated[
        float | None, Field(description="share of `queries` whose rankings were randomised")
    ]
    debiased_wins: Annotated[
        _ByOrder,
        Field(
            description="share of click pairs that an order ranks correctly: a sign for this model "
            "against its submitted order, not comparable between models"
        ),
    ]
    debiased_wins_stderr: Annotated[_ByOrder, Field(description="standard errors, by queries")]


class LearntModel(BaseModel):
    """A model: its settings and its weights, and what it has learnt."""

    name: str
    algorithm: str
    covariance: str
    C: float
    gamma: float
    normalization: str
    clicks: str
    explore: bool
    prior: float
    pair_bound: Annotated[
        float, Field(description="largest `weight·‖x‖²` of a pair; absent: no bound")
    ] = _OPTIONAL
    exploration: Annotated[
        float,
        Field(description="how much rankings are randomised; absent: by the spread of the scores"),
    ] = _OPTIONAL
    forgetting: Annotated[float, Field(description=_FORGETTING)]
    actions: Annotated[dict[str, float], Field(description=_ACTIONS)]
    version: int
    seq: int
    features: list[str]
    splines: Annotated[
        dict[str, list[float]], Field(description=f"{_SPLINES}; absent: no splines")
    ] = _OPTIONAL
    weights: dict[str, float]
    stddev: dict[str, float] = _OPTIONAL
    feedback: int
    rejected: int
    pairs: dict[str, int]


class ModelDetails(Measures, LearntModel):
    """A model: its settings, its weights and its measures."""

    drift: Annotated[
        float, Field(description="evidence that NDCG@10 has fallen; from 20 on an alarm")
    ]
    duel: Annotated[
        DuelSummary, Field(description="its duel, or its last one; absent: none yet")
    ] = _OPTIONAL
    follows: Follows = _OPTIONAL
    lag: Lag = _OPTIONAL
    stalled: StalledFlag = _OPTIONAL
    may_duel: MayDuel = _OPTIONAL
    squared_loss: SquaredLoss = _OPTIONAL
    compared: Compared = _OPTIONAL
    agreement: Agreement = _OPTIONAL
    passed_by: PassedBy = _OPTIONAL


class KeptVersion(BaseModel):
    """A version that a rollback can restore."""

    version: int
    name: Annotated[str | None, Field(description="name of a named version; null for the others")]
    time: Annotated[
        datetime | None, Field(description="when it was kept; null if by an earlier release")
    ]
    reason: Annotated[
        str | None,
        Field(
            description="why it was kept: created, interval (of 10,000 records), log size, hour, "
            "named, before warm start, before rollback, before replay or before replacement; null "
            "if by an earlier release"
        ),
    ]
    size: Annotated[int, Field(description="bytes in the store's memory")]
    since: Annotated[
        Measures | None,
        Field(
            description="measures of the feedback since the version before this one; null for the "
            "first one, and after a reset of the measures"
        ),
    ]


class VersionList(BaseModel):
    """The kept versions, oldest first."""

    versions: list[KeptVersion]


class AppendedRecord(BaseModel):
    """The record in the log that makes the change."""

    seq: int


_ShareDone = Annotated[
    float,
    Field(
        ge=0.0,
        le=1.0,
        description="estimated share of the work that is done; 1 only for a job that is done",
    ),
]


class JobSummary(BaseModel):
    """One training job in the list of jobs."""

    id: str
    model: str
    state: Literal["running", "done", "failed", "cancelled"]
    created: Annotated[float, Field(description="start of the upload, in seconds since 1970")]
    share_done: _ShareDone


class JobList(BaseModel):
    """Jobs of all models and workers, the newest first."""

    jobs: list[JobSummary]
    next: Annotated[
        str, Field(description="the `after` of the next page; absent if there are no older jobs")
    ] = _OPTIONAL


class JobDetails(JobSummary):
    """A training job."""

    begun: Annotated[
        float, Field(description="start or last restart of the training, in seconds since 1970")
    ] = _OPTIONAL
    training: dict[str, Any] = _OPTIONAL
    progress: dict[str, Any] = _OPTIONAL
    result: dict[str, Any] = _OPTIONAL
    error: str = _OPTIONAL
