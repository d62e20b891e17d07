"""Train a batch model on judged data, and convert it to an online model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.domain import candidates
from app.domain.model import Model
from app.domain.model_config import ModelConfig
from app.domain.splines import with_ramps
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

#: Default share of held-out queries.
HELD_OUT = 0.2
#: Seconds between two progress reports; each measures the current model on a sample of queries.
PROGRESS_SECONDS, PROGRESS_QUERIES = 0.25, 1_000
#: A fit from w = 0 ends at about this share of its first distance: the tolerance of all solvers.
CONVERGED = 1e-3


@dataclass(frozen=True, slots=True)
class Progressed:
    """Progress of a training; `distance` is the gradient norm, the duality gap or the slope.

    `ndcg` is that of a fixed sample of at most `PROGRESS_QUERIES` queries. `share` is the share of
    all fits that is done, an estimate from 0 to 1.
    """

    parameter: float
    iteration: int
    objective: float
    distance: float
    ndcg: float
    share: float

    def described(self) -> dict[str, float]:
        """Convert to the JSON fields of a job."""
        names = ("parameter", "iteration", "objective", "distance")
        return {**{name: getattr(self, name) for name in names}, "ndcg@10": self.ndcg}


ReportProgress = Callable[[Progressed], None]


@dataclass(frozen=True, slots=True)
class BatchModel:
    """A trained batch model; `tried` has (parameter, quality on held-out queries)."""

    minimum: Minimum
    parameter: float
    tried: tuple[tuple[float, float], ...]
    judged: Judgements

    @property
    def weights(self) -> Floats:
        """Weights of the model."""
        return self.minimum.w

    @property
    def zeros(self) -> float:
        """Share of weights that are 0."""
        return float(np.mean(self.weights == 0.0))


# ---- data ----


def judgements(data: JudgedData, config: ModelConfig, bound: float) -> Judgements:
    """Convert judged data to what the model would have received; BadData if it does not fit."""
    n = len(config.given)
    if data.n != n:
        raise BadData(
            f"features: expected {n}, as the model has (write {n}:0 once if the last feature is "
            f"always 0), got {data.n}"
        )
    if config.normalization == "query-minmax":
        return _with_ramps(Judgements.of([_scaled(query) for query in data.queries]), config)
    found = Judgements.of(data.queries)
    values = found.X.data if is_sparse(found.X) else found.X
    if values.size and not candidates.features_within(values, bound):
        raise BadData(
            f"features: expected values within ±{bound:g} for a model without normalization; "
            "scale them, or use a model with query-minmax"
        )
    return _with_ramps(found, config)


def _with_ramps(judged: Judgements, config: ModelConfig) -> Judgements:
    """Add the ramps of the model; its rows are dense then."""
    if config.ramps is None:
        return judged
    wider = with_ramps(judged.X.astype(np.float32), config.ramps)
    return replace(judged, X=wider.astype(np.float64))


def _scaled(query: LabelledQuery) -> LabelledQuery:
    """Scale features over the documents of the query, as `/rank` does."""
    rows = query.documents
    if isinstance(rows, np.ndarray):
        return LabelledQuery(query.labels, candidates.min_max(rows.astype(np.float32)))
    scaled = candidates.min_max(csr(rows).toarray().astype(np.float32))
    return LabelledQuery(query.labels, SparseRows.of(scaled))


def split(judged: Judgements, validation: float) -> tuple[Judgements, Judgements]:
    """Split into training and held-out queries: a share of them, or the last ones."""
    held = held_out(judged.ordering(), validation)
    return judged.some(~held), judged.some(held)


def held_out(ordering: NDArray[np.bool_], validation: float) -> NDArray[np.bool_]:
    """Choose the held-out queries; `ordering` tells which queries have two different labels."""
    if validation < 1.0:
        held = _drawn(ordering, validation) | _drawn(~ordering, validation)
    else:
        held = np.arange(len(ordering)) >= len(ordering) - int(validation)
    if not (ordering & held).any() or not (ordering & ~held).any():
        raise BadData(
            "validation: expected queries with different labels both to train on and to hold out "
            f"(or give C instead), got {ordering.sum()} such queries"
        )
    return held


def _drawn(these: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Choose a share of these queries, at least one, by a fixed seed."""
    count = int(these.sum())
    drawn = np.zeros(len(these), np.bool_)
    drawn[these] = np.random.default_rng(0).permutation(count) < max(1, round(share * count))
    return drawn


