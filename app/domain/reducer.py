"""The reducer: `apply(state, record)`, pure and total.

The same records in the same order give the same bits on any CPU. An invalid record (damaged, with
another number of features, with wrong positions) counts as rejected and changes nothing else. Only
a record of a newer format raises an exception, NewerFormat, before it changes anything: a newer
release can apply it. `chain' = blake2b(chain ‖ record)`.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from app.domain import click_pairs, codec
from app.domain.click_pairs import ClickPairs
from app.domain.impressions import as_labels, as_positions, measured_labels
from app.domain.model import SUMS, Model, ModelState, Positions
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Record, Replace, ResetMeasures, Retune
from app.errors import BadBlob
from app.ranking import bounds, covariance, measures, serving
from app.ranking.arrays import Floats, as_floats, frozen
from app.ranking.clicks import CLICK_STRATEGIES
from app.ranking.pairs import Pairs, from_labels
from app.ranking.solar import LinearLearner, SolarI, SolarII, SolarIIDiagonal, Steps, between

_AT = {name: index for index, name in enumerate(SUMS)}
_QUALITY, _BASELINE = _AT["ndcg@1"], _AT["baseline_ndcg@1"]
_DEBIASED = slice(_AT["debiased_weight"], _AT["baseline_debiased_wins"] + 1)
_EXPLORED = slice(_AT["explored_queries"], _AT["explored_map"] + 1)
_STEPS = slice(_AT["stepped"], _AT["squared_loss"] + 1)


def decoded(blob: bytes) -> Record | None:
    """Decode a record; None if the bytes are damaged. NewerFormat if a newer release wrote it."""
    try:
        return codec.load_record(blob)
    except BadBlob:
        return None


class Reducer:
    """A model that applies records: mutable, for one thread; `state()` returns a frozen copy."""

    def __init__(self, state: ModelState) -> None:
        self.seq, self.chain = state.seq, state.chain
        self.config = state.model.config
        self._learner = restored(state.model)
        self._sums = state.sums.copy()

    def state(self) -> ModelState:
        """Return the current state."""
        model = _model(self.config, self._learner)
        return ModelState(self.seq, self.chain, model, frozen(self._sums.copy()))

    @property
    def trace(self) -> float:
        """The trace of Σ; 0 without one."""
        return self._learner.trace

    def apply(self, blob: bytes) -> bool:
        """Apply the next record of the log; return whether it was accepted."""
        return self.apply_decoded(blob, decoded(blob))

    def apply_decoded(self, blob: bytes, record: Record | None) -> bool:
        """Apply a record that is already decoded."""
        self.seq, self.chain = self.seq + 1, codec.next_chain(self.chain, blob)
        try:
            self._apply(record)
        except ValueError:
            self._sums[_AT["rejected"]] += 1
            return False
        return True

    def _apply(self, record: Record | None) -> None:
        if record is None:
            raise ValueError("record: expected a valid record, got a damaged blob")
        if isinstance(record, Feedback):
            self._learn(record)
        elif isinstance(record, Replace):
            self._learner, self.config = restored(record.model), record.model.config
        elif isinstance(record, Retune):
            self._retune(record)
        elif isinstance(record, ResetMeasures):
            self._sums[:] = 0.0

    def _retune(self, change: Retune) -> None:
        names = ("C", "gamma", "clicks", "explore", "pair_bound")
        given: dict[str, Any] = {name: getattr(change, name) for name in names}
        config = replace(self.config, **{k: v for k, v in given.items() if v is not None})
        self._learner = restored(_model(config, self._learner))
        self.config = config

    def _learn(self, event: Feedback) -> None:
        """Run Algorithm 1: measure the served ranking, then learn each pair."""
        submission = _submission(event)
        click_pairs.check_exploration(event)
        clicks = ClickPairs(event) if event.kind == "clicks" else None
        pairs = clicks.new_pairs(self.config.clicks) if clicks else _pairs(event, submission)
        gained, won = self._measured(event, submission), clicks.wins() if clicks else 0.0
        documents = as_floats(event.documents)  # copied once for both: stored rows are read-only
        pairs, scaled = bounds.bounded(documents, pairs, self.config.pair_bound)
        steps = self._learner.learn_pairs(documents, pairs)
        self._sums[: _BASELINE + 5] += gained
        if click_pairs.explored(event):
            self._sums[_EXPLORED] += gained[:_BASELINE]
        self._sums[_DEBIASED] += won
        self._sums[_AT["feedback"]] += 1
        self._sums[_AT["bounded"]] += scaled
        self._count(steps)

    def _measured(self, event: Feedback, submission: Positions) -> Floats:
        """Compute what the event adds to the sums; a query counted before is replaced."""
        count = len(event.documents)
        shown = None
        if event.submitted is None:
            shown = serving.order(self._learner.score(event.documents))
        gained = _qualities(measured_labels(event), shown, submission)
        if event.counted is None:
            gained[0] = 1.0
        else:
            gained -= _qualities(as_labels(event.counted, count), shown, submission)
        return gained

    def _count(self, steps: Steps) -> None:
        tally = steps.tally()
        self._sums[_STEPS] += (tally.stepped, tally.passive, tally.refused, tally.squared_loss)


def _qualities(labels: Floats, shown: Positions | None, submission: Positions) -> Floats:
    """Measure the served and the submitted order, in the layout of the sums."""
    found = np.zeros(_BASELINE + 5)
    measures.measure_into(found[_QUALITY:_BASELINE], labels, order=shown)
    measures.measure_into(found[_BASELINE:], labels, order=submission)
    return found


def _pairs(event: Feedback, submission: Positions) -> Pairs:
    """Pairs from labels or triplets."""
    count = len(event.documents)
    if event.kind == "triplets":
        preferred, other = as_positions(event.preferred, count), as_positions(event.other, count)
        weights = np.ones(len(preferred)) if event.weights is None else event.weights
        return Pairs(preferred, other, weights)
    if event.kind != "labels":
        raise ValueError(f"kind: expected clicks, labels or triplets, got {event.kind!r}")
    return from_labels(as_labels(event.labels, count), submission)


def _submission(event: Feedback) -> Positions:
    """Documents of a ranking in the submitted order."""
    count = len(event.documents)
    if event.submitted is None:
        return np.arange(count)
    if event.submitted.shape != (count,):
        raise ValueError(
            f"submitted: expected {count} positions, got shape {event.submitted.shape}"
        )
    return event.submitted.argsort(kind="stable")


def _learner(config: ModelConfig, weights: Floats | None, spread: Floats | None) -> LinearLearner:
    if config.clicks not in CLICK_STRATEGIES:
        raise ValueError(f"clicks: expected one of {', '.join(CLICK_STRATEGIES)}")
    if config.pair_bound is not None:
        between(config.pair_bound, "pair_bound")
    kind = (config.algorithm, config.covariance)
    if kind[0] == "solar-i":
        return SolarI(config.n, config.C, weights=weights)
    if kind == ("solar-ii", "full"):
        return SolarII(config.n, config.gamma, weights=weights, covariance=spread)
    if kind == ("solar-ii", "diagonal"):
        return SolarIIDiagonal(config.n, config.gamma, weights=weights, variances=spread)
    raise ValueError(
        f"algorithm: expected solar-i, or solar-ii with full or diagonal covariance, got {kind}"
    )


def restored(model: Model) -> LinearLearner:
    """Create a learner that continues from a model."""
    return _learner(model.config, model.weights, model.spread)


def _model(config: ModelConfig, learner: LinearLearner) -> Model:
    spread: Floats = np.zeros(0)
    if isinstance(learner, SolarII):
        spread = learner.covariance
    elif isinstance(learner, SolarIIDiagonal):
        spread = learner.variances
    return Model(config, learner.weights, spread)


def sound(state: ModelState) -> list[str]:
    """List violations of I16: w and Σ are finite, the diagonal of Σ is positive."""
    model = state.model
    problems = []
    if not np.isfinite(model.weights).all():
        problems.append("weights: expected finite numbers")
    if not np.isfinite(model.spread).all():
        problems.append("covariance: expected finite numbers")
    diagonal = covariance.variances(model.spread, model.weights.size)
    if not (diagonal > 0.0).all():
        problems.append("covariance: expected a positive diagonal")
    return problems
