"""Prometheus metrics. Other packages report small facts; only this module counts them.

What a model has learnt and measured lives in its committed state, so those gauges are read from
there by a collector of their own and are the same whichever process is asked. Latencies and counts
belong to processes; with several workers prometheus-client adds them up over files
(`PROMETHEUS_MULTIPROC_DIR`, set before this module is imported).
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
    LeaseLost,
    LogRolledBack,
    ModelStatus,
    Replaced,
    Served,
    Trained,
)
from app.domain.model import SUMS
from app.observability.multiprocess import DIRECTORY
from app.observability.processes import Processes
from app.serving.weight_cache import ServedModel

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
IMPRESSIONS = ("remembered", "dropped")
EVENTS = ("accepted", "duplicates", "rejected", "over-share")
JOBS = ("done", "failed", "cancelled")
#: How the reason of a replacement begins → its kind.
REPLACEMENTS = {"warm start": "warm-start", "rollback": "rollback", "without source": "replay"}


class StoreHealth(NamedTuple):
    """How the store's server is, seen from here: whether it answers, and how full it is."""

    reachable: bool
    memory_share: float


#: Name → what it counts, and its labels.
_COUNTERS = {
    "version_backwards": ("How often a model's version went back (a failover).", "model"),
    "impressions": ("Answers of /rank, by whether they were remembered.", "outcome"),
    "feedback_events": ("Events of /feedback, by what became of them.", "outcome"),
    "learnt_records": ("Records that this process has learnt and committed.", "model"),
    "learner_stumbles": ("How often a learner lost its lease or its store.", "model"),
    "jobs": ("Trainings that ended, by whether they were done.", "model", "outcome"),
    "degraded_answers": ("Answers of /rank from memory, with the store gone.", "model"),
    "replacements": ("Replacements of a model that were learnt, by kind.", "model", "kind"),
}


