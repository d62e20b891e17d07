"""Prometheus metrics: other packages report facts, and this module counts them.

Gauges of a model are read from its committed state, so every process reports the same values.
Latencies and counters belong to a process. With several workers prometheus-client adds them up over
files in `PROMETHEUS_MULTIPROC_DIR`, which must be set before this module is imported; `model_table`
does the same for the counts of models.
"""

import os
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from time import time
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from app.domain.candidates import Ranking, exploration_loss
from app.domain.facts import (
    Committed,
    Deleted,
    LeaseLost,
    LogRolledBack,
    ModelStatus,
    NewerFormatFound,
    PointDropped,
    Replaced,
    ServingFact,
    TraceHalved,
    Trained,
)
from app.domain.model import Positions
from app.domain.records import REPLACEMENTS
from app.observability.follower_metrics import Follower
from app.observability.metric_help import HELP
from app.observability.model_metrics import (
    JOBS,
    ModelMetrics,
    ModelTotals,
    StoreHealth,
)
from app.observability.model_table import (
    COLUMNS,
    HISTOGRAM,
    LOSS_EVERY,
    SECONDS,
    Column,
    ModelTable,
)
from app.observability.multiprocess import DIRECTORY, remove_ended_gauges
from app.observability.processes import Processes
from app.ranking.arrays import Floats
from app.serving.served_model import ServedModel
from app.storage.keys import is_follower

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
IMPRESSIONS = ("remembered", "dropped")
BEACONS = (
    "accepted", "duplicate", "expired", "forged", "invalid", "over-limit", "over-rate",
    "over-share", "refused", "too-large", "unknown",
)  # fmt: skip
EVENTS = ("accepted", "duplicates", "rejected", "over-share")
#: Models with metrics of their own: those with most requests, and as many of each kind of trouble.
MOST_MODELS = 200
#: Deleted models whose late facts are ignored.
MOST_DELETED = 1000
#: Metric → its deprecated name, reported for one more release with the same values and labels.
DEPRECATED_NAMES = {
    "solar_store_rollbacks": "solar_version_backwards",
    "solar_learner_interruptions": "solar_learner_stumbles",
    "solar_learner_fencing_token": "solar_learner_fence",
    **{f"{name}_summed": f"{name}_sum" for name in (
        "solar_online_ndcg", "solar_online_map", "solar_baseline_ndcg", "solar_baseline_map",
        "solar_explored_ndcg", "solar_explored_map", "solar_debiased_wins", "solar_debiased_weight",
    )},
}  # fmt: skip


