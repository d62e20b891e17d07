"""Reported facts become metrics on the page, each series once."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.domain.candidates import NO_PINS, Ranking
from app.domain.duels import Duel, DuelState
from app.domain.facts import (
    Committed,
    Deleted,
    LeaseLost,
    ModelStatus,
    Replaced,
    Served,
    TraceHalved,
    Trained,
)
from app.domain.model import SUMS
from app.domain.model_config import COUNTING, ModelConfig
from app.observability.follower_metrics import Follower
from app.observability.metric_help import HELP
from app.observability.metrics import DEPRECATED_NAMES, MOST_DELETED, Metrics
from app.observability.model_metrics import ModelTotals, StoreHealth
from app.observability.model_table import ModelTable
from app.observability.quality_help import SIDES
from app.observability.quality_metrics import PRODUCTS
from app.ranking.arrays import Floats
from app.ranking.serving import expected_loss
from app.serving.served_model import ServedModel

STATUS_GAUGES = ("solar_learner_present", "solar_learner_fencing_token", "solar_training")
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def serving(
    name: str,
    *,
    version: float = 7,
    exploration: float | None = None,
    counting: float | None = COUNTING,
    **sums: float,
) -> ServedModel:
    values = np.array([sums.get(one.replace("@", "_at_"), 0.0) for one in SUMS])
    rule = None if counting is None else int(counting)
    config = ModelConfig(("a", "b"), exploration=exploration, counting=rule)
    return ServedModel(name, 1, int(version), config, np.array([3.0, 4.0]), values, 1.5)


def read(page: bytes) -> Series:
    """All series by name and labels; asserts that each series and each family appears once."""
    families = list(text_string_to_metric_families(page.decode()))
    assert not [name for name, count in Counter(f.name for f in families).items() if count > 1]
    samples = [(one.name, frozenset(one.labels.items())) for f in families for one in f.samples]
    assert not [series for series, count in Counter(samples).items() if count > 1]
    values = [one.value for family in families for one in family.samples]
    return dict(zip(samples, values, strict=True))


def paged(metrics: Metrics, models: Sequence[ServedModel] = (), **tails: int) -> Series:
    statuses = {name: ModelStatus(tail) for name, tail in tails.items()}
    return read(metrics.page(models, statuses, StoreHealth(True, 0.25)))


def series(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Metrics:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    return Metrics()


def test_gauges_of_a_model_come_from_the_served_state(metrics: Metrics) -> None:
    learnt = {"stepped": 5.0, "passive": 2.0, "refused": 1.0, "squared_loss": 6.5}
    measured = {"queries": 4.0, "ndcg_at_10": 3.0, "ndcg": 3.5, "map": 2.0, "baseline_map": 1.0}
    model = serving("books", feedback=6.0, rejected=1.0, bounded=5.0, **learnt, **measured)
    found = paged(metrics, [model], books=10)
    of_books = {
        "solar_version": 7, "solar_lag_records": 3, "solar_queries": 4, "solar_feedback": 6,
        "solar_rejected_records": 1, "solar_squared_hinge_loss": 6.5, "solar_weight_norm": 5.0,
        "solar_covariance_trace": 1.5, "solar_online_map": 0.5, "solar_online_map_summed": 2.0,
        "solar_baseline_map": 0.25, "solar_baseline_map_summed": 1.0, "solar_bounded_pairs": 5,
        "solar_lead_map": 0.25, "solar_lead_map_summed": 1.0,
    }  # fmt: skip
    for name, value in of_books.items():
        assert found[series(name, model="books")] == value, name
    assert found[series("solar_online_ndcg", model="books", k="10")] == 0.75
    assert found[series("solar_online_ndcg_summed", model="books", k="10")] == 3.0
    assert found[series("solar_online_ndcg_summed", model="books", k="all")] == 3.5
    for kind in ("stepped", "passive", "refused"):
        assert found[series("solar_updates", model="books", kind=kind)] == learnt[kind]
    assert found[series("solar_store_memory_share")] == 0.25


@pytest.mark.parametrize("side", SIDES)
def test_a_mean_and_its_standard_error_come_from_sum_squares_and_count(
    metrics: Metrics, side: str
) -> None:
    of_queries = np.array([0.5, 1.0, 0.0, 0.5])  # NDCG@10 and average precision
    name, count = ("", "queries") if side == "online" else (f"{side}_", "queries")
    if side == "explored":
        count = "explored_queries"
    sums = {count: 4.0}
    for measure in ("ndcg_at_10", "map"):
        key = measure if side == "lead" else f"{name}{measure}"  # lead: served, submitted is 0
        sums |= {key: of_queries.sum(), f"square_{name}{measure}": (of_queries**2).sum()}
    found = paged(metrics, [serving("m", **sums)])
    error = of_queries.std(ddof=1) / 2
    for metric, labels in (("ndcg", {"k": "10"}), ("map", {})):
        prefix = f"solar_{side}_{metric}"
        assert found[series(prefix, model="m", **labels)] == 0.5
        assert found[series(f"{prefix}_stderr", model="m", **labels)] == pytest.approx(error)
        assert found[series(f"{prefix}_summed", model="m", **labels)] == 2.0
        assert found[series(f"{prefix}_squares_summed", model="m", **labels)] == 1.5


def test_a_mean_needs_a_query_and_a_standard_error_needs_two(metrics: Metrics) -> None:
    models = [
        serving("new", version=0),
        serving("one", queries=1.0, explored_queries=1.0),
        serving("two", queries=2.0, explored_queries=2.0),
    ]
    found = paged(metrics, models)
    assert {name: quality_names(found, name) for name in ("new", "one", "two")} == {
        "new": SUM_NAMES,
        "one": SUM_NAMES | MEAN_NAMES,
        "two": SUM_NAMES | MEAN_NAMES | ERROR_NAMES,
    }


def test_models_from_before_standard_errors_have_means_and_sums_only(metrics: Metrics) -> None:
    won = {"debiased_weight": 8.0, "debiased_wins": 6.0, "baseline_debiased_wins": 2.0}
    model = serving("m", counting=None, queries=9.0, explored_queries=9.0, abandoned=3.0, **won)
    found = paged(metrics, [model])
    without_squares = {name for name in SUM_NAMES if not name.endswith("_squares_summed")}
    assert quality_names(found, "m") == without_squares | MEAN_NAMES
    names = {name for name, _ in found}
    assert {"solar_debiased_wins", "solar_debiased_lead"} <= names
    assert not names & {
        "solar_debiased_wins_stderr", "solar_debiased_lead_stderr",
        "solar_debiased_products_summed", "solar_abandoned_lists",
    }  # fmt: skip


def test_rankings_without_a_click_are_counted_apart(metrics: Metrics) -> None:
    found = paged(metrics, [serving("m", queries=4.0, abandoned=3.0), serving("new")])
    assert found[series("solar_abandoned_lists", model="m")] == 3.0
    assert found[series("solar_queries", model="m")] == 4.0
    assert found[series("solar_abandoned_lists", model="new")] == 0.0


MEAN_NAMES = {f"solar_{side}_{measure}" for side in SIDES for measure in ("ndcg", "map")}
ERROR_NAMES = {f"{name}_stderr" for name in MEAN_NAMES}
SUM_NAMES = {f"{name}{kind}_summed" for name in MEAN_NAMES for kind in ("", "_squares")}


def quality_names(found: Series, model: str) -> set[str]:
    """The metrics of NDCG and MAP that a model has, without deprecated names."""
    every = MEAN_NAMES | ERROR_NAMES | SUM_NAMES
    return {name for name, labels in found if ("model", model) in labels} & every


def test_debiased_wins_and_lead_are_absent_before_the_first_pair(metrics: Metrics) -> None:
    won = {"debiased_weight": 8.0, "debiased_wins": 6.0, "baseline_debiased_wins": 2.0}
    judged = serving("a", exploration=1.0, **won)
    found = paged(metrics, [judged, serving("b"), serving("former", **won)])
    assert found[series("solar_debiased_wins", model="a", order="model")] == 0.75
    assert found[series("solar_debiased_wins", model="a", order="submitted")] == 0.25
    assert found[series("solar_debiased_lead", model="a")] == 0.5
    assert found[series("solar_debiased_wins_summed", model="a", order="model")] == 6.0
    assert found[series("solar_debiased_weight_summed", model="a")] == 8.0
    absent = ("wins", "wins_stderr", "lead", "lead_stderr")
    of_b = {name for name, labels in found if ("model", "b") in labels}
    assert not of_b & {f"solar_debiased_{name}" for name in absent}
    assert found[series("solar_debiased_weight_summed", model="b")] == 0.0
    # Pairs of a model from before there was `exploration` weigh ten times as much.
    assert found[series("solar_debiased_wins", model="former", order="model")] == 0.75
    assert found[series("solar_debiased_weight_summed", model="former")] == 0.8


@pytest.mark.parametrize("exploration", [1.0, None])
def test_debiased_wins_have_standard_errors_over_queries(
    metrics: Metrics, exploration: float | None
) -> None:
    """Three queries; for models from before `exploration`, with ten times the weights."""
    model = serving("m", exploration=exploration)
    weight, wins, submitted = model.config.kappa * np.array(
        [[2.0, 1.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    )
    values = {"weight": weight, "model": wins, "submitted": submitted}
    products = {f"wins_{one}": product(values, one) for one in PRODUCTS}
    won = {"debiased_wins": wins.sum(), "baseline_debiased_wins": submitted.sum()}
    sums = {"debiased_weight": weight.sum(), **won, **products}
    found = paged(metrics, [serving("m", exploration=exploration, **sums)])
    for order, gained in (("model", wins), ("submitted", submitted)):
        expected = naive_share_error(gained, weight)
        error = found[series("solar_debiased_wins_stderr", model="m", order=order)]
        assert error == pytest.approx(expected)
    lead = found[series("solar_debiased_lead_stderr", model="m")]
    assert lead == pytest.approx(naive_share_error(wins - submitted, weight))
    for one, value in (("weight_weight", 6.0), ("model_weight", 5.0), ("model_submitted", 2.0)):
        name = "solar_debiased_products_summed"
        assert found[series(name, model="m", product=one)] == pytest.approx(value)


def product(values: dict[str, Floats], name: str) -> float:
    """The sum of the products of two sums of weights, query by query."""
    left, right = name.split("_")
    return float((values[left] * values[right]).sum())


def naive_share_error(won: Floats, weight: Floats) -> float:
    """The standard error of a ratio of sums over queries."""
    residuals = won - won.sum() / weight.sum() * weight
    return float(np.sqrt((residuals**2).sum()) / weight.sum())


def test_the_explored_share_is_absent_before_the_first_query(metrics: Metrics) -> None:
    shown = serving("shown", queries=8.0, explored_queries=6.0)
    plain = serving("plain", queries=8.0)
    found = paged(metrics, [shown, plain, serving("new")])
    assert found[series("solar_explored_share", model="shown")] == 0.75
    assert found[series("solar_explored_share", model="plain")] == 0.0
    assert series("solar_explored_share", model="new") not in found


def test_exploration_and_drift_are_absent_for_models_without_the_setting(metrics: Metrics) -> None:
    models = [
        serving("new", exploration=0.5, drift=21.5),
        serving("off", exploration=0.0),
        serving("former", drift=3.0),
    ]
    found = paged(metrics, models)
    for name in ("solar_exploration", "solar_drift"):
        assert series(name, model="former") not in found
    assert found[series("solar_exploration", model="new")] == 0.5
    assert found[series("solar_drift", model="new")] == 21.5
    assert found[series("solar_exploration", model="off")] == 0.0
    assert found[series("solar_drift", model="off")] == 0.0


def test_every_model_has_every_gauge_once(metrics: Metrics) -> None:
    found = paged(metrics, [serving("a"), serving("b")])
    names = {
        model: sorted((name, sorted(labels - {("model", model)})) for name, labels in found
                      if ("model", model) in labels)
        for model in ("a", "b")
    }  # fmt: skip
    assert names["a"] == names["b"]
    measures, deprecated = 4 * 5, 3 * 5 + 3  # sides × (cut-offs + MAP); …_sum
    assert len(names["a"]) == 2 * measures + deprecated + 11 + 1 + 3 + 3 + 6


def test_a_service_without_models_has_no_gauges_of_models(metrics: Metrics) -> None:
    assert not [name for name, labels in paged(metrics) if "model" in dict(labels)]


def test_the_lag_is_never_negative_and_is_0_without_a_status(metrics: Metrics) -> None:
    behind = paged(metrics, [serving("m", version=7)], m=3)
    assert behind[series("solar_lag_records", model="m")] == 0.0
    unknown = paged(metrics, [serving("m", version=7)])
    assert unknown[series("solar_lag_records", model="m")] == 0.0


def test_the_time_without_learning_is_of_each_model_and_of_the_slowest(metrics: Metrics) -> None:
    totals = ModelTotals(lag_seconds={"slow": 75.0, "without metrics of its own": 90.0})
    health, models = StoreHealth(True, 0.0), [serving("slow"), serving("learns")]
    found = read(metrics.page(models, {}, health, totals))
    assert found[series("solar_lag_seconds", model="slow")] == 75.0
    assert found[series("solar_lag_seconds", model="learns")] == 0.0
    assert found[series("solar_lag_seconds_max")] == 90.0
    assert read(metrics.page(models, {}, health))[series("solar_lag_seconds_max")] == 0.0


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


def test_reported_facts_are_counted(metrics: Metrics) -> None:
    metrics.impression("remembered")
    metrics.impression("dropped", 2)
    metrics.events("accepted", 3)
    metrics.events("rejected", 0)
    metrics.learnt(Committed("m", 5, 0.01))
    metrics.learnt(LeaseLost("m"))
    metrics.served(Served("m", 1, backwards=True))
    metrics.served(Served("m", 0, backwards=False))  # a new model without records
    found = paged(metrics)
    assert found[series("solar_impressions_total", outcome="remembered")] == 1
    assert found[series("solar_impressions_total", outcome="dropped")] == 2
    assert found[series("solar_feedback_events_total", outcome="accepted")] == 3
    assert found[series("solar_feedback_events_total", outcome="rejected")] == 0
    assert found[series("solar_learnt_records_total", model="m")] == 5
    assert found[series("solar_commit_seconds_count", model="m")] == 1
    assert found[series("solar_learner_interruptions_total", model="m")] == 1
    assert found[series("solar_store_rollbacks_total", model="m")] == 1
    assert series("solar_freshness_seconds_count", model="m") not in found


def ranked(*shown: int) -> Ranking:
    """A randomised ranking of three documents with the scores 3, 2 and 1."""
    return Ranking(np.array(shown), np.array([3.0, 2.0, 1.0]), explored=True)


def test_the_expected_loss_is_counted_for_every_16th_randomised_ranking(metrics: Metrics) -> None:
    loss, count = "solar_exploration_loss_total", "solar_exploration_loss_rankings_total"
    other = ranked(1, 0, 2)
    expected = expected_loss(other.scores, other.shown)
    assert 0.1 < expected < 0.2
    metrics.used("m")
    assert paged(metrics)[series(count, model="m")] == 0
    for at in range(33):
        metrics.explored("m", other if at % 16 == 0 else ranked(2, 1, 0), NO_PINS)
    found = paged(metrics)
    assert found[series(count, model="m")] == 3
    assert found[series(loss, model="m")] == pytest.approx(3 * expected)
    for _ in range(16):
        metrics.explored("m", ranked(0, 1, 2), NO_PINS)  # the model order loses nothing
    found = paged(metrics)
    assert found[series(count, model="m")] == 4
    assert found[series(loss, model="m")] == pytest.approx(3 * expected)


def test_models_are_measured_independently(metrics: Metrics) -> None:
    for model in ("a", "b"):
        metrics.explored(model, ranked(1, 0, 2), NO_PINS)
    found = paged(metrics)
    for model in ("a", "b"):
        assert found[series("solar_exploration_loss_rankings_total", model=model)] == 1


def test_counters_of_a_model_start_at_0_so_that_increase_sees_the_first_failure(
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
    counted = [
        series("solar_jobs_total", model="m", outcome="failed"),
        series("solar_degraded_answers_total", model="m"),
        series("solar_replacements_total", model="m", kind="rollback"),
        series("solar_learner_interruptions_total", model="m"),
        series("solar_store_rollbacks_total", model="m"),
    ]
    assert [(before[one], after[one]) for one in counted] == [(0, 1)] * len(counted)
    counters = {
        one: value
        for one, value in before.items()
        if one[0].startswith("solar_") and one[0].endswith("_total")
    }
    assert set(counters.values()) == {0}


def test_replacements_are_counted_by_kind_and_unknown_reasons_as_other(metrics: Metrics) -> None:
    for reason in (
        "warm start",
        "without source robots",
        "rollback to version 7",
        "promotion of shop-b",
        "unknown reason",
    ):
        metrics.learnt(Replaced("m", reason))
    found = paged(metrics)
    for kind in ("warm-start", "replay", "rollback", "promotion", "other"):
        assert found[series("solar_replacements_total", model="m", kind=kind)] == 1
    assert series("solar_freshness_seconds_count", model="m") not in found


def test_status_gauges_are_absent_for_a_model_without_a_status(metrics: Metrics) -> None:
    models = [serving("led"), serving("alone"), serving("unknown")]
    statuses = {
        "led": ModelStatus(9, leader=4, terms=4, trains=True),
        "alone": ModelStatus(9, terms=6),
    }
    found = read(metrics.page(models, statuses, StoreHealth(True, 0.0)))
    expected = {"led": (1, 4, 1), "alone": (0, 6, 0)}
    for name, values in expected.items():
        for metric, value in zip(STATUS_GAUGES, values, strict=True):
            assert found[series(metric, model=name)] == value
    assert not [one for one in STATUS_GAUGES if series(one, model="unknown") in found]


@pytest.mark.parametrize("reachable", [True, False])
def test_store_up_reports_whether_the_store_is_reachable(metrics: Metrics, reachable: bool) -> None:
    found = read(metrics.page([], {}, StoreHealth(reachable, 0.5)))
    assert found[series("solar_store_up")] == reachable
    assert found[series("solar_store_memory_share")] == 0.5


def test_freshness_is_the_time_from_append_to_serving(metrics: Metrics) -> None:
    metrics.served(Served("m", 1, backwards=False))  # appended 1 ms after 1970
    metrics.served(Served("m", 1 << 50, backwards=False))  # appended by a clock far ahead
    found = paged(metrics)
    assert found[series("solar_freshness_seconds_count", model="m")] == 2
    assert found[series("solar_freshness_seconds_bucket", model="m", le="0.001")] == 1
    assert found[series("solar_freshness_seconds_sum", model="m")] > 1.7e9


def test_deprecated_names_have_the_values_and_labels_of_the_new_names(metrics: Metrics) -> None:
    metrics.learnt(LeaseLost("m"))
    metrics.served(Served("m", 0, backwards=True))
    found = metrics.page([serving("m")], {"m": ModelStatus(9, 4, 4)}, StoreHealth(True, 0.0))
    families = {family.name: family for family in text_string_to_metric_families(found.decode())}
    for new, old in DEPRECATED_NAMES.items():
        assert families[new].samples
        renamed = [one._replace(name=one.name.replace(old, new)) for one in families[old].samples]
        assert renamed == families[new].samples
        untyped = old.endswith("_sum")  # no gauge may end so
        assert families[old].type == ("unknown" if untyped else families[new].type)
        name = families[new].samples[0].name
        expected = f"Deprecated, use {name}. {families[new].documentation}"
        assert families[old].documentation == expected


def test_every_help_text_is_a_sentence_and_names_each_label(metrics: Metrics) -> None:
    won = {"debiased_weight": 8.0, "debiased_wins": 6.0}
    judged = serving("m", exploration=1.0, queries=2.0, duel_queries=2.0, **won)
    judged = replace(judged, duel=DuelState(7, Duel("b", 0.2, 0.05)))
    follower = Follower("b", "m", False, 0, dict.fromkeys(SUMS, 1.0))
    metrics.explored("m", ranked(0, 1, 2), NO_PINS)
    health, totals, status = StoreHealth(True, 0.0), ModelTotals(learners=1), {"m": ModelStatus(9)}
    page = metrics.page([judged], status, health, totals, followers=[follower])
    found = page.decode()
    families = {one.name: one for one in text_string_to_metric_families(found)}
    assert set(HELP) <= set(families)
    for name in HELP:
        text = families[name].documentation
        assert text == HELP[name]
        assert len(text) > 30, name
        assert text.endswith("."), name
        for label in {label for one in families[name].samples for label in one.labels} - {"le"}:
            assert label in text, (name, label)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("solar_queries", ("solar_feedback", "solar_abandoned_lists")),
        ("solar_feedback", ("solar_queries", "solar_feedback_events_total")),
        ("solar_feedback_events", ("solar_feedback",)),
        ("solar_learnt_records", ("solar_feedback",)),
        ("solar_lag_records", ("solar_backlog_records",)),
        ("solar_backlog_records", ("solar_lag_records",)),
        ("solar_backlog_records_max", ("solar_lag_records",)),
        ("solar_backlog_work", ("solar_lag_records",)),
        ("solar_lag_seconds_max", ("solar_lag_seconds",)),
        ("solar_abandoned_lists", ("solar_queries",)),
    ],
)
def test_the_help_text_of_a_metric_names_the_metrics_that_it_is_mistaken_for(
    name: str, others: tuple[str, ...]
) -> None:
    assert set(others) <= set(re.findall(r"solar_\w+", HELP[name]))


def test_no_two_metrics_have_the_same_help_text() -> None:
    assert len(set(HELP.values())) == len(HELP)


@pytest.mark.parametrize("name", ["solar_debiased_wins", "solar_debiased_lead"])
def test_the_help_text_of_debiased_wins_says_that_they_do_not_compare_models(name: str) -> None:
    assert "pessimistic sign for one model against its own submitted order" in HELP[name]
    assert "Do not compare models by it." in HELP[name]


# ---- many models ----


def test_the_models_with_most_requests_and_those_in_trouble_have_metrics(metrics: Metrics) -> None:
    names = [f"m{at:03d}" for at in range(300)]
    for at, name in enumerate(names):
        metrics.served(Served(name, 0, backwards=name == "m020"))
        for _ in range(at):
            metrics.used(name)
    metrics.trained(Trained("m030", "failed"))
    metrics.learnt(TraceHalved("m050", 70))
    chosen = metrics.choose(names, {"m010"}, {"m040": 7, "deleted": 9})
    assert sorted(chosen) == ["m010", "m020", "m030", "m040", "m050", *names[100:]]
    page = metrics.page([serving("m299")], {}, StoreHealth(True, 0.0), ModelTotals(300, 1), chosen)
    found = read(page)
    assert found[series("solar_models")] == 300
    assert found[series("solar_models_damaged")] == 1
    assert found[series("solar_store_rollbacks_total", model="m020")] == 1
    assert found[series("solar_trace_halved_total", model="m050")] == 1
    assert series("solar_store_rollbacks_total", model="m021") not in found


def test_up_to_200_models_all_have_metrics(metrics: Metrics) -> None:
    assert len(metrics.choose([f"m{at}" for at in range(200)], (), {})) == 200


def test_a_deleted_model_leaves_no_series_and_no_row(metrics: Metrics) -> None:
    metrics.served(Served("old", 0, backwards=True))
    metrics.learnt(Committed("old", 5, 0.01))
    metrics.served(Deleted("old"))
    assert not [labels for _, labels in paged(metrics) if ("model", "old") in labels]
    metrics.served(Served("new", 0, backwards=False))  # uses the same row
    found = paged(metrics)
    assert found[series("solar_store_rollbacks_total", model="new")] == 0
    assert found[series("solar_learnt_records_total", model="new")] == 0
    assert series("solar_commit_seconds_count", model="new") not in found


def test_late_facts_of_a_deleted_model_do_not_count_for_a_new_model_of_its_name(
    metrics: Metrics,
) -> None:
    """A ranking that is answered, or a job that ends, after the deletion."""
    metrics.served(Served("m", 0, backwards=False))
    metrics.served(Deleted("m"))
    metrics.used("m")
    metrics.explored("m", ranked(1, 0, 2), NO_PINS)
    metrics.degraded("m")
    metrics.trained(Trained("m", "failed"))
    assert not [labels for _, labels in paged(metrics) if ("model", "m") in labels]
    metrics.served(Served("m", 0, backwards=False))
    counters = {one: value for one, value in paged(metrics).items() if ("model", "m") in one[1]}
    assert set(counters.values()) == {0}
    metrics.degraded("m")
    assert paged(metrics)[series("solar_degraded_answers_total", model="m")] == 1


def test_a_learner_counts_a_model_that_was_deleted_and_created_again(metrics: Metrics) -> None:
    metrics.learnt(Deleted("m"))
    metrics.learnt(Committed("m", 5, 0.01))
    assert paged(metrics)[series("solar_learnt_records_total", model="m")] == 5


def test_only_the_latest_deleted_models_are_remembered(metrics: Metrics) -> None:
    for at in range(MOST_DELETED + 1):
        metrics.served(Deleted(f"m{at}"))
    for name in ("m0", "m1"):
        metrics.used(name)
    models = {dict(labels).get("model") for _, labels in paged(metrics)} - {None}
    assert models == {"m0"}


def test_a_table_grows_and_adds_up_processes(tmp_path: Path) -> None:
    table, other = ModelTable(str(tmp_path)), tmp_path / "models_1.rows"
    first = table.row("m0")
    for at in range(1, 1500):
        table.row(f"m{at}")[1] = at
    first[0] += 3.0  # a row from before the table grew
    own = next(tmp_path.glob("models_*.rows"))
    other.write_bytes(own.read_bytes())
    assert own.stat().st_mode & 0o077 == 0
    found = table.counts(str(tmp_path))
    assert len(found) == 1500
    assert found["m0"][0] == 6.0
    assert found["m1499"][1] == 2 * 1499
    again = ModelTable(str(tmp_path))  # as a process with the same id
    again.row("m0")[0] += 1.0
    assert table.counts()["m0"][0] == 4.0


def test_a_deleted_model_leaves_no_counts_in_the_files_of_processes_that_have_ended(
    tmp_path: Path,
) -> None:
    """A model that is created again starts at 0, also after a worker was restarted."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    table = ModelTable(str(tmp_path))
    for name in ("old", "other"):
        table.row(name)[0] = 3.0
    own = next(tmp_path.glob("models_*.rows"))
    for pid in (ended.pid, os.getppid()):  # one has ended, one runs and removes its row itself
        (tmp_path / f"models_{pid}.rows").write_bytes(own.read_bytes())
    table.remove("old")
    table.row("old")
    found = table.counts(str(tmp_path))
    assert found["old"][0] == 3.0
    assert found["other"][0] == 9.0
