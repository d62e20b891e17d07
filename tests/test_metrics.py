"""What is told becomes what Prometheus reads, each series once."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.domain.facts import Committed, LeaseLost, ModelStatus, Replaced, Served, Trained
from app.domain.model import SUMS
from app.domain.model_config import ModelConfig
from app.observability.metrics import Metrics, StoreHealth
from app.serving.weight_cache import ServedModel

STANDINGS = ("solar_learner_present", "solar_learner_fence", "solar_training")
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def serving(name: str, *, version: float = 7, **sums: float) -> ServedModel:
    values = np.array([sums.get(one.replace("@", "_at_"), 0.0) for one in SUMS])
    weights = np.array([3.0, 4.0])
    return ServedModel(name, 1, int(version), ModelConfig(("a", "b")), weights, values, 1.5)


def read(page: bytes) -> Series:
    """All series by name and labels; each may be there once, and each family too."""
    families = list(text_string_to_metric_families(page.decode()))
    assert not [name for name, count in Counter(f.name for f in families).items() if count > 1]
    samples = [(one.name, frozenset(one.labels.items())) for f in families for one in f.samples]
    assert not [series for series, count in Counter(samples).items() if count > 1]
    values = [one.value for family in families for one in family.samples]
    return dict(zip(samples, values, strict=True))


def paged(metrics: Metrics, models: Sequence[ServedModel] = (), **tails: int) -> Series:
    standings = {name: ModelStatus(tail) for name, tail in tails.items()}
    return read(metrics.page(models, standings, StoreHealth(True, 0.25)))


def series(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Metrics:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    return Metrics()


def test_what_models_have_learnt_is_read_from_what_is_served(metrics: Metrics) -> None:
    learnt = {"stepped": 5.0, "passive": 2.0, "refused": 1.0, "squared_loss": 6.5}
    measured = {"queries": 4.0, "ndcg_at_10": 3.0, "ndcg": 3.5, "map": 2.0, "baseline_map": 1.0}
    model = serving("books", feedback=6.0, rejected=1.0, **learnt, **measured)
    found = paged(metrics, [model], books=10)
    of_books = {
        "solar_version": 7, "solar_lag_records": 3, "solar_queries": 4, "solar_feedback": 6,
        "solar_rejected_records": 1, "solar_squared_hinge_loss": 6.5, "solar_weight_norm": 5.0,
        "solar_covariance_trace": 1.5, "solar_online_map": 0.5, "solar_online_map_sum": 2.0,
        "solar_baseline_map": 0.25, "solar_baseline_map_sum": 1.0,
    }  # fmt: skip
    for name, value in of_books.items():
        assert found[series(name, model="books")] == value, name
    assert found[series("solar_online_ndcg", model="books", k="10")] == 0.75
    assert found[series("solar_online_ndcg_sum", model="books", k="10")] == 3.0
    assert found[series("solar_online_ndcg_sum", model="books", k="all")] == 3.5
    for kind in ("stepped", "passive", "refused"):
        assert found[series("solar_updates", model="books", kind=kind)] == learnt[kind]
    assert found[series("solar_store_memory_share")] == 0.25


def test_debiased_wins_are_shares_once_there_are_any(metrics: Metrics) -> None:
    judged = serving("a", debiased_weight=8.0, debiased_wins=6.0, baseline_debiased_wins=2.0)
    found = paged(metrics, [judged, serving("b")])
    assert found[series("solar_debiased_wins", model="a", order="model")] == 0.75
    assert found[series("solar_debiased_wins", model="a", order="submitted")] == 0.25
    assert found[series("solar_debiased_wins_sum", model="a", order="model")] == 6.0
    assert found[series("solar_debiased_weight_sum", model="a")] == 8.0
    assert series("solar_debiased_wins", model="b", order="model") not in found
    assert found[series("solar_debiased_weight_sum", model="b")] == 0.0


def test_every_model_has_every_gauge_once(metrics: Metrics) -> None:
    found = paged(metrics, [serving("a"), serving("b")])
    names = {
        model: sorted((name, sorted(labels - {("model", model)})) for name, labels in found
                      if ("model", model) in labels)
        for model in ("a", "b")
    }  # fmt: skip
    assert names["a"] == names["b"]
    assert len(names["a"]) == 3 * (2 * 4 + 2) + 9 + 3 + 3


def test_a_model_without_queries_has_measures_of_0_and_no_model_has_none(
    metrics: Metrics,
) -> None:
    found = paged(metrics, [serving("new", version=0)])
    assert found[series("solar_online_ndcg", model="new", k="1")] == 0.0
    assert found[series("solar_online_map", model="new")] == 0.0
    assert not [name for name, labels in paged(metrics) if "model" in dict(labels)]


def test_the_lag_is_never_negative_and_0_where_the_tail_is_unknown(metrics: Metrics) -> None:
    behind = paged(metrics, [serving("m", version=7)], m=3)
    assert behind[series("solar_lag_records", model="m")] == 0.0
    unknown = paged(metrics, [serving("m", version=7)])
    assert unknown[series("solar_lag_records", model="m")] == 0.0


def test_requests_are_counted_by_route_and_status(metrics: Metrics) -> None:
    for seconds in (0.002, 0.2, 0.004):
        metrics.request("/rank", 200, seconds)
    metrics.request("/rank", 422, 0.001)
    found = paged(metrics)
    fine = {"route": "/rank", "status": "200"}
    assert found[series("solar_request_seconds_count", **fine)] == 3
    assert found[series("solar_request_seconds_sum", **fine)] == pytest.approx(0.206)
    assert found[series("solar_request_seconds_bucket", **fine, le="0.005")] == 2
    assert found[series("solar_request_seconds_bucket", **fine, le="+Inf")] == 3
    refused = {"route": "/rank", "status": "422"}
    assert found[series("solar_request_seconds_count", **refused)] == 1


def test_facts_are_counted(metrics: Metrics) -> None:
    metrics.impression("remembered")
    metrics.impression("dropped", 2)
    metrics.events("accepted", 3)
    metrics.events("rejected", 0)
    metrics.learnt(Committed("m", 5, 0.01))
    metrics.learnt(LeaseLost("m"))
    metrics.served(Served("m", 1, backwards=True))
    metrics.served(Served("m", 0, backwards=False))  # a new model: nothing was appended
    found = paged(metrics)
    assert found[series("solar_impressions_total", outcome="remembered")] == 1
    assert found[series("solar_impressions_total", outcome="dropped")] == 2
    assert found[series("solar_feedback_events_total", outcome="accepted")] == 3
    assert found[series("solar_feedback_events_total", outcome="rejected")] == 0
    assert found[series("solar_learnt_records_total", model="m")] == 5
    assert found[series("solar_commit_seconds_count", model="m")] == 1
    assert found[series("solar_learner_stumbles_total", model="m")] == 1
    assert found[series("solar_version_backwards_total", model="m")] == 1
    assert series("solar_freshness_seconds_count", model="m") not in found


def test_counters_of_a_model_begin_at_0_so_that_the_first_failure_is_a_rise(
    metrics: Metrics,
) -> None:
    metrics.served(Served("m", 0, backwards=False))
    before = paged(metrics)
    metrics.trained(Trained("m", "failed"))
    metrics.degraded("m")
    metrics.learnt(Replaced("m", "rollback to version 3"))
    metrics.learnt(LeaseLost("m"))
    metrics.served(Served("m", 0, backwards=True))
    after = paged(metrics)
    risen = [
        series("solar_jobs_total", model="m", outcome="failed"),
        series("solar_degraded_answers_total", model="m"),
        series("solar_replacements_total", model="m", kind="rollback"),
        series("solar_learner_stumbles_total", model="m"),
        series("solar_version_backwards_total", model="m"),
    ]
    assert [(before[one], after[one]) for one in risen] == [(0, 1)] * len(risen)
    counters = {
        one: value
        for one, value in before.items()
        if one[0].startswith("solar_") and one[0].endswith("_total")
    }
    assert set(counters.values()) == {0}


def test_replacements_are_counted_by_kind_whatever_their_reason_says(metrics: Metrics) -> None:
    for reason in ("warm start", "without source robots", "rollback to version 7", "who knows"):
        metrics.learnt(Replaced("m", reason))
    found = paged(metrics)
    for kind in ("warm-start", "replay", "rollback", "other"):
        assert found[series("solar_replacements_total", model="m", kind=kind)] == 1


def test_how_a_model_stands_is_told_only_where_the_store_tells_it(metrics: Metrics) -> None:
    models = [serving("led"), serving("alone"), serving("unknown")]
    standings = {
        "led": ModelStatus(9, leader=4, terms=4, trains=True),
        "alone": ModelStatus(9, terms=6),
    }
    found = read(metrics.page(models, standings, StoreHealth(True, 0.0)))
    told = {"led": (1, 4, 1), "alone": (0, 6, 0)}
    for name, values in told.items():
        for metric, value in zip(STANDINGS, values, strict=True):
            assert found[series(metric, model=name)] == value
    assert not [one for one in STANDINGS if series(one, model="unknown") in found]


@pytest.mark.parametrize("reachable", [True, False])
def test_whether_the_store_is_there_is_told(metrics: Metrics, reachable: bool) -> None:
    found = read(metrics.page([], {}, StoreHealth(reachable, 0.5)))
    assert found[series("solar_store_up")] == reachable
    assert found[series("solar_store_memory_share")] == 0.5


def test_freshness_is_the_time_from_the_append_to_being_served(metrics: Metrics) -> None:
    metrics.served(Served("m", 1, backwards=False))  # appended a moment after 1970
    metrics.served(Served("m", 1 << 50, backwards=False))  # by a clock that is far ahead
    found = paged(metrics)
    assert found[series("solar_freshness_seconds_count", model="m")] == 2
    assert found[series("solar_freshness_seconds_bucket", model="m", le="0.001")] == 1
    assert found[series("solar_freshness_seconds_sum", model="m")] > 1.7e9
