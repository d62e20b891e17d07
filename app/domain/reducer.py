"""The reducer: `apply(state, record)`, pure and total.

The same records in the same order give the same bits on any CPU. An invalid record (damaged, with
another number of features, with wrong positions) counts as rejected and changes nothing else. Only
a record of a newer format raises an exception, NewerFormat, before it changes anything: a newer
release can apply it. `chain' = blake2b(chain ‖ record)`.

A record with many pairs can be applied in parts, with the same bits wherever it is cut. Its
measures count with its last part.
"""

from contextlib import suppress
from dataclasses import dataclass
from math import sqrt

import numpy as np

from app.domain import agreement, click_pairs, codec, counting, duel_counts, duels, followers
from app.domain.click_pairs import ClickPairs
from app.domain.counting import AT, NO_WINS, NOT_COUNTED, Counted, Gains
from app.domain.duels import Duel, EndDuel
from app.domain.impressions import as_labels, counted_labels, submitted_order
from app.domain.judged_pairs import judged_pairs
from app.domain.learners import restored
from app.domain.learnt import (
    MOST_NOTED,
    FirstPairs,
    LearntRecord,
    StepWatcher,
    learnt_record,
    noted_pairs,
)
from app.domain.model import Model, ModelState, Part, Positions, initial_variances
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Record, Replace, ResetMeasures, Retune
from app.domain.work import pair_work
from app.errors import BadBlob
from app.ranking import bounds, covariance, drift, serving
from app.ranking.arrays import Dense, Floats, as_floats, frozen
from app.ranking.certainty import UNKNOWN, Certainty, after_ranking, forgets, kept_share
from app.ranking.pairs import Pairs
from app.ranking.solar import GapBatch, LinearLearner, SolarII, SolarIIDiagonal
from app.ranking.tally import NO_PAIRS, Tally

_DRIFT = slice(AT["mean_quality"], AT["drift"] + 1)
_STEPS = slice(AT["stepped"], AT["squared_loss"] + 1)
_R = AT["largest_gap"]
#: More pairs than a record can have.
_ALL_PAIRS = 1 << 62


def decoded(blob: bytes) -> Record | None:
    """Decode a record; None if the bytes are damaged. NewerFormat if a newer release wrote it."""
    try:
        return codec.load_record(blob)
    except BadBlob:
        return None


@dataclass(slots=True)
class OpenRecord:
    """Feedback while it is learnt: its gaps, and what it adds to the sums when it is complete.

    Its parts have the same bits wherever it is cut: each pair is bounded on its own.
    `before` is the weight that each pair got before; None: 0 for all. `agreement` is that of a
    follower with its leader, `duel` the state of the duel after it.
    """

    chain: bytes
    documents: Dense
    gaps: GapBatch
    before: Floats | None
    bound: float | None
    gains: Gains
    agreement: float | None = None
    duel: duels.DuelState | None = None
    learnt: int = 0
    tally: Tally = NO_PAIRS
    scaled: int = 0

    def bounded_part(self, start: int, stop: int) -> tuple[GapBatch, int]:
        """Return gaps with their bounded weights, and how many were scaled."""
        gaps, before = self.gaps, self.before
        if stop - start < gaps.p.size:
            gaps = gaps.part(start, stop)
            before = None if before is None else before[start:stop]
        pairs = Pairs(gaps.p, gaps.o, gaps.omega, before)
        pairs, scaled = bounds.bounded(self.documents, pairs, self.bound)
        return gaps._replace(p=pairs.preferred, o=pairs.other, omega=pairs.weights), scaled


