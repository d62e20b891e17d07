"""Judged data → batch model → the online model that goes on from it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.domain import candidates
from app.domain.model import Model
from app.domain.model_config import ModelConfig
from app.errors import BadData
from app.evaluation.letor import JudgedData
from app.ranking.arrays import Floats, frozen
from app.ranking.batch import path
from app.ranking.batch.judgements import Judgements, csr, is_sparse
from app.ranking.batch.newton import Minimum
from app.ranking.batch.trainers import Kind, Trainer, trainer
from app.ranking.batch.warmstart import covariance_after, variances_after
from app.ranking.limits import LARGEST_WEIGHT
from app.ranking.online import LabelledQuery
from app.ranking.sparse import SparseRows
from app.training.options import Training, check_training

#: Of the queries, where neither C nor a share is given.
HELD_OUT = 0.2
#: Seconds between two words about how far it is; with each the model so far is measured.
WORD = 0.25


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far a training is: `distance` is the norm of the gradient, or the gap, or the slope."""

    parameter: float
    iteration: int
    objective: float
    distance: float
    ndcg: float

    def described(self) -> dict[str, float]:
        """By names for people."""
        names = ("parameter", "iteration", "objective", "distance")
        return {**{name: getattr(self, name) for name in names}, "ndcg@10": self.ndcg}


Watch = Callable[[Progressed], None]


@dataclass(frozen=True, slots=True)
class BatchModel:
    """What a training found, and all that it tried: (parameter, quality on held-out queries)."""

    minimum: Minimum
    parameter: float
    tried: tuple[tuple[float, float], ...]
    judged: Judgements

    @property
    def weights(self) -> Floats:
        """The weights that were found."""
        return self.minimum.w

    @property
    def zeros(self) -> float:
        """The share of weights that are 0."""
        return float(np.mean(self.weights == 0.0))


# ---- data ----


def judgements(data: JudgedData, config: ModelConfig, bound: float) -> Judgements:
    """Judged data as the model would have seen it; BadData if it could not have."""
    n = len(config.given)
    if data.n != n:
        raise BadData(
            f"features: expected {n} as the model has, got {data.n} as the highest number "
            f"(a last feature that is 0 everywhere is written {n}:0 once)"
        )
    if config.normalization == "query-minmax":
        return Judgements.of([_scaled(query) for query in data.queries])
    found = Judgements.of(data.queries)
    values = found.X.data if is_sparse(found.X) else found.X
    if values.size and not candidates.features_within(values, bound):
        raise BadData(
            f"features: expected at most ±{bound:g} for a model without normalization; "
            "one with query-minmax takes any"
        )
    return found


def _scaled(query: LabelledQuery) -> LabelledQuery:
    """As `/rank` scales what is sent: over the documents of the query."""
    rows = query.documents
    if isinstance(rows, np.ndarray):
        return LabelledQuery(query.labels, candidates.min_max(rows.astype(np.float32)))
    scaled = candidates.min_max(csr(rows).toarray().astype(np.float32))
    return LabelledQuery(query.labels, SparseRows.of(scaled))


def split(judged: Judgements, validation: float) -> tuple[Judgements, Judgements]:
    """Queries to train on, and queries held out: a share of them, or so many of the last ones."""
    ordering = judged.ordering()
    if validation < 1.0:
        held = _drawn(ordering, validation) | _drawn(~ordering, validation)
    else:
        held = np.arange(len(ordering)) >= len(ordering) - int(validation)
    if not (ordering & held).any() or not (ordering & ~held).any():
        raise BadData(
            "validation: expected queries to train on and queries to hold out, got "
            f"{ordering.sum()} with different labels; give C instead"
        )
    return judged.some(~held), judged.some(held)


