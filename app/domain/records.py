"""Log records of a model: every change of a model is a record.

A record contains all that the reducer needs, so that a replay needs no other source. Values are
frozen; their arrays are never written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias

from app.domain.duels import Duel, EndDuel
from app.domain.model import Documents, Model, Positions
from app.domain.model_config import ModelConfig
from app.ranking.arrays import Floats

FeedbackKind = Literal["clicks", "labels", "triplets"]


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback of users on a ranking.

    `documents` are in the order shown, and `submitted[d]` is the submitted position of document d.
    It is None if the event contains its own documents, which the reducer then ranks.
    `clicked_before` are earlier clicks on the ranking, in order, and `rounds` counts them at the
    end of each earlier event. `counted` are the labels by which this query is already in the
    measures, empty if it is abandoned so far, None if it has no feedback yet. `odds` belong to a
    sampled ranking (`ranking/debiased.py`), `swaps` to one with swapped neighbours
    (`ranking/fair.py`). `duel` belongs to an interleaved ranking: the id of the duel, then the team
    of each place; its `swaps` are the rounds that are fair pairs (`ranking/interleaving.py`).
    `gains` are those of the clicks, all 1 if there are none; `examined` is one number, how many
    positions were examined at least. `gains_before` belong to the earlier clicks, and
    `examined_before` to the earlier events (0: unknown).
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
    duel: Positions | None = None
    gains: Floats | None = None
    gains_before: Floats | None = None
    examined: Positions | None = None
    examined_before: Positions | None = None


def is_graded(record: Feedback) -> bool:
    """Whether an event on the list had gains, or said how many positions were examined."""
    some = (record.gains, record.gains_before, record.examined, record.examined_before)
    return any(one is not None for one in some)


#: First words of the reason of a replacement → its kind; every reason starts with "".
REPLACEMENTS = {
    "warm start": "warm start", "rollback": "rollback", "without source": "replay",
    "promotion": "promotion", "": "replacement",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Replace:
    """Replacement of the model by another one: a warm start, a rollback, a replay, a promotion."""

    model: Model
    reason: str

    @property
    def kind(self) -> str:
        """The kind of the replacement, by the first words of its reason."""
        return next(REPLACEMENTS[start] for start in REPLACEMENTS if self.reason.startswith(start))


@dataclass(frozen=True, slots=True)
class Retune:
    """New hyper-parameters from this record on; None keeps the old value."""

    C: float | None = None
    gamma: float | None = None
    clicks: str | None = None
    explore: bool | None = None
    pair_bound: float | None = None
    exploration: float | None = None
    forgetting: float | None = None
    actions: Mapping[str, float] | None = None

    def retuned(self, config: ModelConfig) -> ModelConfig:
        """Return a configuration with these hyper-parameters."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(config, **{name: new for name, new in given.items() if new is not None})


@dataclass(frozen=True, slots=True)
class ResetMeasures:
    """Reset of all measures to 0."""


Record: TypeAlias = Feedback | Replace | Retune | ResetMeasures | Duel | EndDuel
