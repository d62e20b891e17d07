"""Recording rules and alerts for Prometheus.

Gauges of a committed state are the same on every replica, so they are recorded with `max`. A sum
over queries can fall slightly, because later feedback replaces a query's measure. Windows therefore
use `delta`; `rate` would take the fall for a restart.
"""

from app.ranking.drift import ALARM
from ops.words import TRAFFIC, Alert, RecordingRule, new_count, window_mean

NDCG_SUM = "model_k:solar_online_ndcg_sum:max"
BASELINE_NDCG_SUM = "model_k:solar_baseline_ndcg_sum:max"
MAP_SUM = "model:solar_online_map_sum:max"
BASELINE_MAP_SUM = "model:solar_baseline_map_sum:max"
QUERIES = "model:solar_queries:max"
WINS_SUM = "model_order:solar_debiased_wins_sum:max"
WEIGHT_SUM = "model:solar_debiased_weight_sum:max"
UPDATES = "model_kind:solar_updates:max"
LOSS = "model:solar_squared_hinge_loss:max"
BACKLOG = "model:solar_lag_records:max"
WINS_HOUR = "model_order:solar_debiased_wins:1h"
QUALITY_DAY = "model:solar_quality:1d"
FRESHNESS = "model:solar_freshness_seconds:p95_5m"

#: The least weight or number of queries for an alert. A pair's weight is 2ρ with 0 < ρ < 1, about
#: 1: so about 100 pairs in an hour, or 1,000 in a day (a standard error of 1.6 %).
HOUR_WEIGHT = 100
DAY_WEIGHT = 1_000
DAY_QUERIES = 1_000

RECORDING_RULES = (
    *(
        RecordingRule(name, f"max by ({by.replace('_', ', ')}) ({metric})")
        for by, metric, name in (
            (*one.split(":")[:2], one)
            for one in (
                NDCG_SUM, BASELINE_NDCG_SUM, MAP_SUM, BASELINE_MAP_SUM, QUERIES, WINS_SUM,
                WEIGHT_SUM, UPDATES, LOSS, BACKLOG,
            )
        )
    ),
    RecordingRule(WINS_HOUR, window_mean(WINS_SUM, WEIGHT_SUM, "1h")),
    RecordingRule(
        QUALITY_DAY,
        f'delta({WINS_SUM}{{order="model"}}[1d]) '
        f"/ on (model) (delta({WEIGHT_SUM}[1d]) > {DAY_WEIGHT})",
        (("measure", "debiased wins"),),
    ),
    RecordingRule(
        QUALITY_DAY,
        f'delta({NDCG_SUM}{{k="10"}}[1d]) / on (model) (delta({QUERIES}[1d]) > {DAY_QUERIES}) '
        f"unless on (model) {WEIGHT_SUM} > 0",  # click NDCG favours the ranking shown
        (("measure", "ndcg@10"),),
    ),
    RecordingRule(
        FRESHNESS,
        "histogram_quantile(0.95, sum by (model, le) (rate(solar_freshness_seconds_bucket[5m])))",
    ),
)  # fmt: skip