def _drawn(these: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """A share of these, drawn, but always the same ones; one at least, if there are any."""
    count = int(these.sum())
    drawn = np.zeros(len(these), np.bool_)
    drawn[these] = np.random.default_rng(0).permutation(count) < max(1, round(share * count))
    return drawn


def checked_judgements(judged: Judgements, training: Training) -> Judgements:
    """The same, or BadData if there is nothing to train on, or to choose by."""
    if not judged.ordering().any():
        raise BadData("labels: expected two documents of one query with different labels, got none")
    if training.given is None:
        split(judged, _share(training))
    return judged


def _share(training: Training) -> float:
    return HELD_OUT if training.validation is None else training.validation


# ---- training ----


def train_batch(judged: Judgements, training: Training, watch: Watch | None = None) -> BatchModel:
    """The best linear ranking of judged queries; BadData if they order nothing.

    C (or the penalty) is as given, or the best on queries held out. A drawn share of the queries
    is learnt from too, once C is found; the last queries are not: they were meant for that alone.
    """
    judged = checked_judgements(judged, check_training(training))
    kind: Kind = "domination" if training.trainer == "domination" else training.loss
    if training.given is not None:
        return _trained(kind, judged, training.given, None, watch)
    share = _share(training)
    rest, held_out = split(judged, share)
    found = path.follow_path(Watched(trainer(kind, rest), held_out, watch), held_out, training.by)
    tried, best = tuple((one.parameter, one.quality) for one in found.tried), found.best
    if share >= 1.0:
        return BatchModel(best.minimum, best.parameter, tried, rest)
    whole = _trained(kind, judged, best.parameter, best.minimum.w, watch)
    return replace(whole, tried=tried)


def _trained(
    kind: Kind, judged: Judgements, parameter: float, start: Floats | None, watch: Watch | None
) -> BatchModel:
    minimum = Watched(trainer(kind, judged), judged, watch).fit(parameter, start)
    return BatchModel(minimum, parameter, (), judged)


class Watched:
    """A trainer that says how far it is."""

    def __init__(self, inner: Trainer, measured_on: Judgements, watch: Watch | None) -> None:
        self.n, self.grid = inner.n, inner.grid
        self._inner, self._measured_on, self._watch = inner, measured_on, watch
        self._next, self._before = 0.0, 0

    def fit(self, parameter: float, start: Floats | None = None, _: Any = None) -> Minimum:
        """As the trainer within."""

        def progress(iteration: int, objective: float, distance: float, w: Floats) -> None:
            if self._watch is not None and monotonic() >= self._next:
                at, ndcg = (
                    self._before + iteration,
                    path.batch_quality(self._measured_on, w, "ndcg@10"),
                )
                self._watch(Progressed(parameter, at, objective, distance, ndcg))
                self._next = monotonic() + WORD

        minimum = self._inner.fit(parameter, start, progress)
        self._before += minimum.iterations
        return minimum


# ---- the model ----


def online(found: BatchModel, config: ModelConfig) -> Model:
    """An online model that goes on from here: w as it is, and for SOLAR-II what Σ would be.

    Of the order as submitted, which judged data does not have, it knows nothing: `_order` weighs 0.
    """
    w, judged = found.weights.copy(), found.judged
    if not (np.isfinite(w).all() and np.abs(w).max() <= LARGEST_WEIGHT):
        raise BadData("features: expected some that float64 can weigh; scale them")
    spread = np.zeros(0)
    if config.algorithm == "solar-ii":
        after = covariance_after if config.covariance == "full" else variances_after
        try:
            spread = after(judged, w, config.gamma)
        except ValueError as error:
            raise BadData(str(error)) from error
    if config.prior:
        w, spread = _with_order(w, spread, config)
    return Model(config, frozen(w), frozen(spread))


def _with_order(w: Floats, spread: Floats, config: ModelConfig) -> tuple[Floats, Floats]:
    """One more feature: of weight 0, independent of the others."""
    row = {"solar-i": 0, "solar-ii": 1 + (len(w) if config.covariance == "full" else 0)}
    last = np.zeros(row[config.algorithm])
    last[-1:] = 1.0
    return np.append(w, 0.0), np.append(spread, last)


def describe_training(found: BatchModel, training: Training) -> dict[str, Any]:
    """A batch model in words and numbers."""
    minimum, judged, named = found.minimum, found.judged, training.parameter
    said: dict[str, Any] = {"trainer": training.trainer, named: found.parameter}
    if named == "C":
        said["loss"] = training.loss
    said |= {
        "queries": len(judged.starts) - 1,
        "documents": len(judged.labels),
        "iterations": minimum.iterations,
        "objective": minimum.value,
        "distance": minimum.distance,
        "converged": minimum.converged,
        "zeros": found.zeros,
        "ndcg@10": path.batch_quality(judged, found.weights, "ndcg@10"),
    }
    if found.tried:
        said["by"] = training.by
        said["tried"] = [{named: at, "quality": quality} for at, quality in found.tried]
    return said
