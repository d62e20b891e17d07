"""The bodies and answers of everything but /rank and /feedback: pydantic, strict, no NaN."""

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

from app.domain.names import unknown_name
from app.ranking.limits import LEAST, MOST, MOST_FEATURES_SERVED
from app.training.options import Training

#: How clicks are read.
Reading = Literal[
    "debiased", "fair-pairs", "click-skip-above", "last-click-skip-above", "click-skip-previous",
    "click-no-click-next",
]  # fmt: skip
Positive = Annotated[float, Field(ge=LEAST, le=MOST)]
FeatureName = Annotated[str, Field(min_length=1, max_length=128)]
FeatureNames = Annotated[
    list[FeatureName], Field(fail_fast=True, max_length=MOST_FEATURES_SERVED), Tag("names")
]
FeatureCount = Annotated[int, Field(ge=1, le=MOST_FEATURES_SERVED), Tag("count")]


#: A field that may be left out, but not be null.
_LEFT_OUT: Any = Field(default_factory=lambda: None)


class Body(BaseModel):
    """A request body: nothing is converted, unknown fields are refused by name."""

    model_config = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        """Say which field is unknown, and which was probably meant; one is enough."""
        if isinstance(given, dict):
            unknown = next((name for name in given if name not in cls.model_fields), None)
            if unknown is not None:
                said = unknown_name("field", str(unknown), list(cls.model_fields))
                raise PydanticCustomError("unknown_field", "{said}", {"said": said})
        return given


class NewModel(Body):
    """The settings of a new model."""

    features: Annotated[
        FeatureNames | FeatureCount,
        Discriminator(lambda given: "count" if isinstance(given, int) else "names"),
        Field(description="names, or a count: f1 to fn"),
    ]
    algorithm: Literal["solar-i", "solar-ii"] = "solar-ii"
    covariance: Literal["full", "diagonal"] = "full"
    C: Positive = 1e-5
    gamma: Positive = 1e4
    normalization: Literal["none", "query-minmax"] = "none"
    clicks: Reading = "debiased"
    explore: Annotated[
        bool | None, Field(description="vary lists; null: if `clicks` learns from varied lists")
    ] = None
    prior: Annotated[
        float | None,
        Field(description="initial weight of the order as submitted; null: the default"),
    ] = None


class ModelPatch(Body):
    """New hyper-parameters; fields left out stay as they are."""

    C: Positive = _LEFT_OUT
    gamma: Positive = _LEFT_OUT
    clicks: Reading = _LEFT_OUT
    explore: bool = _LEFT_OUT


class RollbackBody(Body):
    """The kept version to go back to."""

    version: Annotated[int, Field(ge=0)]


class TrainingOptions(Body):
    """How to train. `C` (`penalty` for domination) is given, or chosen on held-out queries."""

    trainer: Literal["ranksvm", "domination"] = "ranksvm"
    loss: Literal["l2", "l1"] = "l2"
    C: float | None = None
    penalty: float | None = None
    validation: Annotated[
        float | None, Field(description="share of held-out queries, or how many of the last ones")
    ] = None
    by: Annotated[Literal["ndcg@10", "pairwise"], Field(description="the measure that chooses")] = (
        "ndcg@10"
    )

    def training(self) -> Training:
        """The same for the trainer."""
        return Training(**self.model_dump())


class TrainingQuery(TrainingOptions):
    """The same as query parameters, which are text."""

    model_config = ConfigDict(strict=False)

    @field_validator("C", "penalty", "validation", mode="before")
    @classmethod
    def _refuse_underscores(cls, given: Any) -> Any:
        """Python reads 1_0 as 10; nobody else does."""
        if "_" in str(given):
            raise PydanticCustomError("number", "expected a number")
        return given


class ProblemBody(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: Annotated[str, Field(description="the field, what was expected, and the remedy")]
    instance: Annotated[str, Field(description="of an internal error: its id in the log")] = (
        _LEFT_OUT
    )
    accepted: Annotated[int, Field(description="of a batch in which no event was accepted: 0")] = (
        _LEFT_OUT
    )
    duplicates: int = _LEFT_OUT
    rejected: int = _LEFT_OUT
    seq: int = _LEFT_OUT
    errors: list[Any] = _LEFT_OUT  # RefusedEvent; msgspec's, so openapi.py puts it in


class Alive(BaseModel):
    """The process runs."""

    status: Literal["alive"]


class Ready(BaseModel):
    """The process can do its work; degraded: from memory, the store is unreachable."""

    status: Literal["ready"]
    degraded: bool


class ModelSummary(BaseModel):
    """A model in a list."""

    name: str
    algorithm: str
    features: int
    version: Annotated[int, Field(description="the last record in the committed weights")]
    seq: Annotated[int, Field(description="the last record in the log")]


class ModelList(BaseModel):
    """All models."""

    models: list[ModelSummary]


NdcgByCutoff = Annotated[dict[str, float], Field(description="by cutoff: 1, 5, 10, all")]


class RankingQuality(BaseModel):
    """Mean measures."""

    ndcg: NdcgByCutoff
    map: float


class ExploredQuality(RankingQuality):
    """Mean measures of the lists that were varied."""

    queries: int


class ModelDetails(BaseModel):
    """A model: its settings, its weights, how well it ranks."""

    name: str
    algorithm: str
    covariance: str
    C: float
    gamma: float
    normalization: str
    clicks: str
    explore: bool
    prior: float
    version: int
    seq: int
    features: list[str]
    weights: dict[str, float]
    stddev: dict[str, float] = _LEFT_OUT
    queries: int
    feedback: int
    rejected: int
    pairs: dict[str, int]
    ndcg: NdcgByCutoff
    map: float
    baseline: RankingQuality
    explored: ExploredQuality
    debiased_wins: dict[str, float]


class KeptVersion(BaseModel):
    """A version that a rollback can go to."""

    version: int


class VersionList(BaseModel):
    """The versions kept, oldest first."""

    versions: list[KeptVersion]


class AppendedRecord(BaseModel):
    """The record in the log by which the change takes effect."""

    seq: int


class JobDetails(BaseModel):
    """A training job."""

    id: str
    model: str
    state: Literal["running", "done", "failed", "cancelled"]
    begun: Annotated[float, Field(description="seconds since 1970")] = _LEFT_OUT
    training: dict[str, Any] = _LEFT_OUT
    progress: dict[str, Any] = _LEFT_OUT
    result: dict[str, Any] = _LEFT_OUT
    error: str = _LEFT_OUT
