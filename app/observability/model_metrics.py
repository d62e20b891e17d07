"""The metrics of models and of the store, made from committed states and from counts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from app.domain.facts import ModelStatus
from app.domain.model import SUMS
from app.observability.duel_metrics import duel_metrics
from app.observability.follower_metrics import Follower, follower_metrics
from app.observability.metric_help import HELP
from app.observability.model_table import SECONDS, Column
from app.observability.quality_metrics import quality_metrics
from app.ranking.arrays import Floats
from app.serving.served_model import ServedModel

JOBS = ("done", "failed", "cancelled")
#: Labels of the kinds of replacements, in the order of `app.domain.records.REPLACEMENTS`.
PROMOTION = "promotion"
REPLACEMENT_KINDS = ("warm-start", "rollback", "replay", PROMOTION, "other")


class StoreHealth(NamedTuple):
    """The store as this process sees it; `memory_share` is the used share of its memory limit."""

    reachable: bool
    memory_share: float


class ModelTotals(NamedTuple):
    """Figures over all models, also over those without metrics of their own."""

    models: int = 0
    damaged: int = 0
    backlog: int = 0
    largest_backlog: int = 0
    learners: int | None = None  # None: unknown
    lag_seconds: Mapping[str, float] = MappingProxyType({})  # of models with records that wait


class ModelMetrics:
    """The metrics made from committed states, from counts and from the store's health."""

    def __init__(
        self,
        models: list[ServedModel],
        statuses: Mapping[str, ModelStatus],
        server: StoreHealth,
        totals: ModelTotals,
        counts: Mapping[str, Floats],
        followers: Sequence[Follower] = (),
    ) -> None:
        self._models, self._statuses, self._server = models, statuses, server
        self._totals, self._counts, self._followers = totals, counts, followers

    def collect(self) -> Iterator[Metric]:
        """Each metric with its value for every model."""
        yield from self._whole()
        yield from quality_metrics(self._models)
        yield from duel_metrics(self._models)
        yield from follower_metrics(self._followers)
        for name, value in _GAUGES.items():
            family = _gauge(name, "model")
            for model in self._models:
                found = value(model, _sums(model), self._statuses)
                if found is not None:
                    family.add_metric([model.name], found)
            yield family
        yield self._lag_seconds()
        yield self._updates()
        for name, status in _STATUSES.items():
            family = _gauge(name, "model")
            for model in self._models:
                if model.name in self._statuses:
                    family.add_metric([model.name], status(self._statuses[model.name]))
            yield family
        yield from self._counters()
        yield from self._histograms()

    def _whole(self) -> Iterator[GaugeMetricFamily]:
        """The store, and figures over all models."""
        for name, value in {
            "solar_store_up": self._server.reachable,
            "solar_store_memory_share": self._server.memory_share,
            "solar_models": self._totals.models,
            "solar_models_damaged": self._totals.damaged,
            "solar_backlog_records": self._totals.backlog,
            "solar_backlog_records_max": self._totals.largest_backlog,
            "solar_lag_seconds_max": max(self._totals.lag_seconds.values(), default=0.0),
            "solar_learners": self._totals.learners,
        }.items():
            if value is not None:
                yield GaugeMetricFamily(name, HELP[name], value)

    def _counters(self) -> Iterator[CounterMetricFamily]:
        """Each counter; promotions start at 0 once a model has a duel, which comes before them."""
        duels = {model.name for model in self._models if model.duel is not None}
        for name, column in _COUNTERS.items():
            family = CounterMetricFamily(name, HELP[name], labels=["model"])
            for model, row in self._counts.items():
                family.add_metric([model], row[column])
            yield family
        for name, first, label, values in _LABELLED:
            family = CounterMetricFamily(name, HELP[name], labels=["model", label])
            for model, row in self._counts.items():
                for at, value in enumerate(values):
                    if value != PROMOTION or row[first + at] or model in duels:
                        family.add_metric([model, value], row[first + at])
            yield family

    def _histograms(self) -> Iterator[HistogramMetricFamily]:
        """Each histogram; absent for a model without a value."""
        bounds = [*map(str, SECONDS), "+Inf"]
        for name, first in _HISTOGRAMS.items():
            family = HistogramMetricFamily(name, HELP[name], labels=["model"])
            for model, row in self._counts.items():
                buckets = np.cumsum(row[first : first + len(bounds)]).tolist()
                if buckets[-1]:
                    total = row[first + len(bounds)]
                    family.add_metric([model], [*zip(bounds, buckets, strict=True)], total)
            yield family

    def _lag_seconds(self) -> GaugeMetricFamily:
        family = _gauge("solar_lag_seconds", "model")
        for model in self._models:
            family.add_metric([model.name], self._totals.lag_seconds.get(model.name, 0.0))
        return family

    def _updates(self) -> GaugeMetricFamily:
        family = _gauge("solar_updates", "model", "kind")
        for model in self._models:
            sums = _sums(model)
            for kind in ("stepped", "passive", "refused"):
                family.add_metric([model.name, kind], sums[kind])
        return family


