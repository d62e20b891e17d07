"""The words that cross walls: what a model is, and everything that can happen to one.

A model is a fold over its log. What happens to it is a *record*: feedback, a replacement, other
hyper-parameters, a reset of its measures. A record carries all that the fold needs, so that a
model can be replayed without any other source. Values are frozen; arrays in them are not written.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Positions: TypeAlias = NDArray[np.int64]
Documents: TypeAlias = NDArray[np.float32]

Algorithm = Literal["solar-i", "solar-ii"]
Covariance = Literal["full", "diagonal"]
FeedbackKind = Literal["clicks", "labels", "triplets"]

#: The feature that a model with a prior has beside those it is given: always the last.
ORDER = "_order"
#: Readings of clicks that learn from lists that were explored, and from no others.
EXPLORING = ("debiased", "fair-pairs")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a model is, apart from what it learnt.

    With a `prior` the order as submitted is one more feature, `_order`, starting at this weight.
    `explore` says whether lists are varied; None: if the reading of clicks learns from that.
    """

    features: tuple[str, ...]
    algorithm: Algorithm = "solar-ii"
    covariance: Covariance = "full"
    C: float = 1e-5
    gamma: float = 1e4
    clicks: str = "click-skip-above"
    normalization: str = "none"
    prior: float = 0.0
    explore: bool | None = None

    @property
    def n(self) -> int:
        """How many features a document has, as it is learnt."""
        return len(self.features)

    @property
    def given(self) -> tuple[str, ...]:
        """The features that a document comes with."""
        return self.features[:-1] if self.prior else self.features

    @property
    def explores(self) -> bool:
        """Whether lists are varied, unless a request says otherwise."""
        return self.clicks in EXPLORING if self.explore is None else self.explore


@dataclass(frozen=True, slots=True)
class Model:
    """A whole model: its settings and what it learnt.

    `spread` is SOLAR-II's covariance: the packed lower triangle or the diagonal; SOLAR-I has none.
    """

    settings: Settings
    weights: Floats
    spread: Floats


@dataclass(frozen=True, slots=True)
class Feedback:
    """What users did with a list of documents.

    `documents` stand in the order shown, and `submitted[d]` is the place document d had when it was
    submitted; None if the event brought its own documents, which the fold then ranks itself.
    `clicked_before` are earlier clicks on the list, in order, and `rounds` after how many of them
    each earlier event ended. `counted` are the labels by which this query is in the measures
    already, None if it is not. `odds` are of a list that was drawn (`ranking/debiased.py`), `swaps`
    of one whose neighbours were exchanged (`ranking/fair.py`).
    """

    event: str
    kind: FeedbackKind
    documents: Documents
    submitted: Positions | None = None
    counted: Floats | None = None
    labels: Floats | None = None
    clicks: Positions | None = None
    clicked_before: Positions | None = None
    rounds: Positions | None = None
    preferred: Positions | None = None
    other: Positions | None = None
    weights: Floats | None = None
    odds: Floats | None = None
    swaps: Positions | None = None
    query: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Replace:
    """Another model takes this one's place: a warm start, a rollback, a replay."""

    model: Model
    reason: str


@dataclass(frozen=True, slots=True)
class Retune:
    """Other hyper-parameters from here on; what is None stays."""

    C: float | None = None
    gamma: float | None = None
    clicks: str | None = None
    explore: bool | None = None


@dataclass(frozen=True, slots=True)
class ResetMeasures:
    """The measures begin anew."""


Record: TypeAlias = Feedback | Replace | Retune | ResetMeasures

#: The sums of a state, by place; new ones come last, as a state may have been kept before them.
#: From `stepped` to `rejected` they are over pairs and records, else over queries that count; those
#: of lists that were explored stand once more, apart.
SUMS = (
    "queries",
    "ndcg@1",
    "ndcg@5",
    "ndcg@10",
    "ndcg",
    "map",
    "baseline_ndcg@1",
    "baseline_ndcg@5",
    "baseline_ndcg@10",
    "baseline_ndcg",
    "baseline_map",
    "stepped",
    "passive",
    "refused",
    "squared_loss",
    "feedback",
    "rejected",
    "debiased_weight",
    "debiased_wins",
    "baseline_debiased_wins",
    "explored_queries",
    "explored_ndcg@1",
    "explored_ndcg@5",
    "explored_ndcg@10",
    "explored_ndcg",
    "explored_map",
)


@dataclass(frozen=True, slots=True)
class State:
    """A model after record `seq`, and `chain`, which proves the way there."""

    seq: int
    chain: bytes
    model: Model
    sums: Floats

    def measures(self) -> dict[str, float]:
        """The sums by name."""
        return dict(zip(SUMS, self.sums.tolist(), strict=True))


# ---- facts, for whoever counts ----


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
class Stumbled:
    """A learner has lost its lease or its store, and will begin anew."""

    model: str


@dataclass(frozen=True, slots=True)
class Returned:
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
class Standing:
    """How a model stands in the store, beside its state.

    `tail` is the last record of its log, `leader` the fence of the learner at work (0: none), and
    `terms` counts the learners so far.
    """

    tail: int
    leader: int = 0
    terms: int = 0
    trains: bool = False


def freeze(*arrays: NDArray[Any] | None) -> None:
    """Make arrays not writeable, before they are handed out."""
    for array in arrays:
        if array is not None:
            array.flags.writeable = False
