"""Prometheus metrics: other packages report facts, and this module counts them.

Gauges of a model are read from its committed state, so every process reports the same values.
Latencies and counters belong to a process. With several workers prometheus-client adds them up over
files in `PROMETHEUS_MULTIPROC_DIR`, which must be set before this module is imported.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from time import time
from typing import Any, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from app.domain.facts import (
    Committed,
    Deleted,
    LeaseLost,
    LogRolledBack,
    ModelStatus,
    Replaced,
    Served,
    Trained,
)
from app.domain.model import SUMS
from app.observability.metric_help import HELP
from app.observability.multiprocess import DIRECTORY
from app.observability.processes import Processes
from app.serving.weight_cache import ServedModel

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
IMPRESSIONS = ("remembered", "dropped")
EVENTS = ("accepted", "duplicates", "rejected", "over-share")
JOBS = ("done", "failed", "cancelled")
#: First words of a replacement's reason → label `kind`.
REPLACEMENTS = {"warm start": "warm-start", "rollback": "rollback", "without source": "replay"}
#: Metric → its deprecated name, reported for one more release with the same values and labels.
DEPRECATED_NAMES = {
    "solar_store_rollbacks": "solar_version_backwards",
    "solar_learner_interruptions": "solar_learner_stumbles",
    "solar_learner_fencing_token": "solar_learner_fence",
}


class StoreHealth(NamedTuple):
    """The store as this process sees it; `memory_share` is the used share of its memory limit."""

    reachable: bool
    memory_share: float


#: Counter → its labels.
_COUNTERS = {
    "solar_store_rollbacks": ("model",),
    "solar_impressions": ("outcome",),
    "solar_feedback_events": ("outcome",),
    "solar_learnt_records": ("model",),
    "solar_learner_interruptions": ("model",),
    "solar_jobs": ("model", "outcome"),
    "solar_degraded_answers": ("model",),
    "solar_replacements": ("model", "kind"),
}


class Metrics:
    """The metrics of a process."""

    def __init__(self, role: str = "worker", learner_metrics: str = "") -> None:
        """`learner_metrics` is the directory of a learner that does not share this process's."""
        self._several, self._learner_metrics = DIRECTORY in os.environ, learner_metrics
        self._processes = Processes(role, learner_metrics)
        self.registry = CollectorRegistry()
        self._requests = self._histogram("solar_request_seconds", "route", "status")
        self._served = self._histogram("solar_freshness_seconds", "model")
        self._commits = self._histogram("solar_commit_seconds", "model")
        counters = {name: self._counter(name, *labels) for name, labels in _COUNTERS.items()}
        self._rollbacks = counters["solar_store_rollbacks"]
        self._impressions = counters["solar_impressions"]
        self._events = counters["solar_feedback_events"]
        self._records = counters["solar_learnt_records"]
        self._interruptions = counters["solar_learner_interruptions"]
        self._jobs = counters["solar_jobs"]
        self._degraded = counters["solar_degraded_answers"]
        self._replacements = counters["solar_replacements"]
        self._children: dict[tuple[str, int], Any] = {}
        self._known: set[str] = set()
        for outcome in IMPRESSIONS:
            self._impressions.labels(outcome)
        for outcome in EVENTS:
            self._events.labels(outcome)

    def _histogram(self, name: str, *labels: str) -> Histogram:
        return Histogram(name, HELP[name], labels, buckets=SECONDS, registry=self.registry)

    def _counter(self, name: str, *labels: str) -> Counter:
        return Counter(name, HELP[name], labels, registry=self.registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        child = self._children.get((route, status))
        if child is None:
            child = self._requests.labels(route, str(status))
            self._children[route, status] = child
        child.observe(seconds)

    def impression(self, outcome: str, count: int = 1) -> None:
        """Count answers whose impression was stored, or was not."""
        self._impressions.labels(outcome).inc(count)

    def events(self, outcome: str, count: int) -> None:
        """Count events by what happened to them."""
        if count:
            self._events.labels(outcome).inc(count)

    def degraded(self, model: str) -> None:
        """Count an answer from memory while the store is unreachable."""
        self._degraded.labels(model).inc()

    def served(self, fact: Served | Deleted) -> None:
        """Count new weights that this process serves."""
        if isinstance(fact, Deleted):
            return
        self._begin(fact.model)
        if fact.backwards:
            self._rollbacks.labels(fact.model).inc()
        elif fact.appended:
            self._served.labels(fact.model).observe(max(0.0, time() - fact.appended / 1000))

    def _begin(self, model: str) -> None:
        """Start the counters of a model at 0: `increase()` ignores the first value of a series."""
        if model in self._known:
            return
        self._known.add(model)
        for counter in (self._rollbacks, self._degraded, self._records, self._interruptions):
            counter.labels(model)
        for outcome in JOBS:
            self._jobs.labels(model, outcome)
        for kind in (*REPLACEMENTS.values(), "other"):
            self._replacements.labels(model, kind)

    def learnt(self, fact: Committed | Replaced | LogRolledBack | LeaseLost | Deleted) -> None:
        """Count what a learner reports: a commit, a replacement, a rollback or a lost lease."""
        if isinstance(fact, Deleted):
            return
        self._begin(fact.model)
        if isinstance(fact, Committed):
            self._records.labels(fact.model).inc(fact.records)
            self._commits.labels(fact.model).observe(fact.seconds)
        elif isinstance(fact, Replaced):
            kinds = (kind for start, kind in REPLACEMENTS.items() if fact.reason.startswith(start))
            self._replacements.labels(fact.model, next(kinds, "other")).inc()
        elif isinstance(fact, LogRolledBack):
            self.rolled_back(fact)
        else:
            self._interruptions.labels(fact.model).inc()

    def rolled_back(self, fact: LogRolledBack) -> None:
        """Count a rollback of the store."""
        self._rollbacks.labels(fact.model).inc()

    def trained(self, fact: Trained) -> None:
        """Count a training job that ended."""
        self._jobs.labels(fact.model, fact.outcome).inc()

    def page(
        self,
        models: Iterable[ServedModel],
        statuses: Mapping[str, ModelStatus],
        server: StoreHealth,
    ) -> bytes:
        """All metrics as text; a model without a status has no gauges made from it."""
        counted: Any = self.registry
        if self._several or self._learner_metrics:
            own = () if self._several else self.registry.collect()
            counted = _Added(own, self._learner_metrics or None)
        state = _Models(list(models), statuses, server)
        registry = CollectorRegistry()
        registry.register(_WithDeprecatedNames(counted, state, self._processes))
        return generate_latest(registry)


class _WithDeprecatedNames:
    """The metrics of some collectors, those in `DEPRECATED_NAMES` under both names."""

    def __init__(self, *collectors: Any) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        """Each metric, and after it its copy with the deprecated name."""
        for family in chain.from_iterable(one.collect() for one in self._collectors):
            yield family
            if old := DEPRECATED_NAMES.get(family.name):
                new = f"{family.name}_total" if family.type == "counter" else family.name
                copy = Metric(old, f"Deprecated, use {new}. {family.documentation}", family.type)
                for sample in family.samples:
                    suffix = sample.name.removeprefix(family.name)
                    copy.add_sample(old + suffix, sample.labels, sample.value)
                yield copy


class _Added:
    """The sums of what this process and, in files, other processes have counted."""

    def __init__(self, own: Iterable[Metric], directory: str | None) -> None:
        self._own, self._files = own, MultiProcessCollector(None, directory)  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Metric]:
        """Each metric once."""
        families: dict[str, dict[tuple[Any, ...], float]] = {}
        about: dict[str, Metric] = {}
        for family in chain(self._own, self._files.collect()):  # type: ignore[no-untyped-call]
            about.setdefault(family.name, family)
            values = families.setdefault(family.name, {})
            for one in family.samples:
                key = (one.name, *sorted(one.labels.items()))
                values[key] = values.get(key, 0.0) + one.value
        for name, values in families.items():
            added = Metric(name, about[name].documentation, about[name].type)
            for (sample, *labels), value in values.items():
                added.add_sample(sample, dict(labels), value)
            yield added