ALERTS = (
    Alert(
        "SolarDebiasedWinsBelowBaseline",
        f'{WINS_HOUR}{{order="model"}} - on (model) {WINS_HOUR}{{order="submitted"}}',
        f"< 0 and on (model) delta({WEIGHT_SUM}[1h]) > {HOUR_WEIGHT}",
        "30m", "critical",
        "Model {{ $labels.model }} ranks worse than the submitted order",
        "Model {{ $labels.model }} has had fewer debiased wins than the submitted order for 30 "
        "minutes. Users get worse rankings than without the model. Roll the model back to a "
        "version from before the drop.",
    ),
    Alert(
        "SolarQualityDropped",
        f"{QUALITY_DAY} - {QUALITY_DAY} offset 1w",
        "< -0.05",
        "1h", "warning",
        "Model {{ $labels.model }}: daily {{ $labels.measure }} changed by "
        '{{ printf "%.2f" $value }} within a week',
        "Compared with a week ago, the daily {{ $labels.measure }} of model {{ $labels.model }} "
        "dropped by more than 0.05. Users find relevant documents further down. Check whether the "
        "submitted order dropped as well.",
    ),
    Alert(
        "SolarDrift",
        "max by (model) (solar_drift)",
        f"> {ALARM:g}",
        "10m", "warning",
        "Model {{ $labels.model }}: NDCG@10 has fallen below its mean",
        "The evidence of drift of model {{ $labels.model }} has been above the alarm level for 10 "
        "minutes. Users may look for other documents than before, and find them further down. "
        "Check what changed: season, catalogue, features or click tracking.",
    ),
    Alert(
        "SolarBacklogGrowing",
        f"deriv({BACKLOG}[10m])",
        f"> 0 and {BACKLOG} > 1000",
        "10m", "warning",
        "Model {{ $labels.model }} learns more slowly than feedback arrives",
        "More than 1,000 records of model {{ $labels.model }} wait, and the backlog has grown for "
        "10 minutes. Rankings reflect feedback late, and /feedback answers 503 once the backlog "
        "reaches SOLAR_BACKLOG. Check that a learner holds the lease.",
    ),
    Alert(
        "SolarFreshnessOverBound",
        FRESHNESS,
        "> 1",
        "10m", "warning",
        "Model {{ $labels.model }}: feedback is served after {{ $value | humanizeDuration }} (p95)",
        "One in twenty records of model {{ $labels.model }} takes more than 1 second from append "
        "to serving. Rankings are correct but slightly out of date. Check the backlog and the "
        "commit duration.",
    ),
    Alert(
        "SolarTotalBacklogGrowing",
        "max(deriv(solar_backlog_records[10m]))",
        "> 0 and max(solar_backlog_records) > 10000",
        "10m", "warning",
        "All models together learn more slowly than feedback arrives",
        "More than 10,000 records wait over all models, and their number has grown for 10 minutes. "
        "Rankings of many models reflect feedback late. Check that enough learners run.",
    ),
    Alert(
        "SolarNoLeader",
        "max by (model) (solar_learner_present)",
        f"== 0 and on (model) {BACKLOG} > 0",  # of many models, those without records have none
        "1m", "critical",
        "No learner holds the lease of model {{ $labels.model }}",
        "Records of model {{ $labels.model }} wait, and no learner has held its lease for 1 "
        "minute. Rankings keep the current weights. Check the log of the learners.",
    ),
    Alert(
        "SolarLearningStalled",
        "max by (model) (solar_lag_seconds)",
        "> 60",
        "1m", "critical",
        "Model {{ $labels.model }} has learnt nothing for {{ $value | humanizeDuration }}",
        "Records of model {{ $labels.model }} wait, and none was learnt for more than 1 minute, "
        "also if a learner holds the lease. Rankings keep the current weights. Check the log of "
        "the learners.",
    ),
    Alert(
        "SolarNoLearner",
        "max(solar_learners)",
        "== 0",
        "1m", "critical",
        "No learner runs",
        "No learner process has been registered in the store for 1 minute. All models keep their "
        "current weights, and new feedback waits. Check that a learner process runs.",
    ),
    Alert(
        "SolarModelDamaged",
        "max(solar_models_damaged)",
        "> 0",
        "2m", "critical",
        "Models with a damaged state: {{ $value }}",
        "The stored state of a model has been damaged for 2 minutes, and no learner has rebuilt "
        "it. Its requests get 503 or older weights, and all other models are served. Find it with "
        "GET /models.",
    ),
    Alert(
        "SolarVersionBackwards",
        new_count("max by (model)", "solar_store_rollbacks_total"),
        "> 0",
        "0m", "critical",
        "The store lost records of model {{ $labels.model }}",
        "The store went back to an earlier version of model {{ $labels.model }}, as after a "
        "failover. Acknowledged feedback may be lost, and rankings use older weights. Check which "
        "server failed over or was restored.",
    ),
    Alert(
        "SolarCovarianceCollapsed",
        new_count("sum by (model)", "solar_trace_halved_total"),
        "> 0",
        "0m", "warning",
        "The covariance of model {{ $labels.model }} fell by half within 100 records",
        "Model {{ $labels.model }} became certain within a few records, as after pairs with very "
        "large weights or features. It learns little from further feedback. Find the sender with "
        "solar log, and replay the model without it.",
    ),
    Alert(
        "SolarMemoryNearLimit",
        "max(solar_store_memory_share)",
        "> 0.7",
        "10m", "warning",
        "The store's memory is {{ $value | humanizePercentage }} full",
        "The store has used more than 70 % of its memory limit for 10 minutes. Above 80 % "
        "/rank stores no impressions, and at 100 % /feedback answers 503. Raise the memory limit.",
    ),
    Alert(
        "SolarErrorRate",
        f'sum(rate(solar_request_seconds_count{{status=~"5..",{TRAFFIC}}}[5m])) '
        f"/ sum(rate(solar_request_seconds_count{{{TRAFFIC}}}[5m]))",
        "> 0.05",
        "5m", "critical",
        "{{ $value | humanizePercentage }} of the requests fail",
        "More than 5 % of the client requests have had a 5xx response for 5 minutes. Users miss "
        "rankings, and clients must send feedback again. Check which endpoint and status fail.",
    ),
    Alert(
        "SolarStoreDown",
        "min by (instance) (solar_store_up)",
        "== 0",
        "1m", "critical",
        "{{ $labels.instance }} cannot reach the store",
        "Instance {{ $labels.instance }} has not reached the store for 1 minute. /rank answers "
        "from memory without storing impressions, and /feedback answers 503. Check the Redis "
        "server and the network to it.",
    ),
    Alert(
        "SolarProcessDown",
        "min by (instance, process) (avg_over_time(solar_process_up[5m]))",
        "< 0.8",
        "1m", "warning",
        "The {{ $labels.process }} of {{ $labels.instance }} is down or restarts repeatedly",
        "The {{ $labels.process }} of {{ $labels.instance }} was down for more than 1 of the last "
        "5 minutes. /rank goes on, but without the learner no model learns, and without the store "
        "/feedback answers 503. Read why it ended in the log of the service.",
    ),
    Alert(
        "SolarJobFailed",
        new_count("sum by (model)", 'solar_jobs_total{outcome="failed"}'),
        "> 0",
        "0m", "warning",
        "A training job of model {{ $labels.model }} failed",
        "A training job of model {{ $labels.model }} failed within the last 15 minutes. Users "
        "notice nothing, because the model keeps its weights. Read the error with GET /jobs/ID.",
    ),
    Alert(
        "SolarGone",
        "(count(solar_store_up) or vector(0))",
        "== 0",
        "2m", "critical",
        "Prometheus receives no metrics from the service",
        "Prometheus has received no metrics from any process for 2 minutes. The service may be "
        "down, and no other alert can fire. Check that the processes run and that Prometheus "
        "reaches /metrics.",
    ),
)  # fmt: skip