class Reducer:
    """A model that applies records: mutable, for one thread; `state()` returns a frozen copy.

    With `follows` it is a follower, which keeps its own settings (`followers.py`).

    If `noted` is set, the next applied records are noted there by seq, until it has MOST_NOTED. A
    `watcher` sees every step; it must not raise.
    """

    def __init__(self, state: ModelState, *, follows: bool = False) -> None:
        self.seq, self.chain, self._duel = state.seq, state.chain, state.duel
        self._follows = follows
        self._configure(state.model)
        self._certainty = state.model.certainty
        self._sums = state.sums.copy()
        self._part = state.part
        self._open: OpenRecord | None = None  # the next record, if a part of it is learnt
        self._before: ModelState | None = None  # the state before the open record
        self.noted: dict[int, LearntRecord] | None = None
        self.watcher: StepWatcher | None = None
        self._record: Record | None = None  # the one that is applied now and is to be noted
        self._pairs: FirstPairs | None = None  # its first ones
        self._notes = False

    def _configure(self, model: Model) -> None:
        """Continue from a model; ValueError if it is invalid, and nothing has changed."""
        self._learner, self.config = restored(model), model.config
        self.pair_work, self._kappa = pair_work(model.config), model.config.kappa
        self._initial = initial_variances(model.config)

    def state(self) -> ModelState:
        """Return the state after the last complete record."""
        if self._before is not None:
            return self._before
        model = _model(self.config, self._learner, self._certainty)
        sums = frozen(self._sums.copy())
        return ModelState(self.seq, self.chain, model, sums, self._part, self._duel)

    def part(self) -> Part | None:
        """Return what was learnt of the next record, if it is cut."""
        if self._open is None:
            return None
        learnt, opened = _model(self.config, self._learner), self._open
        tally = opened.tally
        if not self.config.keeps_largest_gap:
            tally = tally._replace(squared_norm=0.0)
        so_far = tally, opened.scaled
        return Part(opened.chain, opened.learnt, learnt.weights, learnt.spread, *so_far)

    @property
    def learnt_pairs(self) -> int:
        """The number of learnt pairs of the next record; 0 if it is not cut."""
        return 0 if self._open is None else self._open.learnt

    @property
    def trace(self) -> float:
        """The trace of Σ; 0 without one."""
        return self._learner.trace

    def apply(self, blob: bytes) -> bool:
        """Apply the next record of the log; return whether it was accepted."""
        return self.apply_decoded(blob, decoded(blob))

    def apply_decoded(self, blob: bytes, record: Record | None) -> bool:
        """Apply a record that is already decoded."""
        return bool(self._apply_some(blob, record, _ALL_PAIRS))

    def apply_part(self, blob: bytes, record: Record | None, most: int) -> bool:
        """Learn up to `most` more pairs of the next record; return whether it is complete.

        `record` is needed for the first part only.
        """
        return self._apply_some(blob, record, most) is not None

    def _apply_some(self, blob: bytes, record: Record | None, most: int) -> bool | None:
        """Return whether the record was accepted; None if it has more pairs to learn."""
        accepted, opened = True, self._open
        chain = codec.next_chain(self.chain, blob) if opened is None else opened.chain
        if opened is None:
            self._notes = self.noted is not None and len(self.noted) < MOST_NOTED
            self._record, self._pairs = record if self._notes else None, None
        try:
            if not self._apply(chain, record, most):
                return None
        except ValueError:
            self._sums[AT["rejected"]] += 1
            accepted = False
        self.seq, self.chain, self._part = self.seq + 1, chain, None
        if self._notes and self.noted is not None:
            self.noted[self.seq] = learnt_record(self._record, accepted, self._pairs)
            self._record = self._pairs = None
        return accepted

    def _apply(self, chain: bytes, record: Record | None, most: int) -> bool:
        """Apply a record, or some of its pairs; return whether it is complete."""
        if self._open is not None:
            return self._learn_pairs(self._open, most)
        if record is None:
            raise ValueError("record: expected a valid record, got a damaged blob")
        if isinstance(record, Feedback):
            return self._learn_pairs(self._opened(chain, record), most)
        if isinstance(record, ResetMeasures):
            self._sums[:] = 0.0
            if self.watcher is not None:
                self.watcher.reset()
        elif isinstance(record, Replace):
            self._replace(record)
        elif not self._follows:
            self._change(record)
        return True

    def _replace(self, record: Replace) -> None:
        """Continue from another model; a follower only from a warm start, with its own settings."""
        model = record.model
        if self._follows:
            restored(model)  # ValueError, as for the leader
            if record.kind != "warm start":
                self._sums[AT["passed_by"]] += 1
                return
            model = followers.taken_over(self.config, model)
        self._configure(model)
        self._certainty = model.certainty
        self._duel = duels.ended_by(self.seq + 1, record.kind, self._duel)
        if self.watcher is not None:
            self.watcher.replaced(model)

    def _change(self, record: Retune | Duel | EndDuel) -> None:
        """Change the settings, or begin or end a duel."""
        if isinstance(record, Retune):
            self._configure(_model(record.retuned(self.config), self._learner))
        elif isinstance(record, Duel):
            self._duel = duels.begun(self.seq + 1, record, self._duel)
        else:
            self._duel = duels.ended(self.seq + 1, record, self._duel)

    def _opened(self, chain: bytes, event: Feedback) -> OpenRecord:
        """Measure the served ranking before it is learnt (Algorithm 1), and make its pairs.

        If a part of this record is already learnt, continue after it.
        """
        submission = submitted_order(event)
        click_pairs.check_exploration(event)
        clicks = ClickPairs(event, self._kappa) if event.kind == "clicks" else None
        pairs = clicks.new_pairs(self.config.clicks) if clicks else judged_pairs(event, submission)
        gains = self._gains(event, submission, clicks)
        documents = as_floats(event.documents)  # copied once for both: stored rows are read-only
        gaps = self._learner.pair_batch(documents, pairs)
        bound = bounds.needed(documents, pairs, self.config.pair_bound)
        opened = OpenRecord(chain, documents, gaps, pairs.before, bound, gains)
        if self._follows and event.counted is None:
            opened.agreement = agreement.agreement(event, self._learner.score(event.documents))
        opened.duel = self._duel
        if event.duel is not None and self._duel is not None:
            opened.duel = duel_counts.after_event(self._duel, event, event.duel)
        if self._part is not None:
            self._continue(opened, self._part)
        return opened

    def _gains(self, event: Feedback, submission: Positions, clicks: ClickPairs | None) -> Gains:
        """Return what an event adds to the measures.

        A follower served no list, so it has none; it refuses what its leader refuses.
        """
        query = self._measured(event, submission)
        if self._follows:
            return Gains(NOT_COUNTED, NO_WINS, NO_WINS, explored=False)
        wins, before = clicks.wins() if clicks else (NO_WINS, NO_WINS)
        in_duel = event.duel is not None
        return Gains(query, wins, before, click_pairs.explored(event), in_duel)

    def _continue(self, opened: OpenRecord, part: Part) -> None:
        """Take over a learnt part, unless it is of another record, which the log has lost."""
        self._part = None
        if part.chain == opened.chain and part.pairs < opened.gaps.p.size:
            before = self.state()
            with suppress(ValueError):  # not a part of this model
                self._learner = restored(Model(self.config, part.weights, part.spread))
                self._before, opened.learnt = before, part.pairs
                opened.tally, opened.scaled = part.tally, part.scaled

    def _learn_pairs(self, opened: OpenRecord, most: int) -> bool:
        """Learn up to `most` pairs in order; return whether the record is complete."""
        start, count = opened.learnt, opened.gaps.p.size
        stop = min(start + most, count)
        if stop < count and self._before is None:
            self._before = self.state()
        gaps, scaled = opened.bounded_part(start, stop)
        opened.scaled += scaled
        steps = self._learner.learn_batch(gaps)
        opened.tally, opened.learnt = steps.tally(opened.tally), stop
        if self.watcher is not None:
            self.watcher.learnt(self.config, gaps, steps)
        if self._notes and self._pairs is None:
            self._pairs = noted_pairs(gaps, steps, count - (stop - start - gaps.p.size))
        if stop < count:
            self._open = opened
            return False
        self._open = self._before = None
        self._count(opened)
        return True

    def _measured(self, event: Feedback, submission: Positions) -> Counted:
        """Compute what the event adds to the measures; a query counted before is replaced."""
        if not len(event.documents):
            raise ValueError("documents: expected at least one")
        labels, before = counted_labels(event, self.config.counts_abandoned), event.counted
        shown = None
        if event.submitted is None:
            shown = serving.order(self._learner.score(event.documents))
        found = counting.counted(labels, shown, submission)
        if before is None:
            return found
        if before.size or not self.config.counts_abandoned:
            before = as_labels(before, len(event.documents))
        return found.minus(counting.counted(before, shown, submission))

    def _count(self, learnt: OpenRecord) -> None:
        """Add a complete record to the sums."""
        learnt.gains.add_to(self._sums, with_squares=self.config.counts_abandoned)
        self._duel = learnt.duel
        if learnt.agreement is not None:
            self._sums[AT["compared"]] += 1
            self._sums[AT["agreeing"]] += learnt.agreement
        self._sums[AT["feedback"]] += 1
        self._sums[AT["bounded"]] += learnt.scaled
        tally = learnt.tally
        self._sums[_STEPS] += (tally.stepped, tally.passive, tally.refused, tally.squared_loss)
        largest = sqrt(tally.squared_norm)
        if largest > self._sums[_R] and self.config.keeps_largest_gap:
            self._sums[_R] = largest
        if self.config.exploration is not None:
            self._follow_certainty(tally)
            if learnt.gains.first_quality > 0.0:
                self._note_drift(learnt.gains.first_quality)

    def _follow_certainty(self, tally: Tally) -> None:
        """Update the certainty; let the learner forget when it is due."""
        before, forgetting = self._certainty, self.config.forgetting or 0.0
        self._certainty = after_ranking(before, tally, self._learner, forgetting, self._initial)
        if self.watcher is not None and forgets(before, self._certainty, forgetting):
            self.watcher.forgot(kept_share(forgetting), self._initial)

    def _note_drift(self, quality: float) -> None:
        """Compare the NDCG@10 by the first feedback on a ranking with that of earlier rankings."""
        rankings = self._sums[AT["queries"]] - self._sums[AT["duel_queries"]]
        mean, evidence = self._sums[_DRIFT]
        found = drift.after(float(mean), float(evidence), quality, float(rankings))
        self._sums[_DRIFT] = found


def _model(config: ModelConfig, learner: LinearLearner, certainty: Certainty = UNKNOWN) -> Model:
    spread: Floats = np.zeros(0)
    if isinstance(learner, SolarII):
        spread = learner.covariance
    elif isinstance(learner, SolarIIDiagonal):
        spread = learner.variances
    return Model(config, learner.weights, spread, certainty)


def sound(model: Model) -> list[str]:
    """List violations of I16: w and Σ are finite, the diagonal of Σ is positive."""
    problems = []
    if not np.isfinite(model.weights).all():
        problems.append("weights: expected finite numbers")
    if not np.isfinite(model.spread).all():
        problems.append("covariance: expected finite numbers")
    diagonal = covariance.variances(model.spread, model.weights.size)
    if not (diagonal > 0.0).all():
        problems.append("covariance: expected a positive diagonal")
    return problems
