"""What the reducer did with a record, in a few numbers: for samples of what is learnt. Pure.

All values are copies: they keep no documents and no record alive.
"""

from typing import NamedTuple, Protocol

from app.domain.duels import Duel, EndDuel
from app.domain.model import Model
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Record, Replace, Retune
from app.ranking.arrays import Bytes, Floats, Integers
from app.ranking.solar import GapBatch, Steps
from app.ranking.tally import OUTCOMES

#: The most records that are noted at a time: noting one takes 2 µs.
MOST_NOTED = 20
#: The most pairs, and the most clicked positions, of a record that are noted.
SAMPLED_PAIRS, MOST_CLICKS = 10, 100
#: Pairs of a record whose arrays are small enough to be kept: 2 kB.
FEW_PAIRS = 50
#: The most characters of a text; longer ones are not from the API.
MOST_TEXT = 256


class FirstPairs(NamedTuple):
    """The first learnt pairs of a record as columns, and the number of its pairs.

    The columns of a record with few pairs are longer than SAMPLED_PAIRS.
    """

    preferred: Integers
    other: Integers
    weights: Floats
    losses: Floats
    outcomes: Bytes
    total: int


class StepWatcher(Protocol):
    """Sees all that changes the weights and the covariance of a reducer, in order."""

    def learnt(self, config: ModelConfig, gaps: GapBatch, steps: Steps) -> None:
        """Some pairs of a record were learnt."""

    def forgot(self, kept: float, initial: Floats) -> None:
        """The learner has forgotten; `initial` is the diagonal of its initial covariance."""

    def replaced(self, model: Model) -> None:
        """Another model has replaced the model."""

    def reset(self) -> None:
        """All sums are 0 again."""


class LearntPair(NamedTuple):
    """A learnt pair; its hinge loss before the step is 0 if it was passive or refused."""

    preferred: int
    other: int
    weight: float
    loss: float
    outcome: str


class LearntRecord(NamedTuple):
    """A record that was applied; `accepted` is False if it was rejected and changed nothing."""

    kind: str
    accepted: bool
    query: str
    reason: str
    documents: int
    clicked: list[int]
    pairs: FirstPairs | None
    source: str = ""

    def first_pairs(self) -> tuple[list[LearntPair], int]:
        """Return the first learnt pairs, and the number of the others."""
        if self.pairs is None:
            return [], 0
        columns = [column[:SAMPLED_PAIRS].tolist() for column in self.pairs[:-1]]
        names = map(OUTCOMES.__getitem__, columns.pop())
        found = [*map(LearntPair, *columns, names)]
        return found, self.pairs.total - len(found)


def noted_pairs(gaps: GapBatch, steps: Steps, count: int) -> FirstPairs:
    """Note the first of the pairs that were learnt together, of a record with `count` pairs.

    Few pairs are noted as they are: five copies take a microsecond.
    """
    p, o, omega, loss, outcome = gaps.p, gaps.o, gaps.omega, steps.loss, steps.outcome
    if p.size <= FEW_PAIRS and p.base is o.base is omega.base is None:  # no views of larger arrays
        return FirstPairs(p, o, omega, loss, outcome, count)
    some = slice(SAMPLED_PAIRS)
    p, o, omega = p[some].copy(), o[some].copy(), omega[some].copy()
    return FirstPairs(p, o, omega, loss[some].copy(), outcome[some].copy(), count)


def learnt_record(record: Record | None, accepted: bool, pairs: FirstPairs | None) -> LearntRecord:
    """Note an applied record; None is a damaged one."""
    if isinstance(record, Feedback):
        clicks = record.clicks
        clicked = [] if clicks is None else clicks.ravel()[:MOST_CLICKS].tolist()
        query, count = record.query[:MOST_TEXT], len(record.documents)
        return LearntRecord(record.kind, accepted, query, "", count, clicked, pairs, record.source)
    kind, reason = "reset-measures", ""
    if record is None:
        kind = "damaged"
    elif isinstance(record, Replace):
        kind, reason = "replace", record.reason[:MOST_TEXT]
    elif isinstance(record, Retune):
        kind = "retune"
    elif isinstance(record, Duel):
        kind, reason = "duel", record.challenger[:MOST_TEXT]
    elif isinstance(record, EndDuel):
        kind, reason = "end-duel", record.why[:MOST_TEXT]
    return LearntRecord(kind, accepted, "", reason, 0, [], None)