class Metrics:
    """The metrics of a process."""

    def __init__(self, role: str = "worker", learner_metrics: str = "") -> None:
        """`learner_metrics` is the directory of a learner that does not share this process's."""
        directory = os.environ.get(DIRECTORY, "")
        self._several, self._learner_metrics = bool(directory), learner_metrics
        self._processes = Processes(role, learner_metrics)
        self.registry = CollectorRegistry()
        self._requests = Histogram(
            "solar_request_seconds", HELP["solar_request_seconds"], ("route", "status"),
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        impressions = self._counter("solar_impressions", "outcome")
        self._impressions = {outcome: impressions.labels(outcome) for outcome in IMPRESSIONS}
        self._events = self._counter("solar_feedback_events", "outcome")
        self._clicked = self._counter("solar_clicked_lists", "outcome")
        self._beacons = self._counter("solar_beacon_events", "outcome")
        self._streams = Gauge(
            "solar_streams", HELP["solar_streams"], registry=self.registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self._children: dict[tuple[str, int], Any] = {}
        self._table, self._shared = ModelTable(directory), learner_metrics or directory
        self._rows: dict[str, Floats] = {}
        self._deleted: dict[str, None] = {}  # the latest last
        for outcome in EVENTS:
            self._events.labels(outcome)
        for outcome in ("kept", "dropped"):
            self._clicked.labels(outcome)
        for outcome in BEACONS:
            self._beacons.labels(outcome)

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
        self._impressions[outcome].inc(count)

    def streams(self, count: int) -> None:
        """Note the number of open streams of this process."""
        self._streams.set(count)

    def events(self, outcome: str, count: int) -> None:
        """Count events by what happened to them."""
        if count:
            self._events.labels(outcome).inc(count)

    def clicked_list(self, kept: bool) -> None:
        """Count a list with its first click: it is remembered longer, or there is no room."""
        self._clicked.labels("kept" if kept else "dropped").inc()

    def beacon_events(self, counts: Mapping[str, int]) -> None:
        """Count events of `/beacon` by what happened to them."""
        for outcome, count in counts.items():
            self._beacons.labels(outcome).inc(count)

    def _row(self, model: str) -> Floats:
        """Return the counts of a model; they start at 0: `increase()` ignores a first value.

        For a deleted model they are lost: an answer or a job may end after the deletion, and a new
        model of this name must not begin with its counts.
        """
        row = self._rows.get(model)
        if row is None and model in self._deleted:
            return np.zeros(COLUMNS)
        if row is None:
            row = self._rows[model] = self._table.row(model)
        return row

    def used(self, model: str) -> None:
        """Count a request for a model: the models with most requests have metrics."""
        self._row(model)[Column.REQUESTS] += 1.0

    def explored(self, model: str, ranking: Ranking, pinned: Positions) -> None:
        """Count a randomised ranking; of the first and of every 16th after it, what it may lose."""
        row = self._row(model)
        if row[Column.EXPLORED] % LOSS_EVERY == 0.0:
            row[Column.LOSS] += exploration_loss(ranking, pinned)
            row[Column.LOSS_RANKINGS] += 1.0
        row[Column.EXPLORED] += 1.0

    def degraded(self, model: str) -> None:
        """Count an answer from memory while the store is unreachable."""
        self._row(model)[Column.DEGRADED] += 1.0

    def served(self, fact: ServingFact) -> None:
        """Count new weights that this process serves, or cannot read; not those of followers."""
        if is_follower(fact.model):
            return
        if isinstance(fact, Deleted):
            self._forget(fact.model)
            return
        if isinstance(fact, NewerFormatFound):
            self._row(fact.model)[Column.NEWER_FORMATS] += 1.0
            return
        self._deleted.pop(fact.model, None)
        row = self._row(fact.model)
        if fact.backwards:
            row[Column.ROLLBACKS] += 1.0
        elif fact.appended:
            seconds = max(0.0, time() - fact.appended / 1000)
            _observe(row, Column.FRESHNESS, seconds)

    def _forget(self, model: str) -> None:
        """Drop the counts of a deleted model."""
        self._rows.pop(model, None)
        self._table.remove(model)
        self._deleted[model] = None
        if len(self._deleted) > MOST_DELETED:
            del self._deleted[next(iter(self._deleted))]

    def learnt(
        self,
        fact: (
            Committed
            | Replaced
            | TraceHalved
            | PointDropped
            | LogRolledBack
            | LeaseLost
            | NewerFormatFound
            | Deleted
        ),
    ) -> None:
        """Count what a learner reports: a commit, a replacement, or why it stopped.

        Followers have no counts of their own: their metrics come from committed states alone.
        """
        if is_follower(fact.model):
            return
        if isinstance(fact, Deleted):
            self._forget(fact.model)
            return
        self._deleted.pop(fact.model, None)  # the learner of a deleted model has ended
        row = self._row(fact.model)
        if isinstance(fact, Committed):
            row[Column.RECORDS] += fact.records
            _observe(row, Column.COMMITS, fact.seconds)
        elif isinstance(fact, Replaced):
            starts = [fact.reason.startswith(start) for start in REPLACEMENTS]
            row[Column.REPLACEMENTS + starts.index(True)] += 1.0
        elif isinstance(fact, TraceHalved):
            row[Column.TRACE_HALVED] += 1.0
        elif isinstance(fact, PointDropped):
            row[Column.POINTS_DROPPED] += 1.0
        elif isinstance(fact, LogRolledBack):
            self.rolled_back(fact)
        elif isinstance(fact, NewerFormatFound):
            row[Column.NEWER_FORMATS] += 1.0
        else:
            row[Column.INTERRUPTIONS] += 1.0

    def rolled_back(self, fact: LogRolledBack) -> None:
        """Count a rollback of the store."""
        self._row(fact.model)[Column.ROLLBACKS] += 1.0

    def trained(self, fact: Trained) -> None:
        """Count a training job that ended."""
        self._row(fact.model)[Column.JOBS + JOBS.index(fact.outcome)] += 1.0

    def choose(
        self,
        known: Collection[str],
        damaged: Collection[str],
        lags: Mapping[str, int],
        duels: Collection[str] = (),
    ) -> dict[str, Floats]:
        """Choose the models that have metrics of their own; return the counts of each.

        These are the models with most requests, and those that are damaged, lag, duel, were rolled
        back, have a failed training job, data of a newer format or a halved trace.
        """
        counts, nothing = self._table.counts(self._shared), np.zeros(COLUMNS)
        if len(known) <= MOST_MODELS:
            chosen = set(known)
        else:
            failed = Column.JOBS + JOBS.index("failed")
            troubles = (Column.ROLLBACKS, Column.NEWER_FORMATS, Column.TRACE_HALVED, failed)
            rows = {name: counts.get(name, nothing) for name in known}
            chosen = set(_most({name: row[Column.REQUESTS] for name, row in rows.items()}))
            named = (*sorted(damaged)[:MOST_MODELS], *sorted(duels)[:MOST_MODELS], *_most(lags))
            chosen |= {*named} & set(known)
            for column in troubles:
                chosen.update(_most({n: r[column] for n, r in rows.items() if r[column]}))
        return {name: counts.get(name, nothing) for name in sorted(chosen)}

    def page(
        self,
        models: Iterable[ServedModel],
        statuses: Mapping[str, ModelStatus],
        server: StoreHealth,
        totals: ModelTotals | None = None,
        counts: Mapping[str, Floats] | None = None,
        followers: Sequence[Follower] = (),
    ) -> bytes:
        """All metrics as text; a model without a status has no gauges made from it.

        `counts` are the models that `choose` has chosen; without it, all models that were counted.
        """
        counted: Any = self.registry
        if self._several or self._learner_metrics:
            remove_ended_gauges(self._shared)
            own = () if self._several else self.registry.collect()
            counted = _Added(own, self._learner_metrics or None)
        shown = self._table.counts(self._shared) if counts is None else counts
        state = ModelMetrics(
            list(models), statuses, server, totals or ModelTotals(), shown, followers
        )
        registry = CollectorRegistry()
        registry.register(_WithDeprecatedNames(counted, state, self._processes))
        return generate_latest(registry)


def _observe(row: Floats, first: int, seconds: float) -> None:
    """Count a value in the histogram that starts at a column."""
    row[first + bisect_left(SECONDS, seconds)] += 1.0
    row[first + HISTOGRAM - 1] += seconds


def _most(values: Mapping[str, float]) -> list[str]:
    """Return the models with the greatest values."""
    return sorted(values, key=lambda name: (-values[name], name))[:MOST_MODELS]


class _WithDeprecatedNames:
    """The metrics of some collectors, those in `DEPRECATED_NAMES` under both names."""

    def __init__(self, *collectors: Any) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        """Each metric, and after it its copy with the deprecated name."""
        for family in chain.from_iterable(one.collect() for one in self._collectors):
            yield family
            if old := DEPRECATED_NAMES.get(family.name):
                yield _renamed(family, old)


def _renamed(family: Metric, old: str) -> Metric:
    """Copy a metric under its deprecated name; a gauge must not end with _sum, so it is untyped."""
    new = f"{family.name}_total" if family.type == "counter" else family.name
    kind = "unknown" if old.endswith("_sum") else family.type
    copy = Metric(old, f"Deprecated, use {new}. {family.documentation}", kind)
    for sample in family.samples:
        suffix = sample.name.removeprefix(family.name)
        copy.add_sample(old + suffix, sample.labels, sample.value)
    return copy


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
