"""The answers of the service as values. Fields that a newer service adds are ignored."""

from typing import Any

from msgspec import Struct

from solar_client.duels import Challenger

#: Means by cutoff: 1, 5, 10, all; null before there is data.
Means = dict[str, float | None]


class RankedDocument(Struct, frozen=True):
    """A document of a ranking; `rank` starts at 1. Its score is 0 in a submitted order."""

    id: str
    rank: int
    score: float
    contributions: dict[str, float] | None = None
    stddev: float | None = None


class Ranking(Struct, frozen=True, kw_only=True):
    """Documents in the order to show; `duel` says that both sides of a duel chose them.

    `request_id` is for feedback. It is None if no feedback is possible: the impression was not
    stored, or these are the documents as submitted because the service gave no answer. `reason`
    says why; it is empty for an answer of the service. `token` is for `solar.js` in a web page, if
    the service makes tokens.
    """

    request_id: str | None
    query_id: str
    model: str
    version: int | None
    explored: bool
    logged: bool
    degraded: bool
    documents: tuple[RankedDocument, ...]
    token: str | None = None
    reason: str = ""
    duel: bool = False

    @property
    def ids(self) -> list[str]:
        """The ids of the documents in the order to show."""
        return [document.id for document in self.documents]


class Quality(Struct, frozen=True):
    """Mean measures and their standard errors; null before there is data."""

    ndcg: Means | None = None
    ndcg_stderr: Means | None = None
    map: float | None = None
    map_stderr: float | None = None
    queries: int | None = None


class Model(Struct, frozen=True, kw_only=True):
    """A model: its settings, its weights and its measures.

    The fields from `follows` on are those of followers, and None for other models.
    """

    name: str
    algorithm: str
    version: int
    seq: int
    features: list[str]
    weights: dict[str, float]
    normalization: str
    clicks: str
    explore: bool
    covariance: str
    C: float
    gamma: float
    prior: float
    pair_bound: float | None = None
    exploration: float | None = None
    forgetting: float | None = None
    splines: dict[str, list[float]] | None = None
    stddev: dict[str, float] | None = None
    queries: int = 0
    abandoned_lists: int | None = None
    feedback: int = 0
    rejected: int = 0
    pairs: dict[str, int] | None = None
    ndcg: Means | None = None
    ndcg_stderr: Means | None = None
    map: float | None = None
    map_stderr: float | None = None
    baseline: Quality | None = None
    lead: Quality | None = None
    explored: Quality | None = None
    debiased_wins: dict[str, float | None] | None = None
    debiased_wins_stderr: dict[str, float | None] | None = None
    explored_share: float | None = None
    drift: float | None = None
    follows: str | None = None
    lag: int | None = None
    stalled: bool | None = None
    may_duel: bool | None = None
    squared_loss: float | None = None
    compared: int | None = None
    agreement: float | None = None
    passed_by: int | None = None


class DuelSummary(Struct, frozen=True, kw_only=True):
    """The duel of a model in the list of models, or its last one."""

    challenger: Challenger
    decided: int
    verdict: str
    ended: bool
    champion: str = ""
    win_share: float | None = None


class ModelSummary(Struct, frozen=True, kw_only=True):
    """A model in the list of models; a damaged one has no algorithm."""

    name: str
    seq: int
    algorithm: str | None = None
    features: int | None = None
    version: int | None = None
    damaged: bool | None = None
    newer_format: bool | None = None
    follows: str | None = None
    duel: DuelSummary | None = None


class Version(Struct, frozen=True, kw_only=True):
    """A kept version of a model; `since` has the measures since the version before it."""

    version: int
    time: str | None = None
    reason: str | None = None
    name: str | None = None
    size: int | None = None
    since: dict[str, Any] | None = None


class Job(Struct, frozen=True, kw_only=True):
    """A training job; `state` is running, done, failed or cancelled."""

    id: str
    model: str
    state: str
    created: float = 0.0
    share_done: float = 0.0
    begun: float | None = None
    training: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: str | None = None


class ModelPage(Struct, frozen=True):
    """Some of the models, and where the next ones begin."""

    models: list[ModelSummary]
    next: str | None = None


class JobPage(Struct, frozen=True):
    """Some of the jobs, the newest first, and where the next ones begin."""

    jobs: list[Job]
    next: str | None = None


class VersionList(Struct, frozen=True):
    """The kept versions, oldest first."""

    versions: list[Version]


class AppendedRecord(Struct, frozen=True):
    """The record in the log that makes a change."""

    seq: int


class RefusedEvent(Struct, frozen=True):
    """An event of a batch that was not stored."""

    index: int
    status: int
    title: str = ""
    detail: str = ""


class FeedbackAnswer(Struct, frozen=True):
    """What the service did with the events of a batch."""

    accepted: int
    duplicates: int
    rejected: int
    errors: list[RefusedEvent]