def checked_judgements(judged: Judgements, training: Training) -> Judgements:
    """Return the data unchanged; BadData if it is not enough to train or to validate."""
    check_labels(judged)
    if training.given is None:
        held_out(judged.ordering(), held_out_share(training))
    return judged


def training_part(judged: Judgements, training: Training) -> Judgements:
    """Return the queries that are not held out."""
    return judged if training.given is not None else split(judged, held_out_share(training))[0]


def check_labels(judged: Judgements) -> None:
    """Raise BadData if no query has two different labels."""
    if not judged.ordering().any():
        raise BadData("labels: expected two documents of one query with different labels, got none")


def held_out_share(training: Training) -> float:
    """Return the share of held-out queries, or their number from 1 on."""
    return HELD_OUT if training.validation is None else training.validation


def trainer_kind(training: Training) -> Kind:
    """Return the loss of a training."""
    return "domination" if training.trainer == "domination" else training.loss


# ---- training ----


def train_batch(
    judged: Judgements, training: Training, report: ReportProgress | None = None
) -> BatchModel:
    """Train the best linear model on judged queries; BadData if their labels are all equal.

    C (or the penalty) is given, or the best on held-out queries. If a random share is held out,
    the final model is trained on it too. If the last queries are held out, it is not. Without
    `report` no progress is measured.
    """
    judged = checked_judgements(judged, check_training(training))
    kind = trainer_kind(training)
    if training.given is not None:
        return _trained(kind, judged, training.given, None, report, Fits(1))
    share = held_out_share(training)
    rest, held_out = split(judged, share)
    inner = trainer(kind, rest)
    fits = Fits(len(inner.grid) + 1)
    found = path.follow_path(ReportingTrainer(inner, held_out, report, fits), held_out, training.by)
    tried, best = tuple((one.parameter, one.quality) for one in found.tried), found.best
    if share >= 1.0:
        return BatchModel(best.minimum, best.parameter, tried, rest)
    fits.skip_to_last()
    whole = _trained(kind, judged, best.parameter, best.minimum.w, report, fits)
    return replace(whole, tried=tried)


def _trained(
    kind: Kind,
    judged: Judgements,
    parameter: float,
    start: Floats | None,
    report: ReportProgress | None,
    fits: "Fits",
) -> BatchModel:
    minimum = ReportingTrainer(trainer(kind, judged), judged, report, fits).fit(parameter, start)
    return BatchModel(minimum, parameter, (), judged)


class Fits:
    """The share of a training that is done: fits that ended, and the logarithm of the distance.

    >>> fits = Fits(4)
    >>> fits.ended(), fits.share(100.0), fits.share(10.0), fits.share(0.1)
    (None, 0.25, 0.3333333333333333, 0.5)
    """

    def __init__(self, most: int) -> None:
        self._most, self._ended, self._first = most, 0, 0.0

    def share(self, distance: float) -> float:
        """Return the share that is done, at this distance of the current fit."""
        self._first = self._first or distance
        left = min(1.0, max(CONVERGED, distance / (self._first or 1.0)))
        return (self._ended + log(left) / log(CONVERGED)) / self._most

    def ended(self) -> None:
        """Note that a fit has ended."""
        self._ended, self._first = self._ended + 1, 0.0

    def skip_to_last(self) -> None:
        """Note that the search has ended, often before the last parameter."""
        self._ended = self._most - 1


def progress_sample(judged: Judgements) -> Judgements:
    """Return at most `PROGRESS_QUERIES` of the queries, chosen by a fixed seed."""
    queries = len(judged.starts) - 1
    if queries <= PROGRESS_QUERIES:
        return judged
    return judged.some(np.random.default_rng(0).permutation(queries) < PROGRESS_QUERIES)