class _Models:
    """The gauges made from committed states and from the store's health."""

    def __init__(
        self, models: list[ServedModel], statuses: Mapping[str, ModelStatus], server: StoreHealth
    ) -> None:
        self._models, self._statuses, self._server = models, statuses, server

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Each gauge with its value for every model."""
        up, memory = "solar_store_up", "solar_store_memory_share"
        yield GaugeMetricFamily(up, HELP[up], self._server.reachable)
        yield GaugeMetricFamily(memory, HELP[memory], self._server.memory_share)
        for side in ("online", "baseline", "explored"):
            yield from self._quality(side)
        for name, value in _GAUGES.items():
            family = _gauge(name, "model")
            for model in self._models:
                family.add_metric([model.name], value(model, _sums(model), self._statuses))
            yield family
        yield self._updates()
        yield from self._debiased()
        for name, status in _STATUSES.items():
            family = _gauge(name, "model")
            for model in self._models:
                if model.name in self._statuses:
                    family.add_metric([model.name], status(self._statuses[model.name]))
            yield family

    def _quality(self, side: str) -> Iterator[GaugeMetricFamily]:
        """NDCG at each k and MAP: the mean over all queries, and the sum for windows."""
        prefix = "" if side == "online" else f"{side}_"
        count = "explored_queries" if side == "explored" else "queries"
        ndcg = _gauge(f"solar_{side}_ndcg", "model", "k")
        total = _gauge(f"solar_{side}_ndcg_sum", "model", "k")
        mean = _gauge(f"solar_{side}_map", "model")
        whole = _gauge(f"solar_{side}_map_sum", "model")
        for model in self._models:
            sums = _sums(model)
            queries = max(1.0, sums[count])
            for k in ("1", "5", "10", "all"):
                value = sums[prefix + ("ndcg" if k == "all" else f"ndcg@{k}")]
                ndcg.add_metric([model.name, k], value / queries)
                total.add_metric([model.name, k], value)
            mean.add_metric([model.name], sums[f"{prefix}map"] / queries)
            whole.add_metric([model.name], sums[f"{prefix}map"])
        yield from (ndcg, total, mean, whole)

    def _debiased(self) -> Iterator[GaugeMetricFamily]:
        """Debiased pair wins: the share, and the sums for windows."""
        share = _gauge("solar_debiased_wins", "model", "order")
        total = _gauge("solar_debiased_wins_sum", "model", "order")
        weight = _gauge("solar_debiased_weight_sum", "model")
        for model in self._models:
            sums = _sums(model)
            whole = sums["debiased_weight"]
            for order, prefix in (("model", ""), ("submitted", "baseline_")):
                won = sums[f"{prefix}debiased_wins"]
                total.add_metric([model.name, order], won)
                if whole > 0.0:
                    share.add_metric([model.name, order], won / whole)
            weight.add_metric([model.name], whole)
        yield from (share, total, weight)

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


_Value = Callable[[ServedModel, dict[str, float], Mapping[str, ModelStatus]], float]
_GAUGES: dict[str, _Value] = {
    "solar_version": lambda m, _s, _t: m.version,
    "solar_lag_records": _lag,
    "solar_queries": lambda _m, s, _t: s["queries"],
    "solar_explored_queries": lambda _m, s, _t: s["explored_queries"],
    "solar_feedback": lambda _m, s, _t: s["feedback"],
    "solar_rejected_records": lambda _m, s, _t: s["rejected"],
    "solar_squared_hinge_loss": lambda _m, s, _t: s["squared_loss"],
    "solar_weight_norm": lambda m, _s, _t: float(np.linalg.norm(m.weights)),
    "solar_covariance_trace": lambda m, _s, _t: m.trace,
}
_STATUSES: dict[str, Callable[[ModelStatus], float]] = {
    "solar_learner_present": lambda s: s.leader > 0,
    "solar_learner_fencing_token": lambda s: s.terms,
    "solar_training": lambda s: s.trains,
}