class Metrics:
    """What a process counts."""

    def __init__(self, role: str = "worker", learner_metrics: str = "") -> None:
        """`learner_metrics` is the directory of a learner that shares no directory with us."""
        self._several, self._learner_metrics = DIRECTORY in os.environ, learner_metrics
        self._processes = Processes(role, learner_metrics)
        self.registry = CollectorRegistry()
        self._requests = self._histogram(
            "request_seconds", "How long requests took.", "route", "status"
        )
        self._served = self._histogram(
            "freshness_seconds", "From a record's append to its weights being served.", "model"
        )
        self._commits = self._histogram(
            "commit_seconds", "How long the learner's commits took.", "model"
        )
        counters = {name: self._counter(name, *about) for name, about in _COUNTERS.items()}
        self._backwards, self._records = counters["version_backwards"], counters["learnt_records"]
        self._impressions, self._events = counters["impressions"], counters["feedback_events"]
        self._stumbles, self._jobs = counters["learner_stumbles"], counters["jobs"]
        self._degraded, self._replacements = counters["degraded_answers"], counters["replacements"]
        self._children: dict[tuple[str, int], Any] = {}
        self._known: set[str] = set()
        for outcome in IMPRESSIONS:
            self._impressions.labels(outcome)
        for outcome in EVENTS:
            self._events.labels(outcome)

    def _histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        return Histogram(f"solar_{name}", meaning, labels, buckets=SECONDS, registry=self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"solar_{name}", meaning, labels, registry=self.registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        child = self._children.get((route, status))
        if child is None:
            child = self._requests.labels(route, str(status))
            self._children[route, status] = child
        child.observe(seconds)

    def impression(self, outcome: str, count: int = 1) -> None:
        """Answers were remembered, or not."""
        self._impressions.labels(outcome).inc(count)

    def events(self, outcome: str, count: int) -> None:
        """Events were accepted, repeated or refused."""
        if count:
            self._events.labels(outcome).inc(count)

    def degraded(self, model: str) -> None:
        """An answer came from memory, as the store is gone."""
        self._degraded.labels(model).inc()

    def served(self, fact: Served) -> None:
        """New weights are served."""
        self._begin(fact.model)
        if fact.backwards:
            self._backwards.labels(fact.model).inc()
        elif fact.appended:
            self._served.labels(fact.model).observe(max(0.0, time() - fact.appended / 1000))

    def _begin(self, model: str) -> None:
        """Counters of a model begin at 0: a series that begins at 1 has not risen."""
        if model in self._known:
            return
        self._known.add(model)
        for counter in (self._backwards, self._degraded, self._records, self._stumbles):
            counter.labels(model)
        for outcome in JOBS:
            self._jobs.labels(model, outcome)
        for kind in (*REPLACEMENTS.values(), "other"):
            self._replacements.labels(model, kind)

    def learnt(self, fact: Committed | Replaced | LogRolledBack | LeaseLost) -> None:
        """A learner committed, came upon a replacement or a rolled back log, or lost its lease."""
        self._begin(fact.model)
        if isinstance(fact, Committed):
            self._records.labels(fact.model).inc(fact.records)
            self._commits.labels(fact.model).observe(fact.seconds)
        elif isinstance(fact, Replaced):
            kinds = (kind for said, kind in REPLACEMENTS.items() if fact.reason.startswith(said))
            self._replacements.labels(fact.model, next(kinds, "other")).inc()
        elif isinstance(fact, LogRolledBack):
            self.rolled_back(fact)
        else:
            self._stumbles.labels(fact.model).inc()

    def rolled_back(self, fact: LogRolledBack) -> None:
        """The store went back."""
        self._backwards.labels(fact.model).inc()

    def trained(self, fact: Trained) -> None:
        """A job has ended."""
        self._jobs.labels(fact.model, fact.outcome).inc()

    def page(
        self,
        models: Iterable[ServedModel],
        statuses: Mapping[str, ModelStatus],
        server: StoreHealth,
    ) -> bytes:
        """All metrics as text; a model's status is left out where the store cannot tell it."""
        registry = self.registry
        if self._several or self._learner_metrics:
            registry = CollectorRegistry()
            own = () if self._several else self.registry.collect()
            registry.register(_Added(own, self._learner_metrics or None))
        shared = CollectorRegistry()
        shared.register(_Models(list(models), statuses, server))
        shared.register(self._processes)
        return generate_latest(registry) + generate_latest(shared)


class _Added:
    """What this process counts and what others count in files, added up."""

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
    """The gauges that come from committed states."""

    def __init__(
        self, models: list[ServedModel], statuses: Mapping[str, ModelStatus], server: StoreHealth
    ) -> None:
        self._models, self._statuses, self._server = models, statuses, server

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Each gauge with its value for every model."""
        yield GaugeMetricFamily(
            "solar_store_up", "Whether the store can be reached from here.", self._server.reachable
        )
        yield GaugeMetricFamily(
            "solar_store_memory_share", "Used share of the store's memory limit.",
            self._server.memory_share,
        )  # fmt: skip
        for side in ("online", "baseline", "explored"):
            yield from self._quality(side)
        for name, (meaning, value) in _GAUGES.items():
            family = GaugeMetricFamily(name, meaning, labels=["model"])
            for model in self._models:
                family.add_metric([model.name], value(model, _sums(model), self._statuses))
            yield family
        yield self._updates()
        yield from self._debiased()
        for name, (meaning, status) in _STATUSES.items():
            family = GaugeMetricFamily(name, meaning, labels=["model"])
            for model in self._models:
                if model.name in self._statuses:
                    family.add_metric([model.name], status(self._statuses[model.name]))
            yield family

    def _quality(self, side: str) -> Iterator[GaugeMetricFamily]:
        """NDCG at each k and MAP: the mean over all queries, and the sum for windows."""
        prefix = "" if side == "online" else f"{side}_"
        count = "explored_queries" if side == "explored" else "queries"
        ndcg = GaugeMetricFamily(f"solar_{side}_ndcg", "Mean NDCG.", labels=["model", "k"])
        total = GaugeMetricFamily(f"solar_{side}_ndcg_sum", "Sum of NDCG.", labels=["model", "k"])
        mean = GaugeMetricFamily(f"solar_{side}_map", "Mean average precision.", labels=["model"])
        whole = GaugeMetricFamily(f"solar_{side}_map_sum", "Sum of it.", labels=["model"])
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
        """What judges: pairs of clicks on drawn lists, by how much each says."""
        labels = ["model", "order"]
        share = GaugeMetricFamily("solar_debiased_wins", "Share of debiased wins.", labels=labels)
        total = GaugeMetricFamily("solar_debiased_wins_sum", "Sum of them.", labels=labels)
        weight = GaugeMetricFamily("solar_debiased_weight_sum", "Of all pairs.", labels=["model"])
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
        family = GaugeMetricFamily(
            "solar_updates", "Pairs learnt from, by what they did.", labels=["model", "kind"]
        )
        for model in self._models:
            sums = _sums(model)
            for kind in ("stepped", "passive", "refused"):
                family.add_metric([model.name, kind], sums[kind])
        return family


def _sums(model: ServedModel) -> dict[str, float]:
    return dict(zip(SUMS, model.sums.tolist(), strict=True))


def _lag(model: ServedModel, _: Any, statuses: Mapping[str, ModelStatus]) -> float:
    status = statuses.get(model.name)
    return float(max(0, status.tail - model.version)) if status else 0.0


_Value = Callable[[ServedModel, dict[str, float], Mapping[str, ModelStatus]], float]
_GAUGES: dict[str, tuple[str, _Value]] = {
    "solar_version": ("Last record in the weights served.", lambda m, _s, _t: m.version),
    "solar_lag_records": ("Records that wait to be learnt.", _lag),
    "solar_queries": ("Queries that count.", lambda _m, s, _t: s["queries"]),
    "solar_explored_queries": (
        "Of these, lists that were varied.",
        lambda _m, s, _t: s["explored_queries"],
    ),
    "solar_feedback": ("Feedback records learnt.", lambda _m, s, _t: s["feedback"]),
    "solar_rejected_records": ("Records that did not fit.", lambda _m, s, _t: s["rejected"]),
    "solar_squared_hinge_loss": ("Sum over all pairs.", lambda _m, s, _t: s["squared_loss"]),
    "solar_weight_norm": ("‖w‖.", lambda m, _s, _t: float(np.linalg.norm(m.weights))),
    "solar_covariance_trace": ("Trace of Σ.", lambda m, _s, _t: m.trace),
}
_STATUSES: dict[str, tuple[str, Callable[[ModelStatus], float]]] = {
    "solar_learner_present": ("Whether a learner holds the lease.", lambda s: s.leader > 0),
    "solar_learner_fence": ("Learners so far; a take-over adds one.", lambda s: s.terms),
    "solar_training": ("Whether a job trains the model.", lambda s: s.trains),
}