class ReportingTrainer:
    """A trainer that reports its progress, if somebody watches it."""

    def __init__(
        self, inner: Trainer, measured_on: Judgements, report: ReportProgress | None, fits: Fits
    ) -> None:
        self.n, self.grid = inner.n, inner.grid
        self._inner, self._report = inner, report
        self._sample = None if report is None else progress_sample(measured_on)
        self._next, self._before, self._fits = 0.0, 0, fits

    def fit(self, parameter: float, start: Floats | None = None, _: Any = None) -> Minimum:
        """Fit with the wrapped trainer."""

        def progress(iteration: int, objective: float, distance: float, w: Floats) -> None:
            share = self._fits.share(distance)
            if self._report is None or self._sample is None or monotonic() < self._next:
                return
            ndcg = path.batch_quality(self._sample, w, "ndcg@10")
            at = self._before + iteration
            self._report(Progressed(parameter, at, objective, distance, ndcg, share))
            self._next = monotonic() + PROGRESS_SECONDS

        minimum = self._inner.fit(parameter, start, progress)
        self._before += minimum.iterations
        self._fits.ended()
        return minimum


# ---- the model ----


def online(found: BatchModel, config: ModelConfig) -> Model:
    """Convert to an online model: the same w, and for SOLAR-II the matching Σ.

    Judged data has no submitted order, so the weight of `_order` is 0.
    """
    w, judged = found.weights, found.judged
    after = covariance_after if config.covariance == "full" else variances_after
    return online_model(w, config, lambda: after(judged, w, config.gamma))


def online_model(w: Floats, config: ModelConfig, spread_of: Callable[[], Floats]) -> Model:
    """Convert weights to an online model; `spread_of` computes Σ, which only SOLAR-II has."""
    w = w.copy()
    if not (np.isfinite(w).all() and np.abs(w).max() <= LARGEST_WEIGHT):
        raise BadData("features: expected values for which float64 weights suffice; scale them")
    spread = np.zeros(0)
    if config.algorithm == "solar-ii":
        try:
            spread = spread_of()
        except ValueError as error:
            raise BadData(str(error)) from error
    if config.prior:
        w, spread = _with_order(w, spread, config)
    return Model(config, frozen(w), frozen(spread))


def _with_order(w: Floats, spread: Floats, config: ModelConfig) -> tuple[Floats, Floats]:
    """Add the feature `_order`: weight 0, independent of the others."""
    row = {"solar-i": 0, "solar-ii": 1 + (len(w) if config.covariance == "full" else 0)}
    last = np.zeros(row[config.algorithm])
    last[-1:] = 1.0
    return np.append(w, 0.0), np.append(spread, last)


def describe_training(found: BatchModel, training: Training, normalization: str) -> dict[str, Any]:
    """Describe a batch model as the result of a job."""
    judged = found.judged
    return describe_result(
        found.minimum, training, normalization, found.parameter, found.tried,
        queries=len(judged.starts) - 1, documents=len(judged.labels),
        ndcg=path.batch_quality(judged, found.weights, "ndcg@10"),
    )  # fmt: skip


def describe_result(
    minimum: Minimum,
    training: Training,
    normalization: str,
    parameter: float,
    tried: tuple[tuple[float, float], ...],
    *,
    queries: int,
    documents: int,
    ndcg: float,
) -> dict[str, Any]:
    """Describe the result of a solver as the result of a job."""
    named = training.parameter
    about: dict[str, Any] = {"trainer": training.trainer, named: parameter}
    if named == "C":
        about["loss"] = training.loss
    about |= {
        "normalization": normalization,
        "queries": queries,
        "documents": documents,
        "iterations": minimum.iterations,
        "objective": minimum.value,
        "distance": minimum.distance,
        "converged": minimum.converged,
        "zeros": float(np.mean(minimum.w == 0.0)),
        "ndcg@10": ndcg,
    }
    if tried:
        about["by"] = training.by
        about["tried"] = [{named: at, "quality": quality} for at, quality in tried]
    return about
