"""Everything that can happen to a model: the records of its log.

A record carries all that the reducer needs, so that a model can be replayed without any other
source. Values are frozen; arrays in them are not written.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.domain.model import Documents, Model, Positions
from app.ranking.arrays import Floats

FeedbackKind = Literal["clicks", "labels", "triplets"]


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