def _gauge(name: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, HELP[name], labels=labels)


def _sums(model: ServedModel) -> dict[str, float]:
    return dict(zip(SUMS, model.sums.tolist(), strict=True))


def _lag(model: ServedModel, _: Any, statuses: Mapping[str, ModelStatus]) -> float:
    status = statuses.get(model.name)
    return float(max(0, status.tail - model.version)) if status else 0.0


def _explored_share(_: Any, sums: dict[str, float], __: Any) -> float | None:
    return sums["explored_queries"] / sums["queries"] if sums["queries"] else None


def _drift(model: ServedModel, sums: dict[str, float], _: Any) -> float | None:
    return None if model.config.exploration is None else sums["drift"]


#: A gauge of a model; None: absent.
_Value = Callable[[ServedModel, dict[str, float], Mapping[str, ModelStatus]], float | None]
_GAUGES: dict[str, _Value] = {
    "solar_version": lambda m, _s, _t: m.version,
    "solar_lag_records": _lag,
    "solar_queries": lambda _m, s, _t: s["queries"],
    "solar_explored_queries": lambda _m, s, _t: s["explored_queries"],
    "solar_explored_share": _explored_share,
    "solar_exploration": lambda m, _s, _t: m.config.exploration,
    "solar_drift": _drift,
    "solar_feedback": lambda _m, s, _t: s["feedback"],
    "solar_rejected_records": lambda _m, s, _t: s["rejected"],
    "solar_bounded_pairs": lambda _m, s, _t: s["bounded"],
    "solar_squared_hinge_loss": lambda _m, s, _t: s["squared_loss"],
    "solar_weight_norm": lambda m, _s, _t: float(np.linalg.norm(m.weights)),
    "solar_covariance_trace": lambda m, _s, _t: m.trace,
}
_STATUSES: dict[str, Callable[[ModelStatus], float]] = {
    "solar_learner_present": lambda s: s.leader > 0,
    "solar_learner_fencing_token": lambda s: s.terms,
    "solar_training": lambda s: s.trains,
    "solar_backlog_work": lambda s: s.waiting_work,
}
_COUNTERS = {
    "solar_store_rollbacks": Column.ROLLBACKS,
    "solar_degraded_answers": Column.DEGRADED,
    "solar_learnt_records": Column.RECORDS,
    "solar_learner_interruptions": Column.INTERRUPTIONS,
    "solar_newer_format": Column.NEWER_FORMATS,
    "solar_trace_halved": Column.TRACE_HALVED,
    "solar_history_points_dropped": Column.POINTS_DROPPED,
    "solar_exploration_loss": Column.LOSS,
    "solar_exploration_loss_rankings": Column.LOSS_RANKINGS,
}
#: Counters with one more label: first column, label, values.
_LABELLED = (
    ("solar_jobs", Column.JOBS, "outcome", JOBS),
    ("solar_replacements", Column.REPLACEMENTS, "kind", REPLACEMENT_KINDS),
)
_HISTOGRAMS = {
    "solar_freshness_seconds": Column.FRESHNESS,
    "solar_commit_seconds": Column.COMMITS,
}
